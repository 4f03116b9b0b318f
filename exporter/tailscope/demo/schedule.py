"""When each piece of a recording is played, and the identities of each pass over one."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from tailscope.demo.recording import Piece, Recording

_LATE_NS = 60 * 10**9
"""What ended longer ago than this, and was not delivered, is left out."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over a piece of a recording.

    Its ids are new, and the same wherever a recorded id occurs.

    Attributes:
        number: 0 for the first.
        piece: What is played.
        shift_ns: What is added to a recorded time.
        key: Key of the ids; different for each pass of each run.
    """

    number: int
    piece: Piece
    shift_ns: int
    key: bytes

    @property
    def begins_ns(self) -> int:
        """When it begins, UTC nanoseconds."""
        return self.piece.start_ns + self.shift_ns

    def time(self, recorded_ns: int) -> int:
        """Return when something happens in this pass; 0, which is unset in OTLP, stays 0."""
        return recorded_ns + self.shift_ns if recorded_ns else 0

    def trace_id(self, recorded: bytes) -> bytes:
        """Return the trace id of this pass for a recorded one."""
        return self._digest(b"trace", recorded, 16)

    def span_id(self, recorded: bytes) -> bytes:
        """Return the span id of this pass for a recorded one; that of a root stays empty."""
        return self._digest(b"span", recorded, 8) if recorded else b""

    def request_id(self, recorded: str) -> str:
        """Return the client's request id of this pass for a recorded one."""
        return f"{recorded}-x{self._digest(b'request', b'', 4).hex()}"

    def _digest(self, kind: bytes, recorded: bytes, size: int) -> bytes:
        return hashlib.blake2b(recorded, digest_size=size, key=self.key, person=kind).digest()


@dataclass(frozen=True, slots=True)
class Schedule:
    """Passes end to end, one round after the other, without end.

    Attributes:
        pieces: What is played in one round.
        round_ns: When a round began, UTC nanoseconds.
        first: Passes from there to the first that is played; negative for the past.
        live_ns: What is due before is sent at once.
        seed: Makes the ids differ from those of another run.
    """

    pieces: tuple[Piece, ...]
    round_ns: int
    first: int
    live_ns: int
    seed: str

    @classmethod
    def of(cls, recording: Recording, *, live_ns: int, history_ns: int) -> Schedule:
        """Make the schedule of a recording; two runs that begin at two times share no id.

        The whole recording has come to its middle when real time begins: what happened in it is
        there to see at once, and is seen to happen.

        Args:
            recording: What is played.
            live_ns: When real time begins, UTC nanoseconds.
            history_ns: Time before that is played at once.
        """
        begun = min(recording.whole.length_ns // 2, history_ns)
        schedule = cls(recording.round, live_ns - begun, 0, live_ns, str(live_ns))
        return replace(schedule, first=schedule._at(live_ns - history_ns)[0])

    @property
    def period_ns(self) -> int:
        """Length of one round."""
        return sum(piece.length_ns for piece in self.pieces)

    def one(self, number: int) -> Pass:
        """Return one pass."""
        rounds, index = divmod(self.first + number, len(self.pieces))
        begins_ns = self.round_ns + rounds * self.period_ns + self._starts()[index]
        piece = self.pieces[index]
        key = f"{self.seed}/{number}".encode()
        return Pass(number, piece, begins_ns - piece.start_ns, key)

    def position(self, now_ns: int) -> tuple[int, int]:
        """Return the number of the present pass, and the recorded time that it has come to."""
        count, recorded_ns = self._at(now_ns)
        return count - self.first, recorded_ns

    def played(self, number: int) -> dict[Piece, int]:
        """Return how often each piece was played before a pass."""
        counts = dict.fromkeys(self.pieces, 0)
        size = len(self.pieces)
        for index, piece in enumerate(self.pieces):
            begin = self.first + (index - self.first) % size
            counts[piece] += len(range(begin, self.first + number, size))
        return counts

    def passes(self, now_ns: Callable[[], int]) -> Iterator[Pass]:
        """Yield the passes in order, without end.

        After the back-dated ones, those that ended long ago are left out: when nothing could be
        delivered, or the machine slept, there is no flood.
        """
        number, live = 0, self.position(self.live_ns)[0]
        while True:
            yield self.one(number)
            number += 1
            if number > live:
                number = max(number, self.position(now_ns() - _LATE_NS)[0])

    def _starts(self) -> list[int]:
        """When each piece begins, nanoseconds after the begin of a round; and its end."""
        return list(accumulate((piece.length_ns for piece in self.pieces), initial=0))

    def _at(self, now_ns: int) -> tuple[int, int]:
        """Passes since ``round_ns``, and the recorded time that the last has come to."""
        rounds, offset = divmod(now_ns - self.round_ns, self.period_ns)
        starts = self._starts()
        index = bisect_right(starts, offset) - 1
        count = rounds * len(self.pieces) + index
        return count, self.pieces[index].start_ns + offset - starts[index]
