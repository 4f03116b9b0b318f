"""What went wrong with a GPU, from its stored samples: throttled, lost, XID events."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd

from tailscope.triage.counters import Reads, held, spans, steps
from tailscope.triage.hardware import Cause, Span, Throttle, Weight, Xid
from tailscope.triage.phrase import tell

CAUSES: tuple[Cause, ...] = (
    Cause("heat", ("sw_thermal", "hw_thermal", "thermal"), tell("held down by heat"), Weight.FAULT),
    Cause(
        "power_brake",
        ("hw_power_brake",),
        tell("held down by the power supply of its machine"),
        Weight.FAULT,
    ),
    Cause(
        "hardware",
        ("hw_slowdown",),
        tell("held down by its hardware, which does not tell why,"),
        Weight.FAULT,
        beyond=("hw_thermal", "hw_power_brake"),
    ),
    Cause("power_limit", ("sw_power_cap",), tell("held at its power limit"), Weight.LIMIT),
    Cause(
        "board_limit",
        ("board_limit", "reliability"),
        tell("held at a limit of its board"),
        Weight.LIMIT,
    ),
    Cause("sync_boost", ("sync_boost",), tell("held at the clock of other GPUs"), Weight.LIMIT),
    Cause("setting", ("application_clocks",), tell("held at clocks that were set"), Weight.SETTING),
)
"""What the reasons of the driver mean. A GPU under full load is at its power limit for much of the
time, which is what the limit is for; heat and power brakes are not."""


def losses(ups: pd.DataFrame, start_ns: int, end_ns: int) -> tuple[tuple[Span, ...], bool]:
    """When a GPU could not be read: from the read that failed to the one that did not."""
    ordered = ups.sort_values("time_ns", kind="stable")
    times = ordered["time_ns"].to_numpy(dtype=np.int64)
    down = ordered["value"].to_numpy(dtype=np.float64) < 0.5
    change = np.flatnonzero(np.diff(np.r_[False, down].astype(np.int8)))
    found = []
    for begin, until in zip(change[::2], [*change[1::2], None][: len(change[::2])], strict=True):
        low = max(int(times[begin]), start_ns)
        high = min(end_ns if until is None else int(times[until]), end_ns)
        if high > low or (until is None and high == low):
            found.append(Span(low, high, (high - low) / 1e9))
    inside = times <= end_ns
    return tuple(found), bool(inside.any() and down[inside][-1])


def throttles(rows: pd.DataFrame, reads: Reads, start_ns: int, end_ns: int) -> tuple[Throttle, ...]:
    """For how long clocks were held down, by cause, from the counters of seconds by reason."""
    by_reason = {
        str(reason): held(steps(series, reads), start_ns, end_ns)
        for reason, series in rows.groupby("reason", observed=True)
    }
    known = {reason for cause in CAUSES for reason in cause.reasons}
    others = (
        Cause(reason, (reason,), tell("held down ({reason})", reason=reason), Weight.LIMIT)
        for reason in by_reason.keys() - known
    )
    found = [throttle for cause in (*CAUSES, *others) if (throttle := _throttle(cause, by_reason))]
    return tuple(sorted(found, key=lambda throttle: -throttle.seconds))


def _throttle(cause: Cause, by_reason: Mapping[str, pd.DataFrame]) -> Throttle | None:
    parts = {name: by_reason[name] for name in cause.reasons if name in by_reason}
    if not parts:
        return None
    rises = _longest(list(parts.values()))
    if covered := [by_reason[name] for name in cause.beyond if name in by_reason]:
        less = rises["end"].map(_longest(covered).set_index("end")["rise"]).fillna(0.0)
        rises = rises.assign(rise=rises["rise"] - less)
        rises = rises[rises["rise"] > 0]
    if rises.empty:
        return None
    return Throttle(
        cause,
        float(rises["rise"].sum()),
        MappingProxyType(
            {name: float(part["rise"].sum()) for name, part in parts.items() if len(part)}
        ),
        spans(rises),
    )


def _longest(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """Of the reasons that held in one step, the one that held the longest."""
    by = pd.concat(parts).groupby("end", sort=True)
    return by.agg(start=("start", "max"), rise=("rise", "max")).reset_index()


def xids(rows: pd.DataFrame, reads: Reads, start_ns: int, end_ns: int) -> tuple[Xid, ...]:
    """Which XID events came, from their counters by code and class of action."""
    found = [
        Xid(int(start), int(end), str(code), str(action), round(rise))
        for (code, action), series in rows.groupby(["xid", "action"], observed=True)
        for start, end, rise, _ in steps(series, reads).itertuples(index=False)
        if start_ns <= end <= end_ns and round(rise) > 0
    ]
    return tuple(sorted(found, key=lambda event: (event.time_ns, event.code)))
