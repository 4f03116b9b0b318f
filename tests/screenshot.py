"""Makes the pictures of the docs from the demo: ``python -m tests.screenshot FOLDER``.

``triage.png`` shows the overview, ``triage-tenants.png`` is light and ``triage-request.png`` dark.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tailscope.address import free
from tailscope.dashboards.boards import boards
from tailscope.dashboards.preview.command import preview
from tailscope.dashboards.preview.prometheus import Prometheus
from tailscope.demo.recording import load, save
from tests.chromium import browser
from tests.prometheus import running

_WIDTH, _HEIGHT = 1280, 1000
_PATIENCE_MS = 180_000
_SCRAPED = 150
"""Seconds for which Prometheus scrapes the demo before its boards are drawn."""
_BOARDS = {"tailscope-triage": 1500, "tailscope-decode": 2000, "tailscope-tenants": 1400}
"""Boards of the docs, and how many pixels of their height are shown."""
_COLOURS = 64
_PLAYED = 45
"""Seconds from the start of the demo after which its incident is over."""


@contextmanager
def _demo(*flags: str) -> Iterator[str]:
    """Run the demo; give what it said until it was ready."""
    command = [sys.executable, "-m", "tailscope.cli", "demo", *flags]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert demo.stdout is not None
        said = ""
        for line in demo.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        else:
            sys.exit(f"the demo did not start:\n{said}")
        yield said
    finally:
        demo.terminate()
        demo.wait(120)


def app(target: Path) -> None:
    """Open the triage app as a reader would, and keep what it shows."""
    with _demo() as said, browser() as chromium:
        found = re.search(r"triage app +(\S+)", said)
        assert found, said
        time.sleep(_PLAYED)
        page = chromium.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        page.goto(found[1])
        sentence = page.get_by_text(re.compile(r"Tenant initech likely made them slow.+ by replay"))
        expect(sentence.first).to_be_visible(timeout=_PATIENCE_MS)
        _settled(page)
        page.screenshot(path=target)
        for name, dark in (("tenants", False), ("request", True)):
            beside = target.with_stem(f"{target.stem}-{name}")
            _look(chromium, f"{found[1].rstrip('/')}/{name}?window=all", dark, beside)


def _look(chromium: Browser, url: str, dark: bool, target: Path) -> None:
    """Keep what a page shows; of one request, the slowest that the overview lists."""
    scheme: Literal["light", "dark"] = "dark" if dark else "light"
    page = chromium.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme=scheme)
    if dark:
        page.goto(url.replace("/request?", "/?"))
        page.get_by_role("link", name="Open this request on its own page").click(
            timeout=_PATIENCE_MS
        )
        ready = page.get_by_text("What its excess is owed to")
    else:
        page.goto(url)
        ready = page.get_by_text("Load over time")
    expect(ready.first).to_be_visible(timeout=_PATIENCE_MS)
    _settled(page)
    page.screenshot(path=target)


def _settled(page: Page) -> None:
    """Wait until all of the page stands, and its charts are drawn."""
    for mark in ("stSkeleton", "stSpinner", "stStatusWidget"):
        expect(page.get_by_test_id(mark)).to_have_count(0, timeout=_PATIENCE_MS)
    expect(page.locator("[data-stale=true]")).to_have_count(0, timeout=_PATIENCE_MS)
    expect(page.locator("svg.marks").first).to_be_visible(timeout=_PATIENCE_MS)
    page.wait_for_timeout(1_000)  # the last chart fades in


def previews(folder: Path) -> None:
    """Draw the boards of the docs from a Prometheus that scraped the demo.

    Without its calm parts the recording is played in a loop: there is something to see all along.
    """
    listen = str(free())
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        save(replace(load(), calm=()), work / "bursts")
        played = ("--recording", str(work / "bursts"), "--data", str(work / "data"))
        with (
            _demo("--no-app", "--listen", listen, *played),
            running(work / "prometheus", {"tailscope": listen}) as server,
        ):
            time.sleep(_SCRAPED)
            preview(
                [board for board in boards() if board.uid in _BOARDS],
                Prometheus(server.url),
                work,
                seconds=_SCRAPED - 30,
                scrape=1,
                chosen={"offset": "30s"},
                png=True,
            )
        for uid, height in _BOARDS.items():
            _shrink(
                work / f"{uid}.png", folder / f"{uid.replace('tailscope', 'board')}.png", height
            )


def _shrink(source: Path, target: Path, height: int) -> None:
    picture = Image.open(source).convert("RGB")
    shown = picture.crop((0, 0, picture.width, min(height, picture.height)))
    shown.quantize(_COLOURS).save(target, optimize=True)


def main(folder: Path) -> None:
    """Make all pictures."""
    app(folder / "triage.png")
    previews(folder)
    for path in sorted(folder.glob("*.png")):
        print(f"{path}: {path.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
