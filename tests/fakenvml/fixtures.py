"""Fixtures for tests on the fake library; a test module imports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakenvml.library import NoCompiler, built
from tests.fakenvml.rig import Rig

Start = Callable[..., Rig]


@pytest.fixture
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the library of a present driver."""
    return _library(tmp_path_factory, old=False)


@pytest.fixture
def old_fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the library of an old driver."""
    return _library(tmp_path_factory, old=True)


def _library(factory: pytest.TempPathFactory, *, old: bool) -> Path:
    try:
        return built(factory.getbasetemp(), old=old)
    except NoCompiler as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def start(fake: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a source; at the end it must have done nothing that NVML forbids."""
    rigs: list[Rig] = []

    def begin(*, library: Path = fake, **more: Any) -> Rig:
        options = {key: more.pop(key) for key in ("interval",) if key in more}
        values = {key.replace("__", "."): value for key, value in more.items()}
        folder = tmp_path / str(len(rigs))
        folder.mkdir()
        rigs.append(Rig(library, folder, values, **options))
        return rigs[-1]

    yield begin
    for rig in rigs:
        assert rig.end() == [], rig.log
        assert "Traceback" not in rig.log, rig.log
