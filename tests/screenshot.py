"""Makes the README's pictures: ``python -m tests.screenshot FILE`` looks at the demo.

FILE shows the overview; beside it come ``FILE-tenants`` in light and ``FILE-request`` in dark.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, expect

from tests.chromium import browser

_WIDTH, _HEIGHT = 1280, 1000
_PATIENCE_MS = 60_000


def main(target: Path) -> None:
    """Start the demo, open the page as a reader would, and keep what it shows."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "tailscope.cli", "demo"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert demo.stdout is not None
        said = ""
        for line in demo.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        found = re.search(r"triage app +(\S+)", said)
        if not found:
            sys.exit(f"the demo did not start:\n{said}")
        with browser() as chromium:
            page = chromium.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
            page.goto(found[1])
            sentence = page.get_by_text(re.compile(r"of the slow seconds are in the queue"))
            expect(sentence.first).to_be_visible(timeout=_PATIENCE_MS)
            page.wait_for_timeout(3_000)  # until the charts are drawn
            page.screenshot(path=target)
            pages = [target]
            for name, dark in (("tenants", False), ("request", True)):
                pages.append(target.with_stem(f"{target.stem}-{name}"))
                _look(chromium, f"{found[1].rstrip('/')}/{name}?window=all", dark, pages[-1])
    finally:
        demo.terminate()
        demo.wait(20)
    for path in pages:
        print(f"{path}: {path.stat().st_size // 1024} kB")


def _look(chromium: Browser, url: str, dark: bool, target: Path) -> None:
    """Keep what a page shows; of one request, the slowest that the overview lists."""
    scheme: Literal["light", "dark"] = "dark" if dark else "light"
    page = chromium.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme=scheme)
    if dark:
        page.goto(url.replace("/request?", "/?"))
        page.get_by_role("link", name="Open this request on its own page").click()
        ready = page.get_by_text("What its excess is owed to")
    else:
        page.goto(url)
        ready = page.get_by_text("Load over time")
    expect(ready.first).to_be_visible(timeout=_PATIENCE_MS)
    page.wait_for_timeout(3_000)  # until the charts are drawn
    page.screenshot(path=target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
