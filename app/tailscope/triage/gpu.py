"""From stored samples of GPUs to what each of them went through.

Missing series are told as missing: a GPU without SM activity did not idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pandas as pd

from tailscope.triage.counters import Reads, spans
from tailscope.triage.hardware import (
    NOTHING,
    Bandwidth,
    Gpu,
    Level,
    Span,
)
from tailscope.triage.scope import Scope
from tailscope.triage.stages import Flags, floats
from tailscope.triage.troubles import losses, throttles, xids

_UP = "tailscope_gpu_up"
_THROTTLED = "tailscope_gpu_throttled_seconds_total"
_XIDS = "tailscope_gpu_xid_errors_total"

ACTIVITY: Mapping[str, str] = MappingProxyType(
    {
        "sm": "tailscope_gpu_sm_active_ratio",
        "dram": "tailscope_gpu_dram_active_ratio",
        "tensor": "tailscope_gpu_tensor_active_ratio",
    }
)
"""Shares of cycles, by their short names."""

_READINGS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("tailscope_gpu_power_watts", ""): "power_watts",
        ("tailscope_gpu_temperature_celsius", "gpu"): "temperature_celsius",
        ("tailscope_gpu_temperature_celsius", "memory"): "memory_temperature_celsius",
        ("tailscope_gpu_clock_hertz", "sm"): "sm_clock_hertz",
    }
)
"""Metric and its sensor or domain to the name of a reading."""

METRICS = (_UP, _THROTTLED, _XIDS, *ACTIVITY.values(), *sorted({name for name, _ in _READINGS}))
"""What is read from the store."""

LOOKBACK_NS = 60 * 10**9
"""Counters are read from so long before a time, to know where they stood at its beginning."""

HIGH_DRAM = 0.7
"""From here on the memory is near its limit: about 0.8 is the most that is reached in practice,
after NVIDIA's guide to the profiling metrics of DCGM (field 1005)."""

LOW_TENSOR = 0.5
"""Arithmetic is not what limits where the tensor cores are in use for less than this part of the
memory's share. SM activity does not tell: a multiprocessor whose warps wait for memory is active.
"""

MIN_SAMPLES = 10
"""With fewer samples nothing is said about bandwidth."""

Ints = npt.NDArray[np.int64]

_LABELS = ("gpu", "uuid", "model_name", "gi", "profile", "reason", "xid", "action")
_SPOTS = ("sensor", "domain")


def period(frame: pd.DataFrame, scope: Scope) -> tuple[int, int] | None:
    """The time of which GPU samples are wanted, UTC nanoseconds; None if there is none.

    That of the scope. One that is open at its begin ends with the last of its requests: the GPUs
    may have been read for weeks since. One that is open at its end alone goes up to now.
    """
    window = scope.window(frame)
    if scope.start_ns is not None:
        return scope.start_ns, 2**63 - 1 if scope.end_ns is None else scope.end_ns
    if not window.any():
        return None
    arrived = frame["arrived_ns"].to_numpy(dtype=np.int64)[window]
    took = np.nan_to_num(floats(frame, "total_seconds")[window])
    last = int((arrived + (took * 1e9).astype(np.int64)).max()) + 1
    return int(arrived.min()), last if scope.end_ns is None else min(last, scope.end_ns)


def examine(samples: pd.DataFrame, start_ns: int, end_ns: int) -> tuple[Gpu, ...]:
    """Say what each GPU went through.

    Args:
        samples: ``METRICS`` as the reader returns them, from ``LOOKBACK_NS`` before the time on.
        start_ns: Begin of the time.
        end_ns: Its end.

    Returns:
        GPUs by number, each before its MIG instances; none that was not read in the time.
    """
    frame = _labelled(samples)
    if not (frame["time_ns"] >= start_ns).any():
        return ()
    end_ns = min(end_ns, int(frame["time_ns"].max()))
    found = [
        gpu
        for _, rows in frame.groupby("who", sort=False, observed=True)
        if (rows["time_ns"] >= start_ns).any()
        for gpu in _board(rows, start_ns, end_ns)
    ]
    return tuple(sorted(found, key=_order))


def _labelled(samples: pd.DataFrame) -> pd.DataFrame:
    """The samples with all labels, empty where a series has none.

    Texts become categories: they are compared a hundred times.
    """
    labels = {
        name: samples[name].fillna("") if name in samples else "" for name in (*_LABELS, *_SPOTS)
    }
    frame = samples[["time_ns", "metric", "value"]].assign(**labels)
    who = frame["uuid"].where(frame["uuid"] != "", frame["gpu"])
    spot = frame.pop("sensor") + frame.pop("domain")
    frame = frame.assign(who=who, spot=spot)
    return frame.astype({name: "category" for name in ("metric", *_LABELS, "who", "spot")})


