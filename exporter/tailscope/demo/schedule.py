"""When each loop over a recording begins, and the identities of each loop."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tailscope.demo.recording import Recording


@dataclass(frozen=True, slots=True)
class Loop:
    """One pass over a recording. Its ids are new, and the same wherever a recorded id occurs.

    Attributes:
        number: 0 for the first.
        shift_ns: What is added to a recorded time.
        key: Key of the ids; different for each loop of each run.
    """

    number: int
    shift_ns: int
    key: bytes

    def time(self, recorded_ns: int) -> int:
        """Return when something happens in this loop; 0, which is unset in OTLP, stays 0."""
        return recorded_ns + self.shift_ns if recorded_ns else 0

    def trace_id(self, recorded: bytes) -> bytes:
        """Return the trace id of this loop for a recorded one."""
        return self._digest(b"trace", recorded, 16)

    def span_id(self, recorded: bytes) -> bytes:
        """Return the span id of this loop for a recorded one; that of a root stays empty."""
        return self._digest(b"span", recorded, 8) if recorded else b""

    def request_id(self, recorded: str) -> str:
        """Return the client's request id of this loop for a recorded one."""
        return f"{recorded}-x{self._digest(b'request', b'', 4).hex()}"

    def _digest(self, kind: bytes, recorded: bytes, size: int) -> bytes:
        return hashlib.blake2b(recorded, digest_size=size, key=self.key, person=kind).digest()


@dataclass(frozen=True, slots=True)
class Schedule:
    """Loops end to end: ``before`` of them in the past, then one after the other.

    Attributes:
        recorded_ns: When the recorded run began.
        period_ns: Length of a loop.
        live_ns: When the first loop in real time begins.
        before: Whole loops before that one.
        seed: Makes the ids differ from those of another run.
    """

    recorded_ns: int
    period_ns: int
    live_ns: int
    before: int
    seed: str

    @classmethod
    def of(cls, recording: Recording, *, live_ns: int, before: int) -> Schedule:
        """Make the schedule of a recording; two runs that begin at two times share no id."""
        return cls(recording.start_ns, recording.period_ns, live_ns, before, str(live_ns))

    def loop(self, number: int) -> Loop:
        """Return one loop."""
        start_ns = self.live_ns + (number - self.before) * self.period_ns
        return Loop(number, start_ns - self.recorded_ns, f"{self.seed}/{number}".encode())

    def position(self, now_ns: int) -> tuple[int, int]:
        """Return the number of the present loop, and the recorded time that it has come to."""
        passed, offset = divmod(now_ns - self.live_ns, self.period_ns)
        return self.before + passed, self.recorded_ns + offset

    def loops(self, now_ns: Callable[[], int]) -> Iterator[Loop]:
        """Yield the loops in order, without end.

        After the back-dated ones, a loop that ended more than a period ago is left out: when
        nothing could be delivered for long, or the machine slept, there is no flood.
        """
        number = 0
        while True:
            yield self.loop(number)
            number += 1
            if number > self.before:
                number = max(number, self.position(now_ns())[0] - 1)
