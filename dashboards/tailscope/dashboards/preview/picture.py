"""An HTML page as a PNG, taken by the system's Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tailscope.errors import UsageError

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SECONDS: Final = 60.0


def browser() -> str | None:
    """Return the browser: what ``CHROMIUM`` names, or the first that the system has."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


def picture(html: Path, png: Path, width: int, height: int) -> None:
    """Take a picture of a whole page.

    Raises:
        UsageError: If there is no Chromium, or it takes none.
    """
    found = browser()
    if found is None:
        raise UsageError("--png needs Chromium: install it, or name it in CHROMIUM")
    with tempfile.TemporaryDirectory() as profile:
        ran = subprocess.run(  # noqa: S603 - a browser of this machine on a page of ours
            [
                *(found, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *("--disable-dev-shm-usage", f"--user-data-dir={profile}"),
                *(f"--window-size={width},{height}", f"--screenshot={png.resolve()}"),
                html.resolve().as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    if ran.returncode or not png.is_file():
        raise UsageError(f"--png: {found} took no picture: {ran.stderr.strip()[-300:]}")
