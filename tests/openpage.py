"""Opens a page of the app in this process, and reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import altair as alt
import pytest
from streamlit.testing.v1 import AppTest

from tailscope import cli
from tailscope.app import plot
from tailscope.app.prometheus import Prometheus
from tailscope.app.settings import Settings
from tests import recorded
from tests.process import PATIENCE

Open = Callable[..., AppTest]


@pytest.fixture
def open_page(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Run the page in this process, on a store, with an address."""
    defaults = Prometheus.__init__.__kwdefaults__
    assert defaults is not None

    def run(
        data: Path | None = None,
        *,
        page: str = "overview",
        notice: str = "",
        settings_of: Mapping[str, Any] = MappingProxyType({}),
        **address: str,
    ) -> AppTest:
        settings = Settings(() if data is None else (data,), notice, **settings_of)
        for name, value in settings.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(plot, "CHECKED", True)
        # A Prometheus of the tests is waited for, however busy the machine is.
        monkeypatch.setitem(defaults, "timeout", PATIENCE)
        test = AppTest.from_string(
            f"from tailscope.app import pages\npages.show({page!r})", default_timeout=300
        )
        for name, value in address.items():
            test.query_params[name] = value
        test.run()
        assert not test.exception, test.exception
        return test

    return run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with the recording, which ended a minute ago."""
    return recorded.store(tmp_path / "store", recorded.shifted(recorded.records(), ago=60))


def words(test: AppTest) -> str:
    """What the page says, without the marks of Markdown."""
    parts = [*test.markdown, *test.caption, *test.header, *test.subheader, *test.info, *test.error]
    return re.sub(r"\\(.)", r"\1", "\n".join(str(part.value) for part in parts))


def table(test: AppTest, column: str) -> Any:
    """The table that has this column."""
    return next(item.value for item in test.dataframe if column in item.value.columns)


def diagnosed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert cli.main(["diagnose", *arguments, "--json"]) == 0
    shape: dict[str, Any] = json.loads(capsys.readouterr().out)
    return shape


def marks(chart: Any) -> int:
    """Rows that a chart sends to the browser."""
    with alt.data_transformers.enable("default", max_rows=None):
        return sum(len(rows) for rows in chart.to_dict()["datasets"].values())


def sent(block: Any) -> Iterator[bytes]:
    """Everything that goes to the browser: texts, tables, specifications of charts, their data."""
    for node in getattr(block, "children", {}).values():
        proto = getattr(node, "proto", None)
        if proto is not None:
            yield proto.SerializeToString()
        yield from sent(node)
