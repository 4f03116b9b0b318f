"""How far the data carry: what is missing, and what that means for the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd

from tailscope.triage.epoch import Epoch
from tailscope.triage.finding import Finding, Quality
from tailscope.triage.phrase import Phrase, several, tell
from tailscope.triage.scope import cut_short
from tailscope.triage.stages import STAGES, column, floats, named
from tailscope.triage.words import clock, percent, seconds


def quality(mine: pd.DataFrame, judged: pd.DataFrame, rejected: Mapping[str, int]) -> Quality:
    """Count what is missing.

    Args:
        mine: Requests in the window.
        judged: Those of them whose time is a latency.
        rejected: Lines of an input file that were left out, by reason.
    """
    known = np.zeros(len(judged), np.bool_)
    for stage in STAGES:
        known |= ~np.isnan(floats(judged, column(stage)))
    return Quality(
        requests=len(mine),
        failed=len(mine) - len(judged),
        cut_short=int(cut_short(judged).sum()),
        without_tenant=int(mine["tenant"].isna().sum()),
        without_stages=int((~known).sum()),
        without_server=int(mine["server"].isna().sum()),
        joined=_counts(mine["joined"].dropna()),
        inferred=_counts(mine["inferred"].dropna().str.split(",").explode()),
        outcomes=_counts(named(mine, "outcome")),
        rejected=MappingProxyType(dict(rejected)),
    )


def _counts(values: pd.Series[str]) -> Mapping[str, int]:
    return MappingProxyType({str(name): int(n) for name, n in values.value_counts().items()})


def notes(finding: Finding) -> tuple[str, ...]:
    """Say in words what is missing; nothing if nothing is."""
    data = finding.quality
    said = (
        (data.without_tenant, tell("have no tenant: they are counted as unknown")),
        (data.without_stages, tell("have no stage times: they count in the totals alone")),
        (data.without_server, tell("name no server: they are taken as if they ran on one")),
        (data.failed, tell("were refused or failed: they are not in the percentiles")),
        (
            data.cut_short,
            tell(
                "were aborted or timed out: they would have taken longer, and count as that in the "
                "percentiles of the total (Kaplan-Meier)"
            ),
        ),
    )
    found = [
        tell("{n} of {all} requests {what}.", n=f"{count:,}", all=f"{data.requests:,}", what=what)
        for count, what in said
        if count
    ]
    found += [
        several(
            count,
            "{name} was inferred, not told, for {n} request.",
            "{name} was inferred, not told, for {n} requests.",
            name=name,
        )
        for name, count in data.inferred.items()
        if name.endswith("_seconds")
    ]
    if finding.slow.inferred:
        found.append(
            several(
                finding.slow.inferred,
                "Queue and prefill of {n} slow request are inferred from the time to the first "
                "token.",
                "Queue and prefill of {n} slow requests are inferred from the time to the first "
                "token.",
            )
        )
    found += [_came_back(one, finding.origin_ns) for one in finding.epochs]
    if data.rejected:
        found.append(
            several(
                sum(data.rejected.values()),
                "{n} line was left out ({why}).",
                "{n} lines were left out ({why}).",
                why=", ".join(f"{reason} {count:,}" for reason, count in data.rejected.items()),
            )
        )
    return tuple(found)


def _came_back(one: Epoch, origin_ns: int) -> Phrase:
    change = percent(abs(one.slower - 1.0))
    return tell(
        "{engine} came back as another one at {at} UTC, after a pause of {pause}: a decode takes "
        "{change}. What came before and what came after is judged apart.",
        engine=one.server or tell("The engine"),
        at=clock(origin_ns + int(one.begin * 1e9)),
        pause=seconds(one.pause),
        change=tell("{share} more", share=change)
        if one.slower > 1.0
        else tell("{share} less", share=change),
    )
