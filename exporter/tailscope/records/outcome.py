"""How a request ended, told apart by what its source really says.

``queue_timeout`` is a request that was given up for its time before the first token,
``generation_timeout`` one that was given up after it.
"""

from __future__ import annotations

from tailscope.records.record import RequestRecord

_STATUSES = {
    408: "queue_timeout",
    429: "rejected",
    499: "aborted",
    503: "rejected",
    504: "queue_timeout",
}
"""HTTP statuses that say more than that it failed. vLLM and SGLang answer 503 where their queue is
full; 499 is nginx's and LiteLLM's for a client that left."""


def of_status(status: int | None) -> str | None:
    """The outcome that a status tells; None if there is none."""
    if status is None:
        return None
    return _STATUSES.get(status, "error" if status >= 400 else "ok")


def of_timeout(record: RequestRecord) -> str:
    """Which of the two timeouts it was: a status of 200 is sent with the first token or before."""
    begun = record.ttft_seconds is not None or record.status == 200
    return "generation_timeout" if begun else "queue_timeout"
