"""Makes the README's picture: ``python -m tests.screenshot FILE`` looks at the demo."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect

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
    finally:
        demo.terminate()
        demo.wait(20)
    print(f"{target}: {target.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
