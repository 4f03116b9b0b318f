"""Loads a real GPU for a time: ``python -m tests.gpu.load compute|memory SECONDS``."""

from __future__ import annotations

import sys
import time

from tests.gpu.cuda import Cuda, CudaError


def main() -> None:
    """Multiply matrices, which is bound by the tensor cores, or copy, bound by the memory."""
    kind, seconds = sys.argv[1], float(sys.argv[2])
    try:
        cuda = Cuda()
        work = cuda.multiply if kind == "compute" else cuda.copy
        work()
        print("loading", flush=True)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            work()
    except CudaError as error:
        raise SystemExit(f"no load: {error}") from None


if __name__ == "__main__":
    main()
