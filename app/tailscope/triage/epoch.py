"""Where an engine came back as another one: a restart after which the same work costs otherwise.

Model, weights and settings of an engine change only by a restart, and a restart leaves a pause in
which nothing runs. An engine with little to do pauses as well, but none of its pauses is far longer
than the others. So where one is, costs are fitted before and after it, and each is asked for the
decodes of the other side: if both sides say that the other was slower, or faster, by the same
token, there are two engines, which have not one cost and must not be compared.

Without a pause, an engine that is slower from some time on is a slow engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tailscope.triage.cost import activity, expected_decode, fit
from tailscope.triage.work import Floats, Ints, Work

PAUSE = 5.0
"""Seconds: a server of language models does not start faster, even one that only slept."""

LONGER = 3.0
"""How far a pause has to stand out among the others."""

OTHER = 1.25
"""Factor between the costs before and after from which they are another engine's."""

FEWEST = 50
"""Requests of a time that has costs of its own."""

_USUAL = 5
"""The longest pause that is still one of many: the fifth."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """An engine from a restart on.

    Attributes:
        server: Engine instance.
        model: Served model.
        begin: When its first request started, seconds after the origin.
        pause: Seconds before that in which nothing ran.
        slower: Seconds of a decode, over what the engine before would have needed.
    """

    server: str
    model: str
    begin: float
    pause: float
    slower: float


def parted(work: Work) -> tuple[list[Work], list[Epoch]]:
    """The requests of an engine instance, apart for each time that has a cost of its own."""
    edges = _edges(work)
    if len(edges) == 2:
        return [work], []
    cuts, epochs = [0], []
    for place, end in pairwise(edges[1:]):
        before = work.take(np.arange(cuts[-1], place))
        after = work.take(np.arange(place, end))
        slower = _slower(before, after)
        if slower is not None:
            begin = float(after.start.min())
            pause = begin - float(before.done.max())
            epochs.append(Epoch(work.server, work.model, begin, pause, slower))
            cuts.append(place)
    return [work.take(np.arange(low, high)) for low, high in pairwise([*cuts, len(work)])], epochs


def _edges(work: Work) -> list[int]:
    """Where to cut: at unusually long pauses, with enough requests between them."""
    edges = [0]
    for place in _pauses(work).tolist():
        if place - edges[-1] >= FEWEST and len(work) - place >= FEWEST:
            edges.append(place)
    return [*edges, len(work)]


def _pauses(work: Work) -> Ints:
    """Positions of the requests that came after an unusually long pause."""
    if len(work) < 2 * FEWEST:
        return np.empty(0, dtype=np.int64)
    # A gateway takes requests while the engine is away: what counts is when the next one starts.
    begin = np.minimum.accumulate(work.start[::-1])[::-1]
    idle: Floats = begin[1:] - np.maximum.accumulate(work.done)[:-1]
    usual = float(np.partition(idle, -_USUAL)[-_USUAL])
    found: Ints = np.flatnonzero(idle >= max(PAUSE, LONGER * usual)) + 1
    return found


def _slower(before: Work, after: Work) -> float | None:
    """Factor between the costs of two times; None where they may be one engine's."""
    there, back = _ratio(before, after), _ratio(after, before)
    if there is None or back is None or not _apart(there, back):
        return None
    return there


def _apart(there: float, back: float) -> bool:
    """Whether both directions say the same: slower there, faster back, or the reverse."""
    low, high = min(there, back), max(there, back)
    return high >= OTHER and low <= 1.0 / OTHER


def _ratio(known: Work, asked: Work) -> float | None:
    """Seconds of decodes over what they would have been by the costs of another time."""
    cost = fit(known, *activity(known))
    expected = expected_decode(asked, cost, *activity(asked))
    use = (asked.steps >= 4) & (asked.decode > 0) & (expected > 0)
    if use.sum() < FEWEST // 2:
        return None
    return float(np.median(asked.decode[use] / expected[use]))
