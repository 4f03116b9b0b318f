"""Builds the fake libnvidia-ml.so.1."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fakenvml.c")
NAME = "libnvidia-ml.so.1"


class NoCompiler(Exception):
    """There is no C compiler."""


def build(folder: Path, *, old: bool = False) -> Path:
    """Build the library into a folder, for ``LD_LIBRARY_PATH``; returns the folder.

    Args:
        folder: Made if it is not there.
        old: Build that of a driver before GPM, memory version 2 and event reasons.

    Raises:
        NoCompiler: If there is none.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoCompiler(
            "the GPU tests build a small library: install a C compiler, on Debian "
            "`apt-get install gcc libc6-dev`"
        )
    folder.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command += ["-fvisibility=hidden", f"-Wl,-soname,{NAME}", *(["-DOLD"] if old else [])]
    command += ["-o", str(folder / NAME), str(SOURCE), "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoCompiler(f"{compiler} cannot build {SOURCE.name}:\n{done.stderr}")
    return folder


def built(folder: Path, *, old: bool = False) -> Path:
    """Return the folder of the library below ``folder``, built at the first call.

    Raises:
        NoCompiler: If there is no C compiler.
    """
    library = folder / ("fakenvml-old" if old else "fakenvml")
    return library if (library / NAME).exists() else build(library, old=old)
