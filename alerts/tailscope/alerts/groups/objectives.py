"""Objectives: how fast the error budget is used, over several windows. From request records.

The windows and factors are those of the SRE workbook's chapter on alerting on SLOs. Shares at a
bound of the buckets are exact, where quantiles would be interpolated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tailscope.alerts.model import Alert, Group, PanelLink, Recording, Severity
from tailscope.alerts.queries import REQUESTS, SHORT, recorded
from tailscope.alerts.thresholds import Limits, Objective
from tailscope.catalogue.promql import compare, either, every

_WINDOWS: Final = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
_QUERY: Final = replace(SHORT, by=REQUESTS)


@dataclass(frozen=True, slots=True)
class _Promise:
    """One objective: what it is about, and where it is shown."""

    name: str
    metric: str
    title: str
    objective: Objective
    panel: PanelLink

    def bad(self, window: str) -> str:
        """Name of the recorded share of requests that were too slow."""
        return f"server:tailscope_{self.metric.removesuffix('_seconds')}_slow:ratio_rate{window}"

    def recordings(self) -> tuple[Recording, ...]:
        """The shares, one for each window."""
        return tuple(
            Recording(
                self.bad(window),
                replace(_QUERY, window=window).share_above(self.objective.within, self.metric),
                f"Share of the requests whose {self.title} was above "
                f"{self.objective.within:g} s, over {window}.",
                REQUESTS,
            )
            for window in _WINDOWS
        )

    def burns(self, factor: float, long: str, short: str) -> str:
        """Both windows use the budget so fast: it lasts, and it has not ended yet."""
        limit = f"{factor:g} * {self.objective.budget:g}"
        return every(
            compare(self.bad(long), ">", limit), compare(self.bad(short), ">", limit), on=REQUESTS
        )

    def requests(self, window: str, least: float) -> str:
        """Enough requests stand behind the share."""
        query = replace(_QUERY, window=window)
        return compare(query.increase(self.metric, suffix="_count"), ">", least)


def _promises(limits: Limits) -> tuple[_Promise, ...]:
    return (
        _Promise(
            "FirstToken",
            "request_time_to_first_token_seconds",
            "time to first token",
            limits.objectives.first_token,
            PanelLink("tailscope-triage", 203),
        ),
        _Promise(
            "TotalTime",
            "request_seconds",
            "total time",
            limits.objectives.total_time,
            PanelLink("tailscope-triage", 204),
        ),
    )


def _texts(promise: _Promise, speed: str) -> tuple[str, str]:
    goal = promise.objective
    return (
        f"The {promise.title} on {{{{ .Labels.server }}}} uses its error budget {speed}",
        f"{{{{ .Value | humanizePercentage }}}} of the requests for {{{{ .Labels.model }}}} on "
        f"{{{{ .Labels.server }}}} had a {promise.title} above {goal.within:g} s; the objective "
        f"allows {goal.budget * 100:g} %. ",
    )


def _burn(promise: _Promise, limits: Limits) -> Alert:
    summary, description = _texts(promise, "fast")
    return Alert(
        name=f"Tailscope{promise.name}BudgetBurn",
        severity=Severity.CRITICAL,
        cause="objective",
        expr=every(
            either(
                promise.burns(limits.burn_fast.value, "1h", "5m"),
                promise.burns(limits.burn_medium.value, "6h", "30m"),
            ),
            promise.requests("1h", limits.burn_volume.value),
            on=REQUESTS,
        ),
        lasts="2m",
        labels=REQUESTS,
        summary=summary,
        description=description + "At this pace the budget of 30 days is gone in 5 days or less.",
        panel=promise.panel,
    )


def _leak(promise: _Promise, limits: Limits) -> Alert:
    summary, description = _texts(promise, "steadily")
    # A window that is longer than the history is the history: wait for half of it.
    known = (
        every(
            promise.burns(factor, long, short),
            compare(recorded(promise.bad("1h"), offset=half), ">=", 0),
            on=REQUESTS,
        )
        for factor, long, short, half in (
            (limits.burn_slow.value, "1d", "2h", "12h"),
            (limits.burn_steady.value, "3d", "6h", "36h"),
        )
    )
    return Alert(
        name=f"Tailscope{promise.name}BudgetLeak",
        severity=Severity.WARNING,
        cause="objective",
        expr=every(either(*known), promise.requests("6h", limits.burn_volume.value), on=REQUESTS),
        lasts="30m",
        labels=REQUESTS,
        summary=summary,
        description=description + "At this pace the budget of 30 days does not last 30 days.",
        panel=promise.panel,
    )


def group(limits: Limits) -> Group:
    """Return the rules."""
    promises = _promises(limits)
    return Group(
        "tailscope-objectives",
        tuple(write(promise, limits) for promise in promises for write in (_burn, _leak)),
        tuple(recording for promise in promises for recording in promise.recordings()),
        interval="1m",
    )
