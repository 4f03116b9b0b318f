"""A real browser for tests: the system's Chromium, without a window."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tests import process

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 300_000.0  # milliseconds; the machine may be busy
SOON = 30_000.0  # milliseconds after which the mouse is used once more
_FORGOTTEN = 5_000.0  # milliseconds after which a click, which may be repeated, is taken as lost
expect.set_options(timeout=PATIENCE)

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


def done(act: Callable[[], None], outcome: Callable[[], None]) -> None:
    """Use the mouse until it shows: a page that is being drawn does not listen, or forgets it."""

    def shows() -> bool:
        try:
            act()
            outcome()
        except (AssertionError, PlaywrightTimeout):
            return False
        return True

    process.until(shows, "the mouse has its effect", PATIENCE / 1000)


def follow(way: Locator, outcome: Locator) -> None:
    """Click a link or a button, as long as it is there, until what it leads to is seen."""

    def click() -> None:
        expect(way.or_(outcome).first).to_be_visible()
        if way.count() and not outcome.count():
            way.first.click(timeout=SOON)

    done(click, lambda: expect(outcome.first).to_be_visible(timeout=_FORGOTTEN))


def offered(page: Page, name: str) -> list[str]:
    """What a list lets one choose from."""
    options = page.get_by_role("option")
    box = page.get_by_role("combobox", name=name)

    def read() -> list[str]:
        follow(box, options)
        return options.all_inner_texts()

    found = process.until(read, f"{name} offers something", PATIENCE / 1000)
    page.keyboard.press("Escape")
    return found


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
