"""HTTP headers from a file, such as an authorization: never on a command line, never shown."""

from __future__ import annotations

import re
from pathlib import Path

from tailscope.errors import UsageError


def read(path: Path | None) -> dict[str, str]:
    """Read HTTP headers from a file, one ``Name: value`` a line.

    Raises:
        UsageError: If it cannot be read, or a line is no header. The value is never quoted.
    """
    if path is None:
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"--prometheus-headers {path}: the file cannot be read") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if not colon or not re.fullmatch(r"[A-Za-z0-9-]+", name.strip()):
            raise UsageError(
                f"--prometheus-headers {path}: line {number} is no header such as "
                "`Authorization: Bearer TOKEN`"
            )
        found[name.strip()] = value.strip()
    return found
