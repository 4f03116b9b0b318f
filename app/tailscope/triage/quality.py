"""How far the data carry: what is missing, and what that means for the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd

from tailscope.triage.epoch import Epoch
from tailscope.triage.finding import Finding, Quality
from tailscope.triage.scope import cut_short
from tailscope.triage.stages import STAGES, column, floats, named
from tailscope.triage.words import clock, percent, plural, seconds


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
        (data.without_tenant, "have no tenant: they are counted as unknown"),
        (data.without_stages, "have no stage times: they count in the totals alone"),
        (data.without_server, "name no server: they are taken as if they ran on one"),
        (data.failed, "were refused or failed: they are not in the percentiles"),
        (
            data.cut_short,
            "were aborted or timed out: they would have taken longer, and count as that "
            "in the percentiles of the total (Kaplan-Meier)",
        ),
    )
    found = [f"{count:,} of {data.requests:,} requests {text}." for count, text in said if count]
    for name, count in data.inferred.items():
        if name.endswith("_seconds"):
            found.append(f"{name} was inferred, not told, for {plural(count, 'request')}.")
    if finding.slow.inferred:
        found.append(
            f"Queue and prefill of {plural(finding.slow.inferred, 'slow request')} are inferred "
            "from the time to the first token."
        )
    found += [_came_back(one, finding.origin_ns) for one in finding.epochs]
    if data.rejected:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in data.rejected.items())
        found.append(f"{sum(data.rejected.values()):,} lines were left out ({reasons}).")
    return tuple(found)


def _came_back(one: Epoch, origin_ns: int) -> str:
    more = "more" if one.slower > 1.0 else "less"
    return (
        f"{one.server or 'The engine'} came back as another one at "
        f"{clock(origin_ns + int(one.begin * 1e9))} UTC, after a pause of {seconds(one.pause)}: "
        f"a decode takes {percent(abs(one.slower - 1.0))} {more}. What came before and what came "
        "after is judged apart."
    )
