"""The finding as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from tailscope.triage.finding import Finding, SlowRequest
from tailscope.triage.gpusentence import health
from tailscope.triage.hardware import Gpu
from tailscope.triage.loads import TenantLoad
from tailscope.triage.quality import notes
from tailscope.triage.quantiles import Quantiles
from tailscope.triage.sentence import headline, verdict
from tailscope.triage.words import moment, percent, seconds

SHOWN = 10
"""Tenants and requests that are shown; --json has them all."""

_NONE = "-"


def render(finding: Finding) -> str:
    """Write the sentences and the tables; tables without a row are left out."""
    blocks = [
        "\n".join(
            [headline(finding), *verdict(finding), *health(finding.gpus, finding.window.start_ns)]
        )
    ]
    if finding.window.requests:
        blocks += [_latency(finding), _tenants(finding.tenants), _slowest(finding.slow.slowest)]
    blocks.append(_gpus(finding.gpus))
    if said := notes(finding):
        blocks.append("Note: " + "\n      ".join(said))
    return _safe("\n\n".join(filter(None, blocks)))


def _safe(text: str) -> str:
    """Names come from clients: none of them may steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out columns: the first to the left, the others to the right."""
    if not rows:
        return ""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        ).rstrip()
        for row in (head, *rows)
    )


def _levels(values: Quantiles | None) -> list[str]:
    if values is None:
        return [_NONE] * 3
    return [seconds(level.value) for level in (values.p50, values.p95, values.p99)]


def _interval(values: Quantiles) -> str:
    low, high = values.p99.low, values.p99.high
    if low is None:
        return _NONE
    return f"{seconds(low)} to {seconds(high)}" if high is not None else f"from {seconds(low)}"


def _latency(finding: Finding) -> str:
    latency, slow = finding.latency, finding.slow
    rows = [
        (name, values, None)
        for name, values in (
            ("total", latency.total),
            ("time to first token", latency.ttft),
            ("total at the client", latency.client),
        )
    ]
    staged = [(name, values, slow.by_stage.get(name)) for name, values in latency.stages.items()]
    return _table(
        ("latency", "p50", "p95", "p99", "95 % interval of p99", "requests", "slow seconds"),
        [
            (
                name,
                *_levels(values),
                _interval(values),
                f"{values.count:,}",
                "" if held is None or not slow.requests else seconds(held),
            )
            for name, values, held in (*rows, *staged)
            if values is not None
        ],
    )


def _tenants(tenants: Sequence[TenantLoad]) -> str:
    table = _table(
        (
            *("tenant", "requests", "slow", "p50", "p95", "p99"),
            *("tokens in", "out", "batch", "beside slow"),
        ),
        [
            (
                load.name,
                f"{load.requests:,}",
                f"{load.slow:,}",
                *_levels(load.total),
                _NONE if load.input_tokens is None else f"{load.input_tokens:,}",
                _NONE if load.output_tokens is None else f"{load.output_tokens:,}",
                _NONE if load.slot_share is None else percent(load.slot_share),
                _NONE if load.slot_share_slow is None else percent(load.slot_share_slow),
            )
            for load in tenants[:SHOWN]
        ],
    )
    return table + _more(len(tenants), "tenants")


def _slowest(requests: Sequence[SlowRequest]) -> str:
    table = _table(
        (
            *("slowest request", "tenant", "arrived", "total", "above usual"),
            *("mostly in", "tokens in", "out"),
        ),
        [
            (
                request.name,
                request.tenant,
                moment(request.arrived_ns).removesuffix(" UTC"),
                _NONE if request.total_seconds is None else seconds(request.total_seconds),
                _NONE if request.excess_seconds is None else seconds(request.excess_seconds),
                request.stage or _NONE,
                _NONE if request.input_tokens is None else f"{request.input_tokens:,}",
                _NONE if request.output_tokens is None else f"{request.output_tokens:,}",
            )
            for request in requests[:SHOWN]
        ],
    )
    return table + _more(len(requests), "requests")


def _gpus(gpus: Sequence[Gpu]) -> str:
    table = _table(
        ("gpu", "SM", "p95", "DRAM", "p95", "tensor", "power", "hottest", "held down", "lost"),
        [
            (
                gpu.name,
                *_activity(gpu, "sm"),
                *_activity(gpu, "dram"),
                _activity(gpu, "tensor")[0],
                _reading(gpu, "power_watts", "W"),
                _reading(gpu, "temperature_celsius", "°C", highest=True),
                _NONE if gpu.faulty_seconds is None else seconds(gpu.faulty_seconds),
                _NONE if gpu.instance else seconds(gpu.lost_seconds),
            )
            for gpu in gpus[:SHOWN]
        ],
    )
    return table + _more(len(gpus), "GPUs")


def _activity(gpu: Gpu, name: str) -> tuple[str, str]:
    level = gpu.activity.get(name)
    return (percent(level.mean), percent(level.p95)) if level else (_NONE, _NONE)


def _reading(gpu: Gpu, name: str, unit: str, *, highest: bool = False) -> str:
    level = gpu.readings.get(name)
    return f"{level.highest if highest else level.mean:,.0f} {unit}" if level else _NONE


def _more(count: int, what: str) -> str:
    return f"\n... {count - SHOWN:,} more {what}: see --json" if count > SHOWN else ""
