from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.counts import COUNTS, told
from tests.prometheus import Prometheus, backfill, running
from tests.synthetic import openmetrics

Golden = Callable[[Path, str], None]

_AT_ANY_SPEED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

# A run says something of the code, so it draws the same examples each time, however slow the
# machine is. New ones are searched for with: pytest --hypothesis-profile search
settings.register_profile(
    "steady",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=_AT_ANY_SPEED,
)
settings.register_profile("search", deadline=None, suppress_health_check=_AT_ANY_SPEED)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the code gives into the golden files; the diff is what to review",
    )
    parser.addoption(
        "--engines", action="store_true", help="start real engines as well; make test-engines"
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the counts of a worker to the run that it belongs to."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["counts"] = dict(COUNTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take the counts of a worker that is done."""
    COUNTS.update(getattr(node, "workeroutput", {}).get("counts", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if line := told():
        terminalreporter.write_line(f"Checked: {line}")


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


@pytest.fixture(scope="session")
def prometheus_of_everything(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Prometheus, int]]:
    """A Prometheus with 25 minutes of every metric of the catalogue, and when they end."""
    directory = tmp_path_factory.mktemp("everything")
    start, count, step = 1_760_000_000, 100, 15
    text = directory / "series.txt"
    text.write_text("\n".join(openmetrics(start, count, step)) + "\n", encoding="utf-8")
    backfill(text, directory / "data")
    with running(directory / "data") as server:
        yield server, start + (count - 1) * step
