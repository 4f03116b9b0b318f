"""What an engine says of its queue, whichever families it has."""

from __future__ import annotations

from collections.abc import Sequence

from tailscope.catalogue.promql.joins import either, ratio
from tailscope.catalogue.promql.query import Query


def engine_wait(query: Query, by: Sequence[str] | None = None) -> str:
    """Mean wait in the queue, in seconds.

    From the engine's histogram; where it has none, by Little's law: the requests that wait over
    those that end in a second (J. D. C. Little, A Proof for the Queuing Formula L = λW, 1961).
    """
    return either(
        query.mean("engine_queue_seconds", by),
        ratio(
            query.time_mean("engine_requests_waiting", by),
            query.rate("engine_request_seconds", by, suffix="_count"),
        ),
    )
