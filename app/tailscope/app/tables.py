"""Tables of a finding, as frames with readable columns. Seconds stay numbers, so that they sort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from tailscope.app.text import say, tenant
from tailscope.triage.finding import Finding, SlowRequest
from tailscope.triage.neighbours import Neighbourhood, held_by_tenant
from tailscope.triage.quantiles import LEVELS, Quantile, Quantiles
from tailscope.triage.verdict import Suspect
from tailscope.triage.words import seconds

_SECONDS = "%.3f s"
_HEAT = "temperature_celsius"
_WHOLE = ("total", "ttft", "client")


def _levels(values: Quantiles | None) -> dict[str, float | None]:
    if values is None:
        return dict.fromkeys(LEVELS)
    return {name: getattr(values, name).value for name in LEVELS}


def interval(level: Quantile) -> str:
    """The 95 % interval of a percentile in words; empty if there is none."""
    if level.low is None:
        return say("table.up_to", high=seconds(level.high)) if level.high is not None else ""
    if level.high is None:
        return say("table.from", low=seconds(level.low))
    low = seconds(level.low).removesuffix(" s")
    return say("table.between", low=low, high=seconds(level.high))


def known(table: pd.DataFrame) -> pd.DataFrame:
    """The columns that hold anything: what nobody knows needs no column."""
    return table.dropna(axis="columns", how="all")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def by_stage(finding: Finding) -> pd.DataFrame:
    """Percentiles of the whole and of each stage."""
    latency = finding.latency
    whole = dict(zip(_WHOLE, (latency.total, latency.ttft, latency.client), strict=True))
    return pd.DataFrame(
        [
            {
                "part": say(f"stage.{name}"),
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
        "part": st.column_config.TextColumn(say("column.part"), pinned=True),
        **{name: number(name, format=_SECONDS) for name in LEVELS},
        "interval": st.column_config.TextColumn(
            say("column.interval"), help=say("column.interval_help")
        ),
        "requests": number(say("column.requests"), format="localized"),
        "slow": number(say("column.slow_seconds"), format="%.1f s", help=say("term.excess")),
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
                "tenant": tenant(load.name),
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
        "tenant": st.column_config.TextColumn(say("column.tenant"), pinned=True),
        "requests": number(say("column.requests"), format="localized"),
        "slow": number(say("column.slow"), format="localized"),
        **{name: number(name, format=_SECONDS, help=say("term.total")) for name in LEVELS},
        "ttft_p99": number(say("column.ttft_p99"), format=_SECONDS, help=say("term.ttft")),
        "input_tokens": number(say("column.tokens_in"), format="compact"),
        "output_tokens": number(say("column.tokens_out"), format="compact"),
        "slot_share": share(
            say("column.batch"),
            format="%.0f %%",
            min_value=0,
            max_value=100,
            width="small",
            help=say("column.batch_help"),
        ),
        "held": share(
            say("column.held"),
            format="%.0f %%",
            min_value=0,
            max_value=100,
            width="small",
            help=say("term.ledger"),
        ),
        "saves": share(
            say("column.without"),
            format="%.0f %%",
            min_value=0,
            max_value=100,
            width="small",
            help=say("term.removal"),
        ),
    }


def slow_requests(finding: Finding, chosen: Sequence[SlowRequest] | None = None) -> pd.DataFrame:
    """The slow requests, or other chosen ones, the worst first; the index is the key."""
    listed = finding.slow.slowest if chosen is None else chosen
    return pd.DataFrame(
        [
            {
                "request": request.name,
                "tenant": tenant(request.tenant),
                "arrived": pd.Timestamp(request.arrived_ns, tz="UTC"),
                "total": request.total_seconds,
                "excess": request.excess_seconds,
                "stage": request.stage and say(f"stage.{request.stage}"),
                **{
                    f"{stage}_seconds": request.stages.get(stage)
                    for stage in finding.latency.stages
                },
                "input_tokens": request.input_tokens,
                "output_tokens": request.output_tokens,
            }
            for request in listed
        ],
        index=pd.Index([request.key for request in listed], dtype="str"),
    )


def slow_requests_columns(finding: Finding) -> dict[str, Any]:
    """Titles, units and help of ``slow_requests``."""
    number = st.column_config.NumberColumn
    text = st.column_config.TextColumn
    return {
        "request": text(say("column.request"), pinned=True, width=150),
        "tenant": text(say("column.tenant")),
        "arrived": st.column_config.DatetimeColumn(
            say("column.arrived"), format="HH:mm:ss", timezone="UTC"
        ),
        "total": number(say("column.total"), format=_SECONDS),
        "excess": number(say("column.excess"), format=_SECONDS, help=say("term.excess")),
        "stage": text(say("column.stage"), help=say("column.stage_help")),
        **{
            f"{stage}_seconds": number(say(f"stage.{stage}"), format=_SECONDS)
            for stage in finding.latency.stages
        },
        "input_tokens": number(say("column.tokens_in"), format="localized"),
        "output_tokens": number(say("column.tokens_out"), format="localized"),
    }


def beside(around: Neighbourhood) -> pd.DataFrame:
    """Who held the batch beside one request."""
    held = held_by_tenant(around)[["tenant", "requests", "held_waiting_seconds", "held_seconds"]]
    return held.assign(tenant=held["tenant"].map(tenant))


def beside_columns() -> dict[str, Any]:
    """Titles, units and help of ``beside``."""
    number = st.column_config.NumberColumn
    return {
        "tenant": st.column_config.TextColumn(say("column.tenant"), pinned=True),
        "requests": number(say("column.beside"), format="localized"),
        "held_waiting_seconds": number(
            say("column.held_waiting"),
            format="%.2f s",
            help=say("column.held_waiting_help"),
        ),
        "held_seconds": number(say("column.held_there"), format="%.2f s"),
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
        "sm": ("SM", say("term.sm")),
        "dram": ("DRAM", say("term.dram")),
        "tensor": ("Tensor", say("term.tensor")),
    }
    return {
        "gpu": st.column_config.TextColumn("GPU", pinned=True),
        "model": st.column_config.TextColumn(say("column.model")),
        **{
            f"{name}_{what}": number(
                say(f"column.of_{what}", what=title), format="%.0f %%", help=text
            )
            for name, (title, text) in shares.items()
            for what in ("mean", "p95")
        },
        "power_watts": number(say("column.power"), format="%.0f W", help=say("column.power_help")),
        "hottest": number(say("column.hottest"), format="%.0f °C", help=say("column.hottest_help")),
        "held": number(
            say("column.held_down"),
            format="%.1f s",
            help=say("column.held_down_help"),
        ),
        "lost": number(say("column.lost"), format="%.1f s", help=say("column.lost_help")),
    }
