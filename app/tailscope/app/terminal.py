"""The diagnosis as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from tailscope.triage.capacity import Capacity
from tailscope.triage.comparison import Comparison
from tailscope.triage.diagnosis import Diagnosis, Graded, Offline
from tailscope.triage.finding import Finding, SlowRequest
from tailscope.triage.gpusentence import health
from tailscope.triage.hardware import Gpu
from tailscope.triage.loads import TenantLoad
from tailscope.triage.quality import notes
from tailscope.triage.quantiles import Quantiles
from tailscope.triage.replay import MOST_LOSS, RATIO
from tailscope.triage.sentence import headline, level, slowness
from tailscope.triage.verdict import Suspect
from tailscope.triage.words import moment, percent, plural, seconds

SHOWN = 10
"""Tenants and requests that are shown; --json has them all."""

_NONE = "-"


def render(found: Diagnosis) -> str:
    """Write the sentences and the tables; tables without a row are left out."""
    finding = found.finding
    blocks = ["\n".join(filter(None, _said(found)))]
    if finding.window.requests:
        blocks += [
            _latency(finding),
            _suspects(found.suspects),
            _fixes(found),
            _capacity(found.capacity()),
            _comparison(found.comparison),
            _offline(found.offline),
            _tenants(finding.tenants),
            _slowest(finding.slow.slowest),
        ]
    blocks.append(_gpus(finding.gpus))
    if said := notes(finding):
        blocks.append("Note: " + "\n      ".join(said))
    return _safe("\n\n".join(filter(None, blocks)))


def _said(found: Diagnosis) -> list[str]:
    finding = found.finding
    health_ = health(finding.gpus, finding.window.start_ns)
    said: list[str] = [headline(finding), *slowness(finding)]
    if finding.window.requests:
        found.attribution  # noqa: B018 - the replay comes first: the verdict builds on it
        said.append(found.verdict)
    return [*said, *health_]


def _suspects(suspects: Sequence[Suspect]) -> str:
    table = _table(
        ("suspect", "kind", "held", "without it", "saves", "lift", "grade", "accused"),
        [
            (
                one.name,
                one.kind,
                percent(one.ledger_share),
                f"-{percent(max(one.removal_share, 0.0))}",
                seconds(max(one.removal_seconds, 0.0)),
                _NONE if one.lift is None else f"{one.lift:.1f}",
                one.grade,
                "yes" if one.accused else f"no: {one.spared}",
            )
            for one in suspects[:SHOWN]
        ],
        left=(0, 1, 7),
    )
    return table + _more(len(suspects), "suspects")


def _fixes(found: Diagnosis) -> str:
    studies = found.attribution.studies
    if not studies:
        return ""
    near = studies[0].fidelity
    if near is None:
        return "No change is recommended: there are too few requests for a replay."
    if not near.passed:
        return (
            "No change is recommended: the replay of the load as it was is "
            f"{100 * near.loss:.1f} % off the records (trusted: under {percent(MOST_LOSS)}), and "
            f"its slow requests take {near.ratio:.2f} times the seconds (trusted: {RATIO[0]:g} to "
            f"{RATIO[1]:g})."
        )
    where = f" on {studies[0].work.server}" if len(found.finding.window.servers) > 1 else ""
    lines = [f"What would have helped{where}, by replay:"]
    lines += [_fix(one) for one in found.fixes[:SHOWN]] or ["None of the changes that were played."]
    rest = [one.fix for one in found.tried if not one.fix.helps]
    if rest:
        told = ", ".join(f"{fix.name} {round(-100 * fix.gain):+d} %" for fix in rest)
        lines.append(f"Of no use or harmful here (p99): {told}.")
    return "\n".join(lines)


def _fix(one: Graded) -> str:
    fix = one.fix
    paid = ""
    if fix.payers_before is not None and fix.payers_after is not None:
        before, after = fix.payers_before.p99, fix.payers_after.p99
        paid = f"; {fix.payers}: {seconds(before)} to {seconds(after)}"
    elif fix.payers != "nobody":
        paid = f"; pays: {fix.payers}"
    lost = f"; {plural(fix.lost, 'request')} without a full answer" if fix.lost else ""
    tail = f"p99 {seconds(fix.before.p99)} to {seconds(fix.after.p99)}"
    lines = [f"{fix.change} {tail}{paid}{lost} (grade {one.grade})."]
    return "\n".join([*lines, *(f"    {where}: {text}" for where, text in one.config.items())])


def _capacity(found: Capacity | None) -> str:
    if found is None:
        return ""
    points = ", ".join(f"{point.factor:g} times {seconds(point.p99)}" for point in found.points)
    said = f"p99 at multiples of this load, by replay: {points}."
    if found.knee is not None:
        said += f" p95 doubles at {found.knee:.2f} times."
    if found.saturated:
        said += " The engine does not keep up with this load as it is."
    if found.headroom is not None:
        said += (
            f" The objective holds up to {found.headroom:.2f} times."
            if found.headroom
            else " The objective does not hold now."
        )
    if found.seen is not None and found.seen < found.points[-1].factor:
        said += (
            f" Beyond {found.seen:g} times, batches are larger than any in the records: a limit "
            "that they never reached is not known."
        )
    return said


def _comparison(found: Comparison | None) -> str:
    if found is None:
        return ""
    reasons = f" ({'; '.join(found.reasons)})" if found.reasons else ""
    lines = [f"Before and after the change: {found.outcome.value}{reasons}."]
    lines += [
        f"    p{100 * one.level:g}: {seconds(one.before)} to {seconds(one.after)}, p = {one.p:.3f}"
        for one in found.shifts
    ]
    return "\n".join(lines)


def _offline(found: Offline | None) -> str:
    if found is None:
        return ""
    lines = [
        f"Moving offline tenant {name} away saves the others {percent(max(share, 0.0))} of their "
        "slow seconds."
        for name, share in found.relief.items()
    ]
    lines += [
        f"Offline request of {one.tenant}: {seconds(one.seconds)}, usually {seconds(one.usual)}; "
        f"{one.reason}."
        for one in found.outliers[:SHOWN]
    ]
    return "\n".join(lines)


def _safe(text: str) -> str:
    """Names come from clients: none of them may steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Lay out columns: some to the left, the others to the right."""
    if not rows:
        return ""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    )


def _levels(values: Quantiles | None) -> list[str]:
    if values is None:
        return [_NONE] * 3
    return [level(one) for one in (values.p50, values.p95, values.p99)]


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
            *("tokens in", "out", "batch"),
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
            )
            for load in tenants[:SHOWN]
        ],
    )
    return table + _more(len(tenants), "tenants")


def _slowest(requests: Sequence[SlowRequest]) -> str:
    table = _table(
        (
            *("slowest request", "tenant", "arrived", "total", "excess"),
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
