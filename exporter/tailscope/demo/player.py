"""Plays a recording: every event when it is due, to the one who waits for it."""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import count

from tailscope.demo.recording import Recording
from tailscope.demo.replay import Replay
from tailscope.demo.schedule import Pass, Schedule
from tailscope.demo.sender import Sender, SendError, Unavailable
from tailscope.launch.clock import Clock

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


class Track:
    """One kind of event, delivered in order. What is due already is delivered at once.

    Args:
        name: What it carries, for the log.
        passes: Gives the passes, in order.
        events: Gives the events of a pass: when each is due, UTC nanoseconds, and what to send.
        sender: Takes the events.
        clock: Says what is due, and when to stop.
    """

    def __init__(
        self,
        name: str,
        passes: Callable[[], Iterator[Pass]],
        events: Callable[[Pass], Iterable[tuple[int, bytes]]],
        sender: Sender,
        clock: Clock,
    ) -> None:
        self.name = name
        self._passes = passes
        self._events = events
        self._sender = sender
        self._clock = clock

    def run(self) -> None:
        """Deliver events until the clock is stopped."""
        for due_ns, event in self._due():
            if not self._clock.reach(due_ns) or not self._deliver(event):
                return

    def _due(self) -> Iterator[tuple[int, bytes]]:
        """Yield the events of all passes in order: what begins in one may end in the next."""
        waiting: list[tuple[int, int, bytes]] = []
        numbers = count()
        for one in self._passes():
            while waiting and waiting[0][0] <= one.begins_ns:
                due_ns, _, event = heapq.heappop(waiting)
                yield due_ns, event
            for due_ns, event in self._events(one):
                heapq.heappush(waiting, (due_ns, next(numbers), event))
        for due_ns, _, event in sorted(waiting):
            yield due_ns, event

    def _deliver(self, event: bytes) -> bool:
        """Deliver one event, as often as it takes; return False if the clock was stopped."""
        pause = 0.0
        while not self._clock.stopped:
            try:
                self._sender.send(event)
            except Unavailable as error:
                if not pause:
                    log.info("%s: %s; trying again", self.name, error)
                pause = min(max(pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
                self._clock.wait(pause)
            except SendError as error:
                log.warning("%s: an event was refused and left out: %s", self.name, error)
                return True
            else:
                return True
        return False


class Player:
    """Plays spans to an OTLP receiver and gateway rows to a file, each in its own thread.

    Args:
        recording: What is played.
        schedule: When.
        otlp: Takes OTLP trace requests.
        gateway: Takes request records as JSON lines.
        clock: Stopped by ``stop``.
    """

    def __init__(
        self,
        recording: Recording,
        schedule: Schedule,
        otlp: Sender,
        gateway: Sender,
        clock: Clock,
    ) -> None:
        replay = Replay(recording)

        def passes() -> Iterator[Pass]:
            return schedule.passes(clock.now_ns)

        self.tracks = (
            Track("spans", passes, replay.exports, otlp, clock),
            Track("gateway rows", passes, replay.rows, gateway, clock),
        )
        self._senders = (otlp, gateway)
        self._clock = clock
        self._threads = [
            threading.Thread(target=track.run, name=f"player {track.name}", daemon=True)
            for track in self.tracks
        ]

    def start(self) -> None:
        """Begin to play."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the clock, end what is under way and wait for the threads. Call after ``start``."""
        self._clock.stop()
        for sender in self._senders:
            sender.close()
        for thread in self._threads:
            thread.join(timeout=1.0)
