"""Whom series may name, and of which engines they may tell, where there are no records.

The counterpart of ``access.masked``, which takes the same out of records. Nothing is left to the
address: a name in it that may not be told matches nothing, whether there is such a one or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pandas as pd

from tailscope.app.export import FEWEST
from tailscope.app.palette import OTHERS
from tailscope.app.prometheus import Prometheus
from tailscope.app.roles import Viewer
from tailscope.triage.scope import Scope

SECONDS = "tailscope_request_seconds"
"""Histogram of the requests by tenant, model and server."""

ENDED = "tailscope_requests_total"
"""Counter of them by tenant and outcome."""

Names = frozenset[str] | None
"""Those that may be told; None if all may."""


@dataclass(frozen=True, slots=True)
class Audience:
    """What somebody may be told of.

    Attributes:
        tenants: Tenants by name; requests without one are nobody's name.
        models: Models.
        servers: Servers.
    """

    tenants: Names = None
    models: Names = None
    servers: Names = None

    @classmethod
    def of(cls, viewer: Viewer, server: Prometheus, width: str, end_ns: int) -> Audience:
        """Ask what somebody may be told of.

        Args:
            viewer: Who looks: a tenant is told of itself and of the engines that it used; of what
                is to be shared, tenants with few requests are left out.
            server: Where the series are.
            width: Length of the window as a PromQL duration.
            end_ns: End of the window, UTC nanoseconds.
        """
        found = cls()
        if viewer.tenant is not None:
            own = matchers(tenant=(viewer.tenant,))
            query = f"count by (model, server) (last_over_time({SECONDS}_count{own}[{width}]))"
            used = server.at(query, end_ns)
            models = _of(used, "model")
            # Series of an engine need not name its model.
            found = cls(frozenset({viewer.tenant}), models and models | {""}, _of(used, "server"))
        if viewer.sharing:
            by = f"sum by (tenant) (increase({{}}[{width}])) >= {FEWEST}"
            query = f"{by.format(ENDED)} or {by.format(f'{SECONDS}_count')}"
            known = _of(server.at(query, end_ns), "tenant")
            own_name = known if found.tenants is None else found.tenants & known
            found = cls(own_name, found.models, found.servers)
        return found

    def seen(self, name: str) -> str:
        """What stands for a tenant."""
        return name if self.tenants is None or name in self.tenants else OTHERS

    def engines(self, scope: Scope) -> str:
        """Label matchers of the engines that are looked at."""
        return matchers(**self._engines(scope))

    def requests(self, scope: Scope) -> str:
        """Label matchers of the requests that are looked at."""
        chosen = _few(scope.tenants, self.tenants) if scope.tenants else ()
        others = self.tenants is not None and OTHERS in scope.tenants
        if not others:
            return matchers(tenant=chosen, **self._engines(scope))
        unwanted = (self.tenants or frozenset()) - set(scope.tenants)
        return matchers(not_tenant=sorted(unwanted), **self._engines(scope))

    def _engines(self, scope: Scope) -> dict[str, Iterable[str]]:
        return {
            "model": _few(scope.models, self.models),
            "server": _few(scope.servers, self.servers),
        }


def _few(chosen: Collection[str], told: Names) -> Collection[str]:
    """The chosen ones of those that may be told, or all of these; never an empty choice."""
    if told is None:
        return chosen
    return sorted(told & set(chosen) if chosen else told) or (OTHERS,)


def _of(frame: pd.DataFrame, label: str) -> frozenset[str]:
    return frozenset(frame[label].dropna()) - {""} if label in frame else frozenset()


def matchers(**labels: Iterable[str]) -> str:
    """Label matchers, in braces; for no values of a label, none.

    Args:
        labels: Values that a label may have; with ``not_`` before it, those that it may not.
    """
    told = []
    for name, values in labels.items():
        if either := "|".join(map(re.escape, values)):
            sign = "!~" if name.startswith("not_") else "=~"
            value = json.dumps(either, ensure_ascii=False)
            told.append(f"{name.removeprefix('not_')}{sign}{value}")
    return f"{{{', '.join(told)}}}"
