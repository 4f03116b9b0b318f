"""The worked example of CONTRIBUTING.md, done as it says."""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailscope.catalogue.engines
from tailscope.catalogue import Engine
from tailscope.catalogue.engines import engines
from tailscope.exporter.normalise import Normaliser
from tailscope.exporter.sources.engine import EngineSource
from tests.agreement import check_page
from tests.captures import Capture, captures, page_of, served
from tests.process import PATIENCE, ROOT

_TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SERVER = "10.0.0.1:8000"


def block(kind: str) -> str:
    """The one block of the example in that language."""
    (found,) = re.findall(rf"^   ```{kind}\n(.*?)^   ```$", _TEXT, re.MULTILINE | re.DOTALL)
    return textwrap.dedent(found)


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The catalogue with one more file, and a folder with its captures."""
    (tmp_path / "acme").mkdir()
    for name, kind in (("2.1.prom", "prometheus"), ("2.1.v1_models.json", "json")):
        (tmp_path / "acme" / name).write_text(block(kind), encoding="utf-8")
    (tmp_path / "acme.py").write_text(block("python"), encoding="utf-8")
    package = tailscope.catalogue.engines
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    yield engines()["acme"]
    sys.modules.pop(f"{package.__name__}.acme", None)


def test_one_file_and_one_folder_are_an_engine(acme: Engine, tmp_path: Path) -> None:
    assert engines()["acme"] is acme
    (one,) = captures(tmp_path)
    assert one == Capture(acme, tmp_path / "acme" / "2.1.prom")
    with served(one) as server:
        source = EngineSource(server.url, engines(), deadline=PATIENCE, longest=1)
        assert source.read() == f"Acme answers at {server.url}/metrics"
        page = page_of(source).replace(server.address, SERVER)
        source.close()
    check_page(page, openmetrics=True)
    for line in block("text").splitlines():
        assert line in page.splitlines()
    reader = Normaliser(acme, SERVER)
    reader.read(one.text)
    assert reader.unmapped == {}
