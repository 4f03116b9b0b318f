from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the code gives into the golden files; the diff is what to review",
    )
    parser.addoption(
        "--engines", action="store_true", help="start real engines as well; make test-engines"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with a golden file, or rewrite the file when asked to."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path.name} is missing; run pytest --update-golden"
        assert text == path.read_text(encoding="utf-8"), (
            f"{path.name} differs; if it should, run pytest --update-golden and review the diff"
        )

    return compare
