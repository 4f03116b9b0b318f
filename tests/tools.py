"""Programs that tests run beside the code."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_FETCHED = ROOT / ".tools" / "usr" / "bin"


def tool(name: str) -> str:
    """The path of a program, from $PATH or from what the set-up fetched; fails the test if it is
    in neither."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), str(_FETCHED)]))
    if found is None:
        pytest.fail(f"{name} is neither in $PATH nor in {_FETCHED}; `make test` fetches it")
    return found
