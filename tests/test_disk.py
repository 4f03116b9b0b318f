"""A real disk that is filled and freed under load, and one that nobody may write to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailscope.records.reader import Reader
from tailscope.records.segments import listing
from tests.disk import Disk, NoDisk, small_disk
from tests.soak import DiskLives
from tests.test_kill import Ledger, Nursery, check, sending


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    try:
        with small_disk(tmp_path / "disk", 64) as disk:
            yield disk
    except NoDisk as error:
        pytest.skip(str(error))


def test_a_disk_that_is_filled_costs_nothing_that_was_acknowledged(
    disk: Disk, tmp_path: Path
) -> None:
    """Once it is freed while the exporter runs, once after a kill; then nobody may write."""
    ledger = Ledger()
    with Nursery() as nursery, sending(ledger) as senders:
        lives = DiskLives(disk, nursery, ledger, senders)
        for number in range(2):
            log = tmp_path / f"{number}.log"
            lives.fill(log)
            assert "No space left on device" in log.read_text()
        lives.live(3, "sealed")
    disk.make_read_only()
    assert len(listing(lives.data / "requests")[0]) > 0
    assert check(Reader(lives.data), ledger) >= ledger.acknowledged
