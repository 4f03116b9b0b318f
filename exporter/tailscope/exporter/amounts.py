"""What requests of one tenant asked of a server, by counter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from tailscope.records.record import RequestRecord

Request = tuple[RequestRecord, RequestRecord]
"""The row that knows more, and the one that may know the rest; the same if there is no other."""

_RETRIES, _SLOT = ("request_retries_total",), ("tenant_slot_seconds_total",)
_TENANT_OUTPUT = ("tenant_output_tokens_total",)
_TENANT_INPUT = {
    cached: ("tenant_input_tokens_total", cached) for cached in ("yes", "no", "unknown")
}

_own: Callable[[RequestRecord], tuple[Any, ...]] = attrgetter(
    "outcome",
    "attempt",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "prefill_seconds",
    "decode_seconds",
)


def seconds(requests: Iterable[Request]) -> float:
    """Add up the time in the batch; where that is not known, from arrival to the end."""
    total = 0.0
    for first, other in requests:
        prefill, decode = first.prefill_seconds, first.decode_seconds
        if prefill is not None and decode is not None:
            total += prefill + decode
        else:
            alone = first.total_seconds
            total += (other.total_seconds if alone is None else alone) or 0.0
    return total


def amounts(requests: Iterable[Request]) -> dict[tuple[str, ...], float | None]:
    """Return what requests of one tenant asked of a server, by counter; None where not known.

    A counter is its name, without prefix, and its further label values.
    """
    rows = [_own(first) if first is other else _told(first, other) for first, other in requests]
    outcomes, attempts, sent, cached, made, prefill, decode = zip(*rows, strict=True)
    slots = [
        None if one is None or two is None else one + two
        for one, two in zip(prefill, decode, strict=True)
    ]
    retries = sum([1 for attempt in attempts if attempt is not None and attempt > 1])
    return {
        **{("requests_total", one or "unknown"): outcomes.count(one) for one in set(outcomes)},
        _RETRIES: retries or None,
        **_input(sent, cached),
        _TENANT_OUTPUT: _sum(made),
        _SLOT: _sum(slots),
    }


def _sum(column: Iterable[float | None]) -> float | None:
    """Add what is known; None if nothing is."""
    known = [value for value in column if value is not None]
    return sum(known) if known else None


def _input(
    sent: Sequence[int | None], cached: Sequence[int | None]
) -> dict[tuple[str, ...], float | None]:
    """Share out prompt tokens: cached, not cached, and those of which it is not known."""
    if not any(one is not None for one in cached):
        return {_TENANT_INPUT["unknown"]: _sum(sent)}
    pairs = [(one, two) for one, two in zip(sent, cached, strict=True) if one is not None]
    known = [(one, two) for one, two in pairs if two is not None]
    return {
        _TENANT_INPUT["unknown"]: _sum([one for one, two in pairs if two is None]),
        _TENANT_INPUT["yes"]: _sum([two for _, two in known]),
        _TENANT_INPUT["no"]: _sum([max(one - two, 0) for one, two in known]),
    }


def _told(first: RequestRecord, other: RequestRecord) -> tuple[Any, ...]:
    """Put together what the two sides of a request know, as ``_own`` has it."""
    given_up = other.outcome not in (None, "ok")
    return (
        other.outcome if given_up else first.outcome or other.outcome,
        max(first.attempt or 1, other.attempt or 1),
        first.input_tokens if first.input_tokens is not None else other.input_tokens,
        first.cached_tokens if first.cached_tokens is not None else other.cached_tokens,
        first.output_tokens if first.output_tokens is not None else other.output_tokens,
        first.prefill_seconds,
        first.decode_seconds,
    )
