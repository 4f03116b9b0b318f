"""A store with the recording, and what the triage says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailscope.triage.diagnosis import Diagnosis
from tests import recorded


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the recording."""
    folder = tmp_path_factory.mktemp("pages")
    return recorded.store(folder / "store", recorded.shifted(recorded.records(), ago=60))


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    found = Diagnosis(recorded.frame())
    assert found.attribution.studies
    return found
