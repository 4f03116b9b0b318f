"""GPUs as plain data for JSON. What is not known has no key."""

from __future__ import annotations

import dataclasses
from typing import Any

from tailscope.triage.gpusentence import statements
from tailscope.triage.hardware import Coincidence, Gpu, Span, Throttle, Xid
from tailscope.triage.words import iso

MAX_TIMES = 100
"""Spans of one kind that are listed."""


def gpu(found: Gpu) -> dict[str, Any]:
    """Lay one GPU out: seconds, shares 0-1, base units, times ISO 8601 in UTC."""
    who = {"uuid": found.uuid, "model": found.model, "gi": found.instance, "profile": found.profile}
    data: dict[str, Any] = {
        "name": found.name,
        "gpu": found.index,
        **{name: value for name, value in who.items() if value},
        "from": iso(found.start_ns),
        "to": iso(found.end_ns),
        "watched_seconds": found.watched_seconds,
        "sentences": list(statements(found)),
        "activity": {name: dataclasses.asdict(level) for name, level in found.activity.items()},
        "missing_activity": list(found.missing),
        **{name: dataclasses.asdict(level) for name, level in found.readings.items()},
        "throttled": [_throttle(one) for one in found.throttles],
        "xids": [_xid(one) for one in found.xids[:MAX_TIMES]],
        "beside_slow": [_coincidence(one) for one in found.beside],
    }
    if not found.instance:
        data["lost"] = {
            "seconds": found.lost_seconds,
            "at_end": found.lost_at_end,
            "spans": _spans(found.lost),
        }
    if found.bandwidth is not None:
        data["bandwidth_bound"] = {
            **dataclasses.asdict(found.bandwidth),
            "seconds": found.bandwidth.seconds,
            "spans": _spans(found.bandwidth.spans),
        }
    return data


def gpu_evidence(found: Gpu) -> list[dict[str, Any]]:
    """Why a GPU may have to do with the slow requests; empty if nothing says so."""
    return [_coincidence(item) for item in found.beside if item.suspect]


def _throttle(found: Throttle) -> dict[str, Any]:
    return {
        "cause": found.cause.name,
        "kind": str(found.cause.weight),
        "seconds": found.seconds,
        "reasons": dict(found.reasons),
        "spans": _spans(found.spans),
    }


def _spans(found: tuple[Span, ...]) -> list[dict[str, Any]]:
    return [
        {"from": iso(span.start_ns), "to": iso(span.end_ns), "seconds": span.seconds}
        for span in found[:MAX_TIMES]
    ]


def _xid(found: Xid) -> dict[str, Any]:
    return {
        "xid": found.code,
        "action": found.action,
        "after": iso(found.start_ns),
        "time": iso(found.time_ns),
        "count": found.count,
    }


def _coincidence(found: Coincidence) -> dict[str, Any]:
    data = {
        "trouble": str(found.trouble),
        "cause": found.cause or None,
        "slow_requests": found.requests,
        "of": found.slow,
        "share_slow": found.share_slow,
        "share_window": found.share,
    }
    return {name: value for name, value in data.items() if value is not None}
