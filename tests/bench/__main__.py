"""``make bench``: prints every figure; ``make bench ARGS=exporter`` only those of one module."""

from __future__ import annotations

import importlib
import pkgutil
import sys

from tests import bench


def main() -> int:
    """Run each module of this folder that has ``run``, or those that are named."""
    names = [
        module.name for module in pkgutil.iter_modules(bench.__path__) if module.name != "__main__"
    ]
    chosen = sys.argv[1:] or names
    for name in chosen:
        if name not in names:
            print(f"no bench {name!r}; there are {', '.join(names)}", file=sys.stderr)
            return 2
        module = importlib.import_module(f"tests.bench.{name}")
        if hasattr(module, "run"):
            print(f"\n{name}", flush=True)
            for line in module.run():
                print(f"  {line}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
