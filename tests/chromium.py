"""A real browser for tests: the system's Chromium, without a window."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


def find() -> Path | None:
    """Return the browser: what ``CHROMIUM`` names, or the first that the system has."""
    if named := os.environ.get("CHROMIUM"):
        return Path(named)
    return next((Path(found) for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """Start the browser; the test is skipped where there is none."""
    path = find()
    if path is None:
        pytest.skip("no Chromium here: install it (as root: apt-get install chromium)")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS])
        try:
            yield started
        finally:
            started.close()


class Complaints:
    """What a page complained of, and what it wanted from elsewhere. Both should stay empty."""

    def __init__(self, page: Page) -> None:
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))

    def _said(self, line: ConsoleMessage) -> None:
        # Streamlit looks for its own address below that of a page, and finds it above.
        probing = "/_stcore/" in str(line.location.get("url"))
        if line.type == "error" and not probing:
            self.errors.append(line.text)

    def _asked(self, url: str) -> None:
        if not url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")):
            self.foreign.append(url)