def _order(gpu: Gpu) -> tuple[int, str, int, str]:
    instance = int(gpu.instance) if gpu.instance.isdecimal() else -1
    return int(gpu.index) if gpu.index.isdecimal() else 1 << 30, gpu.uuid, instance, gpu.instance


def _board(rows: pd.DataFrame, start_ns: int, end_ns: int) -> Iterator[Gpu]:
    """A GPU and its instances, which are read together."""
    ups = rows[rows["metric"] == _UP]
    # Without a word on whether it could be read, its values say when it was.
    reads = Reads.of((ups if len(ups) else rows)["time_ns"].to_numpy(dtype=np.int64))
    good = ups[ups["value"] > 0] if len(ups) else rows
    # A GPU that is lost has no counters of its driver: they did not go back to 0.
    read = Reads(good["time_ns"].drop_duplicates().to_numpy(dtype=np.int64), reads.gap_ns)
    alive = bool(_inside(good, start_ns, end_ns).size)
    lost, lost_at_end = losses(ups, start_ns, end_ns)
    instances = sorted(set(rows["gi"]) - {""})
    latest = rows.iloc[-1]
    for instance in ("", *instances):
        own = rows[rows["gi"] == instance]
        activity = _activity(own, start_ns, end_ns)
        # A GPU that is split has its activity by instance.
        told = activity or not (instances and not instance)
        yield Gpu(
            index=str(latest["gpu"]),
            uuid=str(latest["uuid"]),
            model=next(filter(None, reversed(own["model_name"].tolist())), ""),
            instance=instance,
            profile=next(filter(None, reversed(own["profile"].tolist())), ""),
            start_ns=start_ns,
            end_ns=end_ns,
            watched_seconds=reads.watched(start_ns, end_ns),
            activity=activity,
            readings=_readings(own, start_ns, end_ns),
            missing=tuple(n for n in ACTIVITY if n not in activity) if told and alive else (),
            throttles=throttles(own[own["metric"] == _THROTTLED], read, start_ns, end_ns),
            lost=() if instance else lost,
            lost_at_end=lost_at_end and not instance,
            xids=xids(own[own["metric"] == _XIDS], reads, start_ns, end_ns),
            bandwidth=_bandwidth(own, start_ns, end_ns),
        )


def _inside(rows: pd.DataFrame, start_ns: int, end_ns: int) -> pd.DataFrame:
    return rows[(rows["time_ns"] >= start_ns) & (rows["time_ns"] <= end_ns)]


def _level(values: pd.Series[float]) -> Level:
    numbers = values.to_numpy(dtype=np.float64)
    return Level(
        float(numbers.mean()), float(np.percentile(numbers, 95)), float(numbers.max()), len(numbers)
    )


def _activity(rows: pd.DataFrame, start_ns: int, end_ns: int) -> Mapping[str, Level]:
    rows = _inside(rows, start_ns, end_ns)
    series = {
        name: rows.loc[rows["metric"] == metric, "value"] for name, metric in ACTIVITY.items()
    }
    found = {name: _level(values) for name, values in series.items() if len(values)}
    return MappingProxyType(found) if found else NOTHING


def _readings(rows: pd.DataFrame, start_ns: int, end_ns: int) -> Mapping[str, Level]:
    rows = _inside(rows, start_ns, end_ns)
    found = {}
    for (metric, where), name in _READINGS.items():
        values = rows.loc[(rows["metric"] == metric) & (rows["spot"] == where), "value"]
        if len(values):
            found[name] = _level(values)
    return MappingProxyType(found)


def _bandwidth(rows: pd.DataFrame, start_ns: int, end_ns: int) -> Bandwidth | None:
    rows = _inside(rows, start_ns, end_ns)
    dram, tensor = (
        rows.loc[rows["metric"] == ACTIVITY[name], ["time_ns", "value"]]
        for name in ("dram", "tensor")
    )
    both = dram.merge(tensor, on="time_ns", suffixes=("_dram", "_tensor")).sort_values("time_ns")
    if len(both) < MIN_SAMPLES:
        return None
    bound = (both["value_dram"] >= HIGH_DRAM) & (
        both["value_tensor"] <= LOW_TENSOR * both["value_dram"]
    )
    return Bandwidth(
        float(bound.mean()),
        float(both["value_dram"].mean()),
        float(both["value_tensor"].mean()),
        len(both),
        _stretches(both["time_ns"].to_numpy(dtype=np.int64), bound.to_numpy(dtype=np.bool_)),
    )


def _stretches(times: Ints, bound: Flags) -> tuple[Span, ...]:
    """When it was so: a sample is of the time since the one before it, but of no gap."""
    apart = np.diff(times)
    usual = 2 * int(np.median(apart))
    start = times - np.minimum(np.concatenate([[usual // 2], apart]), usual)
    held = pd.DataFrame({"start": start, "end": times, "rise": (times - start) / 1e9})
    return spans(held[bound & (times > start)])
