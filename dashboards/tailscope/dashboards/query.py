"""What boards ask: the series that the board's variables choose, and one query of a panel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from tailscope.catalogue.promql import Query
from tailscope.dashboards.style import DATASOURCE

SCOPE: Final = MappingProxyType(
    {
        "job": "~$job",
        "instance": "~$instance",
        "model": "~$model",
        "server": "~$server",
        "tenant": "~$tenant",
    }
)
"""Variables of every board, as matchers on the metrics that have the label."""

NOW: Final = Query("$__rate_interval", SCOPE)
"""For series over time, and for the latest value."""
EVERYONE: Final = replace(NOW, where={k: v for k, v in SCOPE.items() if k != "tenant"})
"""As ``NOW``, whatever tenant is chosen: the whole that a share is of."""
RANGE: Final = Query("$__range", SCOPE)
"""For one value over the whole time range of the board; instant queries only."""
JUST_BEFORE: Final = replace(NOW, offset="$__range")
"""As ``NOW``, in the time range of the same length that ended where this one begins."""
RANGE_BEFORE: Final = replace(RANGE, offset="$__range")
"""As ``RANGE``, over the time range of the same length that ended where this one begins."""
EARLIER: Final = replace(NOW, offset="$offset")
"""As ``NOW``, at the same time of day or of the week before."""
RANGE_EVERYONE: Final = replace(EVERYONE, window=RANGE.window)


@dataclass(frozen=True, slots=True)
class Series:
    """One query of a panel. grafanalib's own Target knows no exemplars and halves the resolution.

    Attributes:
        name: Legend, with labels as ``{{label}}``; for a table, the title of the column.
        expr: PromQL.
        exemplars: Ask for the traces of single requests; for one series of a panel at most.
    """

    name: str
    expr: str
    exemplars: bool = False

    def target(self, ref: str, *, instant: bool = False, format: str = "time_series") -> Any:
        """Return Grafana's form of it, under the reference ``ref``."""
        return {
            "refId": ref,
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "legendFormat": self.name,
            "format": format,
            "instant": instant,
            "range": not instant,
            "exemplar": self.exemplars,
            # The least step. Without it $__rate_interval trusts the data source to know how often
            # Prometheus scrapes; where it is wrong, rates are empty.
            "interval": "$scrape",
        }


def quantiles(metric: str, match: Mapping[str, str] | None = None) -> tuple[Series, ...]:
    """The tail and the middle of a histogram of the records; p99 first: it has the exemplars."""
    return (
        Series("p99", NOW.quantile(0.99, metric, (), match), exemplars=True),
        Series("p95", NOW.quantile(0.95, metric, (), match)),
        Series("p50", NOW.quantile(0.5, metric, (), match)),
        Series("mean", NOW.mean(metric, (), match)),
    )
