"""Files that code makes and git keeps: write them, or tell how they differ from what is there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path

_SHOWN = 40
"""Lines of a difference that are printed; the rest is counted."""


def reconcile(directory: Path, files: Mapping[str, str], *, check: bool, command: str) -> int:
    """Write the files into the directory, or check that they are there as they should be.

    A file of the same kind that is not among them is named and left alone.

    Args:
        directory: Where they belong; it is made if it is missing.
        files: Content by file name.
        check: Write nothing; print how the directory differs.
        command: What to run to put a difference right.

    Returns:
        The exit status: 1 if the check found a difference, else 0.

    Raises:
        OSError: If a file cannot be read or written.
    """
    differences = list(_differences(directory, files))
    if check:
        for difference in differences:
            print(difference)
        if differences:
            print(f"{directory} is not what the code makes; run: {command}")
            return 1
        print(f"{directory}: {len(files)} files, as the code makes them")
        return 0
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
        print(f"{directory / name}: {len(text.splitlines())} lines")
    for name in _strangers(directory, files):
        print(f"{directory / name}: not made by this command any more; delete it")
    return 0


def _differences(directory: Path, files: Mapping[str, str]) -> Iterator[str]:
    for name, text in files.items():
        path = directory / name
        if not path.is_file():
            yield f"{path}: missing"
        elif (found := path.read_text(encoding="utf-8")) != text:
            yield _difference(str(path), found, text)
    for name in _strangers(directory, files):
        yield f"{directory / name}: not made by this command any more"


def _difference(path: str, found: str, wanted: str) -> str:
    lines = list(
        difflib.unified_diff(
            found.splitlines(), wanted.splitlines(), path, f"{path} (from the code)", lineterm=""
        )
    )
    rest = len(lines) - _SHOWN
    return "\n".join(lines[:_SHOWN] + ([f"... and {rest} more lines"] if rest > 0 else []))


def _strangers(directory: Path, files: Mapping[str, str]) -> list[str]:
    suffixes = {Path(name).suffix for name in files}
    present = sorted(directory.iterdir()) if directory.is_dir() else []
    return [path.name for path in present if path.suffix in suffixes and path.name not in files]
