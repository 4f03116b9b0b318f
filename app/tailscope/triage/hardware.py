"""What is said about one GPU over a time, as values, neither text nor drawing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from tailscope.triage.phrase import tell


class Weight(StrEnum):
    """What it means that clocks were held down for a cause."""

    FAULT = "fault"
    """Something is wrong: each second counts."""
    LIMIT = "limit"
    """Usual under full load: it says something only if it comes with the slow requests."""
    SETTING = "setting"
    """Somebody chose it: known, but no news."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why clocks are held down: reasons of the driver that mean the same to a person.

    Attributes:
        name: One word or two, for machines.
        reasons: Values of the label ``reason``; of several at a time the longest counts.
        beyond: Reasons that cover these: only what is beyond them counts.
        words: What was done to the GPU, as a passive.
        weight: What it means.
    """

    name: str
    reasons: tuple[str, ...]
    words: str
    weight: Weight
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time, UTC nanoseconds, and for how many seconds of it something held."""

    start_ns: int
    end_ns: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Throttle:
    """Time for which clocks were held down.

    Attributes:
        cause: Why.
        seconds: For how long.
        reasons: Seconds by the driver's reasons, which may overlap.
        spans: When, as finely as the GPU was read.
    """

    cause: Cause
    seconds: float
    reasons: Mapping[str, float]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Xid:
    """XID events of one code that came between two reads.

    Attributes:
        start_ns: The read before it.
        time_ns: The read that saw it.
        code: The driver's code.
        action: Class of action that it asks for.
        count: How many there were.
    """

    start_ns: int
    time_ns: int
    code: str
    action: str
    count: int


@dataclass(frozen=True, slots=True)
class Level:
    """A gauge over a time, in its unit.

    Attributes:
        mean: Mean of the samples.
        p95: Their 95th percentile.
        highest: The highest.
        samples: How many there are.
    """

    mean: float
    p95: float
    highest: float
    samples: int


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """How far the memory's bandwidth, not arithmetic, was what a GPU was busy with.

    Attributes:
        share: Part of the samples in which the memory was near its limit and the tensor cores were
            not, 0-1.
        dram: Mean share of the memory's cycles that moved data.
        tensor: Mean share of the tensor cores' cycles in use.
        samples: Samples that have both.
        spans: When it was so.
    """

    share: float
    dram: float
    tensor: float
    samples: int
    spans: tuple[Span, ...] = ()

    @property
    def seconds(self) -> float:
        """For how long it was so."""
        return sum((span.seconds for span in self.spans), 0.0)


class Trouble(StrEnum):
    """What a GPU went through."""

    THROTTLED = "throttled"
    LOST = "lost"
    XID = "xid"
    BANDWIDTH = "bandwidth"


@dataclass(frozen=True, slots=True)
class Coincidence:
    """A trouble of a GPU, and the slow requests that ran while it held.

    It says nothing of which requests the GPU served: that is not recorded.

    Attributes:
        trouble: What it was.
        cause: Name of the cause of a throttle, or the XID code; empty for a loss.
        requests: Slow requests that ran meanwhile.
        slow: Slow requests with a known time, of the time in which the GPU was looked at.
        share_slow: Part of their time in which it held, 0-1; None for an event.
        share: Part of the time that the GPU was watched in which it held, 0-1; None for an event.
        suspect: Whether it may have to do with them.
    """

    trouble: Trouble
    cause: str
    requests: int
    slow: int
    share_slow: float | None
    share: float | None
    suspect: bool


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG instance of it, over a time.

    Attributes:
        index: Its number on its machine.
        uuid: Who it is; empty if it never said so.
        model: Its name.
        instance: Number of the GPU instance; empty for a whole GPU.
        profile: Size of the instance, such as ``1g.10gb``; empty for a whole GPU.
        start_ns: Begin of the time that was looked at.
        end_ns: Its end, or the last sample.
        watched_seconds: How much of it is known: the time between reads, without gaps.
        activity: ``sm``, ``dram`` and ``tensor``: shares of cycles, 0-1; those that are known.
        readings: Other gauges in their units, those that are known.
        missing: Which activity is not known, though the GPU was read.
        throttles: Why and for how long its clocks were held down, the longest first.
        lost: When it could not be read.
        lost_at_end: Whether it could not be read at the end either.
        xids: XID events, oldest first.
        bandwidth: Whether bandwidth held it; None where that is not known.
        beside: Its troubles and the slow requests; empty before they were compared.
    """

    index: str
    uuid: str
    model: str
    instance: str
    profile: str
    start_ns: int
    end_ns: int
    watched_seconds: float
    activity: Mapping[str, Level]
    readings: Mapping[str, Level]
    missing: tuple[str, ...]
    throttles: tuple[Throttle, ...] = ()
    lost: tuple[Span, ...] = ()
    lost_at_end: bool = False
    xids: tuple[Xid, ...] = ()
    bandwidth: Bandwidth | None = None
    beside: tuple[Coincidence, ...] = field(default=())

    @property
    def name(self) -> str:
        """What a person calls it."""
        board = self.index or self.uuid
        if not self.instance:
            return f"GPU {board}"
        profile = {"gpu": board, "instance": self.instance, "profile": self.profile}
        if not self.profile:
            return tell("GPU {gpu} instance {instance}", **profile)
        return tell("GPU {gpu} instance {instance} ({profile})", **profile)

    @property
    def lost_seconds(self) -> float:
        """For how long it could not be read."""
        return sum((span.seconds for span in self.lost), 0.0)

    @property
    def faulty_seconds(self) -> float | None:
        """For how long its clocks were held down by what should not be, causes added up.

        None where no reason is known at all: a counter that never counted is not told from one that
        the GPU does not have.
        """
        if not self.throttles:
            return None
        return sum(one.seconds for one in self.throttles if one.cause.weight is Weight.FAULT)


NOTHING: Mapping[str, Level] = MappingProxyType({})
