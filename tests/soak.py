"""``make soak``: kills under load, a disk that is filled and freed, and every record once.

``make soak ARGS=50`` for so many kills; 200 take about ten minutes. As root the store lies on a
small disk of its own, which is filled now and then; otherwise that part is left out, and said so.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from tailscope.records.reader import Reader
from tailscope.records.segments import listing
from tests.disk import Disk, NoDisk, small_disk
from tests.process import exporter, until
from tests.test_kill import (
    FLAGS,
    KILLS,
    SEED,
    Ledger,
    Life,
    Lives,
    Nursery,
    Place,
    check,
    sending,
)

_KILLS = 200
_FILL_EVERY = 10
_READ_EVERY = 20
_MEBIBYTES = 64


class DiskLives(Lives):
    """Lives on a disk that is full in some of them."""

    def __init__(
        self,
        disk: Disk,
        nursery: Nursery,
        ledger: Ledger,
        senders: Sequence[Future[None]],
    ) -> None:
        super().__init__(disk.path, nursery, ledger, senders)
        self._disk = disk
        self._freed = False

    def fill(self, log: Path) -> None:
        """Live while the disk is filled; then it is freed, before a kill or after it."""
        running = Life(self._nursery, log, self.data)
        try:
            self._ledger.move(Place(running.otlp_http, running.otlp_grpc))
            enough = self._ledger.messages + 10
            until(lambda: self._acknowledged(enough), "messages are acknowledged")
            self._disk.fill()
            until(lambda: running.value("store_up") == 0, "the full disk is told")
            refused = self._ledger.messages
            self._freed = not self._freed
            if self._freed:
                self._disk.free()
                until(lambda: running.value("store_up") == 1, "the store takes records again")
                until(lambda: self._acknowledged(refused + 20), "messages are acknowledged again")
        finally:
            running.end()
            self._ledger.move(None)
            if not self._freed:
                self._disk.free()


@contextmanager
def _disk(folder: Path) -> Iterator[Disk | None]:
    try:
        with small_disk(folder / "disk", _MEBIBYTES) as disk:
            yield disk
    except NoDisk as error:
        print(f"the disk is not filled: {error}", flush=True)
        yield None


def soak(folder: Path, kills: int) -> dict[str, float]:
    """Kill again and again; returns figures.

    Raises:
        AssertionError: If a record was lost, repeated or made up.
    """
    rng, ledger, filled, amid = random.Random(SEED), Ledger(), 0, 0
    started = time.monotonic()
    with _disk(folder) as disk, Nursery() as nursery, sending(ledger) as senders:
        lives = (
            DiskLives(disk, nursery, ledger, senders)
            if disk
            else Lives(folder, nursery, ledger, senders)
        )
        reader = Reader(lives.data)
        for number in range(1, kills + 1):
            if isinstance(lives, DiskLives) and number % _FILL_EVERY == 0:
                lives.fill(folder / f"filled-{number}.log")
                filled += 1
            else:
                lives.live(number, rng.choice(KILLS))
            amid += lives.half_sealed()
            if number % _READ_EVERY == 0:
                kept = len(check(reader, ledger))
                print(f"{number} kills, {kept:,} records, each once", flush=True)
        ledger.end()
        check(Reader(lives.data), ledger)
        requests = lives.data / "requests"
        with exporter(folder / "last.log", *FLAGS, "--data", str(lives.data)) as running:
            until(lambda: not listing(requests)[1], "all is sealed")
            assert running.stop() == 0
        kept = len(check(Reader(lives.data), ledger))
    return {
        "kills": kills,
        "kills amid a seal": amid,
        "times that the disk was full": filled,
        "records acknowledged": len(ledger.acknowledged),
        "records kept": kept,
        "records sent more than once": sum(count > 1 for count in ledger.sent.values()),
        "seconds": round(time.monotonic() - started),
    }


def main() -> int:
    """Run with the number of kills that is given."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else _KILLS
    with tempfile.TemporaryDirectory() as name:
        for title, value in soak(Path(name), kills).items():
            print(f"{title:<30}{value:>12,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
