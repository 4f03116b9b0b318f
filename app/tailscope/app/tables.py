"""Tables of a finding, as frames with readable columns. Seconds stay numbers, so that they sort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from tailscope.triage.finding import Finding
from tailscope.triage.neighbours import Neighbourhood, held_by_tenant
from tailscope.triage.quantiles import LEVELS, Quantile, Quantiles
from tailscope.triage.verdict import Suspect
from tailscope.triage.words import seconds

_SECONDS = "%.3f s"
_HEAT = "temperature_celsius"
_LABELS = {"total": "total", "ttft": "time to first token", "client": "total at the client"}


def _levels(values: Quantiles | None) -> dict[str, float | None]:
    if values is None:
        return dict.fromkeys(LEVELS)
    return {name: getattr(values, name).value for name in LEVELS}


def interval(level: Quantile) -> str:
    """The 95 % interval of a percentile in words; empty if there is none."""
    if level.low is None:
        return f"to {seconds(level.high)}" if level.high is not None else ""
    if level.high is None:
        return f"from {seconds(level.low)}"
    return f"{seconds(level.low).removesuffix(' s')} to {seconds(level.high)}"


def known(table: pd.DataFrame) -> pd.DataFrame:
    """The columns that hold anything: what nobody knows needs no column."""
    return table.dropna(axis="columns", how="all")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def by_stage(finding: Finding) -> pd.DataFrame:
    """Percentiles of the whole and of each stage."""
    latency = finding.latency
    whole = {
        _LABELS[name]: values
        for name, values in (
            ("total", latency.total),
            ("ttft", latency.ttft),
            ("client", latency.client),
        )
    }
    return pd.DataFrame(
        [
            {
                "part": name,
                **_levels(values),
                "interval": interval(values.p99),
                "requests": values.count,
                "slow": finding.slow.by_stage.get(name) if finding.slow.requests else None,
            }
            for name, values in {**whole, **latency.stages}.items()
            if values is not None
        ],
        columns=["part", *LEVELS, "interval", "requests", "slow"],
    )


def by_stage_columns() -> dict[str, Any]:
    """Titles, units and help of ``by_stage``."""
    number = st.column_config.NumberColumn
    return {
        "part": st.column_config.TextColumn("Part", pinned=True),
        **{name: number(name, format=_SECONDS) for name in LEVELS},
        "interval": st.column_config.TextColumn(
            "p99, 95 % interval",
            help="From order statistics. `from` says that there are too few requests for an "
            "upper bound.",
        ),
        "requests": number("Requests", format="localized"),
        "slow": number(
            "Slow seconds",
            format="%.1f s",
            help="Time of the slow requests above what they would take alone.",
        ),
    }


def by_tenant(finding: Finding, suspects: Sequence[Suspect] = ()) -> pd.DataFrame:
    """Load and percentiles of each tenant, and its part in the slow seconds of the others."""
    shares = {
        one.name: (one.ledger_share, max(one.removal_share, 0.0))
        for one in suspects
        if one.kind == "tenant"
    }
    return pd.DataFrame(
        [
            {
                "tenant": load.name,
                "requests": load.requests,
                "slow": load.slow,
                **_levels(load.total),
                "ttft_p99": None if load.ttft is None else load.ttft.p99.value,
                "input_tokens": load.input_tokens,
                "output_tokens": load.output_tokens,
                "slot_share": _percent(load.slot_share),
                "held": _percent(shares[load.name][0]) if load.name in shares else None,
                "saves": _percent(shares[load.name][1]) if load.name in shares else None,
            }
            for load in finding.tenants
        ],
        columns=[
            *("tenant", "requests", "slow", *LEVELS, "ttft_p99"),
            *("input_tokens", "output_tokens", "slot_share", "held", "saves"),
        ],
    )


def by_tenant_columns() -> dict[str, Any]:
    """Titles, units and help of ``by_tenant``."""
    number = st.column_config.NumberColumn
    share = st.column_config.ProgressColumn
    return {
        "tenant": st.column_config.TextColumn("Tenant", pinned=True),
        "requests": number("Requests", format="localized"),
        "slow": number("Slow", format="localized"),
        **{name: number(name, format=_SECONDS, help="Total time.") for name in LEVELS},
        "ttft_p99": number("TTFT p99", format=_SECONDS),
        "input_tokens": number("Tokens in", format="compact"),
        "output_tokens": number("Tokens out", format="compact"),
        "slot_share": share(
            "Batch",
            format="%.0f %%",
            min_value=0,
            max_value=100,
            width="small",
            help="Part of the places in the batch that it held, over the window.",
        ),
        "held": share(
            "Held",
            format="%.0f %%",
            min_value=0,
            max_value=100,
            width="small",
            help="Part of the slow seconds of the others in which its work held the engine.",
        ),
        "saves": share(
            "Without it",
            format="%.0f %%",
            min_value=0,
            max_value=100,
            width="small",
            help="Part of the slow seconds of the others that would not have been without it. "
            "A large tenant has a large part; it is accused only if its load changed, too.",
        ),
    }


def slow_requests(finding: Finding) -> pd.DataFrame:
    """The slow requests, the worst first; the index is the key."""
    return pd.DataFrame(
        [
            {
                "request": request.name,
                "tenant": request.tenant,
                "arrived": pd.Timestamp(request.arrived_ns, tz="UTC"),
                "total": request.total_seconds,
                "excess": request.excess_seconds,
                "stage": request.stage,
                **{
                    f"{stage}_seconds": request.stages.get(stage)
                    for stage in finding.latency.stages
                },
                "input_tokens": request.input_tokens,
                "output_tokens": request.output_tokens,
            }
            for request in finding.slow.slowest
        ],
        index=pd.Index([request.key for request in finding.slow.slowest], dtype="str"),
    )


def slow_requests_columns(finding: Finding) -> dict[str, Any]:
    """Titles, units and help of ``slow_requests``."""
    number = st.column_config.NumberColumn
    text = st.column_config.TextColumn
    return {
        "request": text("Request", pinned=True, width=150),
        "tenant": text("Tenant"),
        "arrived": st.column_config.DatetimeColumn(
            "Arrived (UTC)", format="HH:mm:ss", timezone="UTC"
        ),
        "total": number("Total", format=_SECONDS),
        "excess": number("Excess", format=_SECONDS, help="Time above what it would take alone."),
        "stage": text("Stage", help="Stage with the most excess."),
        **{
            f"{stage}_seconds": number(stage.capitalize(), format=_SECONDS)
            for stage in finding.latency.stages
        },
        "input_tokens": number("Tokens in", format="localized"),
        "output_tokens": number("Tokens out", format="localized"),
    }


def beside(around: Neighbourhood) -> pd.DataFrame:
    """Who held the batch beside one request."""
    return held_by_tenant(around)[["tenant", "requests", "held_waiting_seconds", "held_seconds"]]


def beside_columns() -> dict[str, Any]:
    """Titles, units and help of ``beside``."""
    number = st.column_config.NumberColumn
    return {
        "tenant": st.column_config.TextColumn("Tenant", pinned=True),
        "requests": number("Requests beside it", format="localized"),
        "held_waiting_seconds": number(
            "Held while it waited",
            format="%.2f s",
            help="Places in the batch times seconds, until this request had its own place.",
        ),
        "held_seconds": number("Held while it was there", format="%.2f s"),
    }


def by_gpu(finding: Finding) -> pd.DataFrame:
    """Activity and troubles of each GPU."""
    return pd.DataFrame(
        [
            {
                "gpu": gpu.name,
                "model": gpu.model or None,
                **{
                    f"{name}_{what}": _percent(getattr(level, what))
                    for name, level in gpu.activity.items()
                    for what in ("mean", "p95")
                },
                **{name: level.mean for name, level in gpu.readings.items()},
                "hottest": gpu.readings[_HEAT].highest if _HEAT in gpu.readings else None,
                "held": gpu.faulty_seconds,
                "lost": None if gpu.instance else gpu.lost_seconds,
            }
            for gpu in finding.gpus
        ]
    ).reindex(columns=list(by_gpu_columns()))


def by_gpu_columns() -> dict[str, Any]:
    """Titles, units and help of ``by_gpu``."""
    number = st.column_config.NumberColumn
    shares = {
        "sm": ("SM", "Share of the multiprocessors' cycles with work resident."),
        "dram": ("DRAM", "Share of the memory's cycles that moved data; about 80 % is the most."),
        "tensor": ("Tensor", "Share of the tensor cores' cycles in use."),
    }
    return {
        "gpu": st.column_config.TextColumn("GPU", pinned=True),
        "model": st.column_config.TextColumn("Model"),
        **{
            f"{name}_{what}": number(f"{title} {what}", format="%.0f %%", help=text)
            for name, (title, text) in shares.items()
            for what in ("mean", "p95")
        },
        "power_watts": number("Power", format="%.0f W", help="Mean."),
        "hottest": number("Hottest", format="%.0f °C", help="Highest temperature of the GPU."),
        "held": number(
            "Held down",
            format="%.1f s",
            help="By heat, power brake or the hardware itself; not by a power limit.",
        ),
        "lost": number("Lost", format="%.1f s", help="It was known and could not be read."),
    }
