"""2,000 reads with GPUs lost and back, drivers loaded anew, MIG changed: nothing grows."""

from __future__ import annotations

import random

from tests.fakenvml.fixtures import Start, fake, start
from tests.fakenvml.state import Number

__all__ = ["fake", "start"]

READS = 3_000
WARM = 1_000  # each kind of event has come by then
MIB = 1 << 20


def _event(chance: random.Random, read: int) -> dict[str, Number | None]:
    """Something that happens to the machine before a read."""
    match chance.randrange(12):
        case 0:
            return {f"gpu{chance.randrange(4)}__lost": 1}
        case 1 | 2:
            return {f"gpu{index}__lost": None for index in range(4)}
        case 3:
            return {"epoch": read, "epoch__ret": chance.choice([1, 9, 28, 999])}
        case 4:
            place = chance.randrange(4)
            # The numbers are given again, the UUIDs are not.
            return {
                f"gpu3__mig{place}__uuid": f"MIG-{read}",
                f"gpu3__mig{place}__gi": 1 + place,
            }
        case 5:
            return {f"gpu3__mig{chance.randrange(4)}__uuid": None}
        case 6:
            return {"gpu3__mig": chance.randrange(2)}
        case 7:
            return {"nvmlGpmMetricsGet__ret": 999}
        case 8:
            return {"nvmlGpmMetricsGet__ret": None, "all__ret": None}
        case 9:
            return {"xids": read, f"xid__{read}": f"{chance.randrange(4)}:79"}
        case 10 if chance.random() < 0.3:
            return {"all__ret": 999}
    return {}


def test_nothing_grows(start: Start) -> None:
    chance = random.Random(20260401)
    rig = start(count=4, gpu3__mig=1, gpu3__mig0__uuid="MIG-0")
    before: dict[str, int] = {}
    for read in range(READS):
        rig.tick(None, **(_event(chance, read) if read % 3 == 0 else {}))
        if read % 20 == 0:
            rig.page()
            rig.do("samples")
        if read == WARM:
            before = rig.do("usage")
    after = rig.do("usage")
    print(f"{before} after {WARM} reads, {after} after {READS}")
    assert after["fds"] == before["fds"]
    assert after["threads"] == before["threads"]
    assert after["rss"] - before["rss"] < 2 * MIB

    # And all is well in the end.
    rig.tick(31, all__ret=None, nvmlGpmMetricsGet__ret=None, gpu3__mig=0,
             **{f"gpu{index}__lost": None for index in range(4)})  # fmt: skip
    for _ in range(3):
        rig.tick()
    page = rig.page()
    assert [sample.value for sample in page.all("gpu_up")] == [1, 1, 1, 1]
    assert len(page.all("gpu_sm_active_ratio")) == 4

    assert rig.end() == []  # no sample and no event set was held when NVML was closed
    counts = rig.counts()
    print({name: counts[name] for name in sorted(counts) if "Gpm" in name or "Event" in name})
    assert counts["nvmlInit"] > 100
    assert counts["nvmlGpmSampleAlloc"] == counts["nvmlGpmSampleFree"] > 500
