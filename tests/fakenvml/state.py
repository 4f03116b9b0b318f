"""The file that steers the fake library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

Number = float | int | str


class State:
    """What the fake library answers; ``fakenvml.c`` lists the keys."""

    def __init__(self, path: Path, values: Mapping[str, Number] | None = None) -> None:
        self.path = path
        self._values: dict[str, Number] = dict(values or {})
        self._write()

    def set(self, values: Mapping[str, Number | None]) -> None:
        """Change some keys, all at once; None takes one away."""
        for key, value in values.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        self._write()

    def _write(self) -> None:
        text = "".join(f"{key}={value}\n" for key, value in self._values.items())
        temporary = self.path.with_suffix(".new")
        temporary.write_bytes(text.encode("utf-8", "surrogateescape"))
        os.replace(temporary, self.path)
