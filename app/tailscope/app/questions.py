"""What series alone can tell of a window, where there are no records: asked of Prometheus.

Percentiles are estimates from buckets. Of single requests, of what ran beside them and so of whose
work made them slow, series tell nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tailscope.app.audience import ENDED, SECONDS, Audience
from tailscope.app.buckets import LEVELS, Buckets
from tailscope.app.palette import UNKNOWN
from tailscope.app.prometheus import Prometheus
from tailscope.app.roles import OPERATOR, Viewer
from tailscope.triage.scope import Scope
from tailscope.triage.stages import STAGES

LONGEST_NS = 24 * 3600 * 10**9
"""Of a longer time, or one without a beginning, only the end is asked for."""

POINTS = 120
"""Points of a line."""

_SCRAPE = 60.0
"""Seconds between two scrapes, where that cannot be seen."""

_LOOK = "3m"
_LEAST_STEP = 5.0

REQUESTS: Mapping[str, str] = {
    "total": SECONDS,
    "ttft": "tailscope_request_time_to_first_token_seconds",
}
"""Histograms with a tenant, made from records."""

STAGE = "tailscope_request_stage_seconds"

ENGINE: Mapping[str, str] = {
    "total": "tailscope_engine_request_seconds",
    "ttft": "tailscope_engine_time_to_first_token_seconds",
    "queue": "tailscope_engine_queue_seconds",
    "prefill": "tailscope_engine_prefill_seconds",
    "decode": "tailscope_engine_decode_seconds",
}
"""The same by the engine itself, for all tenants together."""

LINES: Mapping[str, Mapping[str, str]] = {
    "queue": {
        "running": "sum(rate(tailscope_engine_running_request_seconds_total{M}[W]))",
        "waiting": "sum(rate(tailscope_engine_waiting_request_seconds_total{M}[W]))",
    },
    "cache": {
        "cache": "100 * max(max_over_time(tailscope_engine_kv_cache_usage_ratio{M}[W]))",
    },
    "gpu": {
        "SM": "100 * avg(rate(tailscope_gpu_sm_active_seconds_total[W]))",
        "DRAM": "100 * avg(rate(tailscope_gpu_dram_active_seconds_total[W]))",
    },
}
"""Lines by the chart that they stand in: means over the window of a rate, and of the cache the
fullest."""

_COUNTERS = {
    "slot_seconds": "tailscope_tenant_slot_seconds_total",
    "input_tokens": "tailscope_tenant_input_tokens_total",
    "output_tokens": "tailscope_tenant_output_tokens_total",
}


class Unanswered(Exception):
    """The server did not answer; why is its ``trouble``."""


@dataclass(frozen=True, slots=True)
class Outline:
    """What series tell of a window.

    Attributes:
        start_ns: Its beginning, UTC nanoseconds.
        end_ns: Its end.
        by_engine: Whether percentiles are by the engines, as there are none from records.
        parts: Histogram of the window by ``total``, ``ttft`` and stage.
        tenants: Histogram of the total time by tenant.
        loads: Counters by tenant: a column for ``ok``, ``other`` (outcomes) and each of the loads.
        over_time: ``time``, ``part``, ``level`` and ``seconds``.
        lines: Chart to ``time``, ``what`` and ``value``.
        batch: Places in the batch that tenants held on average: ``time``, ``tenant``, ``value``.
    """

    start_ns: int
    end_ns: int
    by_engine: bool
    parts: Mapping[str, Buckets]
    tenants: Mapping[str, Buckets]
    loads: pd.DataFrame
    over_time: pd.DataFrame
    lines: Mapping[str, pd.DataFrame]
    batch: pd.DataFrame

    @property
    def empty(self) -> bool:
        """Whether there is no series of this time at all."""
        return not self.parts and not any(len(data) for data in self.lines.values())

    @property
    def slow(self) -> float | None:
        """Bound above which a request is slow: the lower one of the bucket of p95. Seconds."""
        total = self.parts.get("total")
        return None if total is None else total.quantile(0.95).low


def bounds(start_ns: int | None, end_ns: int | None, now_ns: int) -> tuple[int, int]:
    """The time that is asked for, UTC nanoseconds."""
    end = min(end_ns or now_ns, now_ns)
    return max(start_ns or 0, end - LONGEST_NS), end


def names(server: Prometheus, start_ns: int, end_ns: int, viewer: Viewer) -> dict[str, list[str]]:
    """Tenants, models and servers that have series in a time, as the filters offer them."""
    width = _width(start_ns, end_ns)
    audience = Audience.of(viewer, server, width, end_ns)
    engines = audience.engines(Scope())
    found = server.at(
        f"count by (tenant, model, server) (last_over_time({SECONDS}_count{engines}[{width}])) or "
        "count by (model, server) "
        f"(last_over_time(tailscope_engine_requests_running{engines}[{width}]))",
        end_ns,
    )
    told = {
        name: sorted(set(found[name].dropna()) - {""}) if name in found else []
        for name in ("tenant", "model", "server")
    }
    told["tenant"] = sorted(set(map(audience.seen, told["tenant"])))
    return told


def _width(start_ns: int, end_ns: int) -> str:
    """Length of a window as a PromQL duration."""
    return f"{max(int((end_ns - start_ns) / 1e9), 1)}s"


def rejected(server: Prometheus, start_ns: int, end_ns: int) -> pd.DataFrame:
    """Records that exporters refused in a time: ``source``, ``reason`` and ``records``."""
    width = _width(start_ns, end_ns)
    counter = f"increase(tailscope_records_rejected_total[{width}])"
    found = server.at(f"sum by (source, reason) ({counter}) > 0.5", end_ns)
    found = found.rename(columns={"value": "records"})
    return found.reindex(columns=["source", "reason", "records"])


def read(
    server: Prometheus, start_ns: int, end_ns: int, scope: Scope, viewer: Viewer = OPERATOR
) -> Outline:
    """Ask for what series tell.

    Args:
        server: Prometheus.
        start_ns: Beginning, UTC nanoseconds.
        end_ns: End.
        scope: Which models, servers and tenants count.
        viewer: Who looks, and so what may be told; see ``Audience``.

    Raises:
        Unanswered: If the server fails.
    """
    asked = _Asked(server, start_ns, end_ns, scope, viewer)
    parts, tenants, by_engine = asked.histograms()
    found = Outline(
        start_ns,
        end_ns,
        by_engine,
        parts,
        tenants,
        asked.loads(),
        asked.percentiles(tuple(parts), by_engine),
        {chart: asked.lines(wanted) for chart, wanted in LINES.items()},
        asked.batch(),
    )
    if server.trouble:
        raise Unanswered
    return found


class _Asked:
    """The questions for one window."""

    def __init__(
        self, server: Prometheus, start_ns: int, end_ns: int, scope: Scope, viewer: Viewer
    ) -> None:
        self._server, self._start, self._end = server, start_ns, end_ns
        self._whole = _width(start_ns, end_ns)
        self._audience = Audience.of(viewer, server, self._whole, end_ns)
        self._engines = self._audience.engines(scope)
        self._requests = self._audience.requests(scope)
        seconds = (end_ns - start_ns) / 1e9
        self._step = max(seconds / POINTS, _LEAST_STEP)
        self._rate = f"{int(max(self._step, 4 * self._scrape()))}s"

    def _scrape(self) -> float:
        """Seconds between two scrapes."""
        raw = self._server.at(
            f'{{__name__=~"tailscope_build_info|tailscope_engine_up"}}[{_LOOK}]', self._end
        )
        labels = [name for name in raw if name not in ("time_ns", "value")]
        if not labels or raw.empty:
            return _SCRAPE
        gaps = raw.groupby(labels, dropna=False)["time_ns"].diff().dropna()
        return float(np.median(gaps.to_numpy(dtype=np.float64))) / 1e9 if len(gaps) else _SCRAPE

    def histograms(self) -> tuple[dict[str, Buckets], dict[str, Buckets], bool]:
        """Histograms by part and by tenant, and whether they are the engines'."""
        rows = self._increase(REQUESTS["total"], self._requests, "tenant")
        tenants = _by(self._masked(rows), "tenant")
        parts = {
            "total": Buckets.of(rows),
            "ttft": Buckets.of(self._increase(REQUESTS["ttft"], self._requests)),
            **_by(self._increase(STAGE, self._engines, "stage"), "stage"),
        }
        by_engine = parts["total"] is None
        if by_engine:
            told = {name: self._increase(one, self._engines) for name, one in ENGINE.items()}
            parts = {name: Buckets.of(rows) for name, rows in told.items()}
        order = ("total", "ttft", *STAGES)
        known = {name: one for name in order if (one := parts.get(name)) is not None}
        return known, tenants, by_engine

    def _increase(self, metric: str, matchers: str, *by: str) -> pd.DataFrame:
        labels = ", ".join((*by, "le"))
        return self._server.at(
            f"sum by ({labels}) (increase({metric}_bucket{matchers}[{self._whole}]))", self._end
        )

    def percentiles(self, parts: Sequence[str], by_engine: bool) -> pd.DataFrame:
        """Percentiles over time."""
        wanted = []
        for part in parts:
            metric, matchers = self._histogram(part, by_engine)
            rate = f"sum by (le) (rate({metric}_bucket{matchers}[{self._rate}]))"
            wanted += [
                _named(f"histogram_quantile({level}, {rate})", part=part, level=name)
                for name, level in LEVELS.items()
            ]
        found = self._range(wanted)
        return found.rename(columns={"value": "seconds"})

    def _histogram(self, part: str, by_engine: bool) -> tuple[str, str]:
        if by_engine:
            return ENGINE[part], self._engines
        if part in REQUESTS:
            return REQUESTS[part], self._requests
        return STAGE, _with(self._engines, f"stage={json.dumps(part)}")

    def lines(self, wanted: Mapping[str, str]) -> pd.DataFrame:
        """Lines of one chart."""
        return self._range(
            _named(query.replace("{M}", self._engines).replace("[W]", f"[{self._rate}]"), what=name)
            for name, query in wanted.items()
        )

    def loads(self) -> pd.DataFrame:
        """Counters of the window by tenant."""
        wanted = [
            _named(
                f"sum by (tenant) (increase({metric}{self._requests}[{self._whole}]))", what=name
            )
            for name, metric in _COUNTERS.items()
        ]
        for name, sign in (("ok", "="), ("other", "!=")):
            matchers = _with(self._requests, f'outcome{sign}"ok"')
            wanted.append(
                _named(
                    f"sum by (tenant) (increase({ENDED}{matchers}[{self._whole}]))",
                    what=name,
                )
            )
        found = self._masked(self._server.at(" or ".join(wanted), self._end))
        if found.empty or "tenant" not in found:
            return pd.DataFrame()
        return found.pivot_table(index="tenant", columns="what", values="value", aggfunc="sum")

    def batch(self) -> pd.DataFrame:
        """Places in the batch that each tenant held, over time."""
        metric = _COUNTERS["slot_seconds"]
        found = self._masked(
            self._range([f"sum by (tenant) (rate({metric}{self._requests}[{self._rate}]))"])
        )
        if found.empty or "tenant" not in found:
            return pd.DataFrame(columns=["time", "tenant", "value"])
        return found.groupby(["time", "tenant"])["value"].sum().reset_index()

    def _range(self, queries: Iterable[str]) -> pd.DataFrame:
        wanted = " or ".join(queries)
        if not wanted:
            return pd.DataFrame()
        told = self._server.over_time(wanted, self._start, self._end, self._step)
        found: pd.DataFrame = told.loc[np.isfinite(told["value"].to_numpy())]
        times = pd.to_datetime(found["time_ns"], utc=True)
        found = found.drop(columns="time_ns")
        found["time"] = times
        return found

    def _masked(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Tenants as somebody may see them; without a name they are unknown."""
        if "tenant" not in rows:
            return rows
        told = rows["tenant"].fillna("").replace("", UNKNOWN)
        seen = [name if name == UNKNOWN else self._audience.seen(name) for name in told]
        return rows.assign(tenant=seen)


def _by(rows: pd.DataFrame, label: str) -> dict[str, Buckets]:
    if label not in rows:
        return {}
    parts = {str(name): Buckets.of(part) for name, part in rows.groupby(label)}
    return {name: one for name, one in parts.items() if one is not None}


def _with(matchers: str, more: str) -> str:
    inside = matchers[1:-1]
    return f"{{{f'{inside}, ' if inside else ''}{more}}}"


def _named(query: str, **labels: str) -> str:
    """Give what an expression returns some labels, so that several can be told apart."""
    for name, text in labels.items():
        query = f'label_replace({query}, "{name}", "{text}", "", "")'
    return query
