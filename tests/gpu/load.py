"""Loads a real GPU for a time: ``python -m tests.gpu.load compute|memory SECONDS``."""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any


def main() -> None:
    """Multiply matrices, which is bound by the tensor cores, or copy, bound by the memory."""
    kind, seconds = sys.argv[1], float(sys.argv[2])
    torch: Any = importlib.import_module("torch")
    size = 8192
    a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    big = torch.empty(1 << 30, device="cuda", dtype=torch.float32)
    other = torch.empty_like(big)
    print("loading", flush=True)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for _ in range(20):
            if kind == "compute":
                torch.matmul(a, b)
            else:
                other.copy_(big)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
