"""One GPU over all generations of NVML: what is known of it, and its lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tailscope.catalogue import PREFIX
from tailscope.exporter.exposition import Lines
from tailscope.exporter.reading import Key
from tailscope.exporter.sampler import Sampler
from tailscope.exporter.sources.nvml.identity import Identity
from tailscope.exporter.sources.nvml.ledger import Ledger
from tailscope.exporter.sources.nvml.library import word
from tailscope.exporter.sources.nvml.slot import Outcome

log = logging.getLogger(__name__)

_UP = f"{PREFIX}gpu_up"
_INFO = f"{PREFIX}gpu_info"
_SOURCE = f"{PREFIX}gpu_source_info"

NVML, GPM = "nvml", "nvml_gpm"
HEALTH, ACTIVITY = "health", "activity"


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page says of one GPU, as long as it is fresh.

    Attributes:
        identity: Who it is.
        up: Whether the last read worked.
        read: When it was read, by the monotonic clock in seconds.
        numbers: What was read.
        sampled: Integrals and distributions.
        activity: Whether GPM gives its activity.
    """

    identity: Identity
    up: bool = False
    read: float = 0.0
    numbers: Mapping[Key, float] = field(default_factory=dict)
    sampled: Lines = field(default_factory=dict)
    activity: bool = False


class Gpu:
    """What is known of one GPU, by its UUID.

    Args:
        identity: Who it is.
        longest: Longest gap between two reads that is integrated over, in seconds.

    Attributes:
        shown: What a page says of it; replaced as a whole.
        why: Why it is not up, in a word; ``ok`` if it is.
    """

    def __init__(self, identity: Identity, longest: float) -> None:
        self.ledger = Ledger()
        self.shown = Shown(identity)
        self.why = self._told = "starting"
        self._trouble = self._told_trouble = ""
        self._sampler = Sampler(longest)

    def accept(self, outcome: Outcome) -> None:
        """Take what a read gave."""
        identity = outcome.identity or self.shown.identity
        if outcome.error is not None:
            self.lose(word(outcome.error.code), identity)
            return
        self.why, self._trouble = "ok", outcome.trouble
        sampled = self._sampler.observe(outcome.taken, outcome.numbers)
        numbers = dict(outcome.numbers)
        numbers.update(_facts(identity, outcome))
        self.shown = Shown(identity, True, outcome.taken, numbers, sampled, outcome.activity)

    def lose(self, why: str, identity: Identity | None = None) -> None:
        """Let go of its values; that it was there is still known."""
        self.why = why
        self.shown = Shown(identity or self.shown.identity)

    def tell(self) -> None:
        """Log a change of state, once."""
        before, self._told = self._told, self.why
        identity = self.shown.identity
        if self.why == "ok" and before not in ("ok", "starting"):
            log.info("GPU %s (%s) can be read again", identity.gpu, identity.uuid)
        elif self.why not in ("ok", before):
            log.warning("GPU %s (%s) cannot be read: %s", identity.gpu, identity.uuid, self.why)
        if self._trouble != self._told_trouble:
            self._told_trouble = self._trouble
            log.warning("GPU %s: no SM and DRAM activity: %s", identity.gpu, self._trouble)


def up_key(identity: Identity) -> Key:
    """Return the series that says whether a GPU can be read."""
    return Key(_UP, (identity.gpu, identity.uuid, identity.model))


def _facts(identity: Identity, outcome: Outcome) -> Iterator[tuple[Key, float]]:
    who = (identity.gpu, identity.uuid)
    facts = (identity.model, identity.pci_bus_id, identity.driver, outcome.mig)
    yield Key(_INFO, (*who, *facts)), 1.0
    yield Key(_SOURCE, (*who, HEALTH, NVML)), 1.0
    if outcome.activity:
        yield Key(_SOURCE, (*who, ACTIVITY, GPM)), 1.0
