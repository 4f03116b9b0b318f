"""Links from a point of a panel: to another board, or to the triage app."""

from __future__ import annotations

from typing import Any, Final

_KEPT: Final = "&".join(
    f"${{{name}:queryparam}}" for name in ("datasource", "job", "instance", "model", "server")
)
"""What the reader chose. Not the tenant: some links choose another."""

Link = dict[str, Any]


def _link(title: str, url: str, *, elsewhere: bool = False) -> Link:
    return {"title": title, "url": url, "targetBlank": elsewhere}


AROUND: Final = _link(
    "Before and after this moment",
    f"/d/tailscope-compare?from=${{__value.time}}&to=now&{_KEPT}&${{tenant:queryparam}}",
)
"""The clicked moment becomes the left edge of the time range: what board 7 takes for the change."""

_SHOWN: Final = "window=between&from=${__from:date:iso}&to=${__to:date:iso}"
"""The time range of the board, as the triage app takes it."""

APP: Final = _link("Requests in the triage app", f"${{triage}}/?{_SHOWN}", elsewhere=True)


def tenant(value: str) -> tuple[Link, Link]:
    """Links of one tenant, to its board and to its requests.

    Args:
        value: Grafana's expression for the name of the tenant.
    """
    return (
        _link(
            "This tenant", f"/d/tailscope-tenants?${{__url_time_range}}&{_KEPT}&var-tenant={value}"
        ),
        _link(
            "Its requests in the triage app",
            f"${{triage}}/?tenant={value}&{_SHOWN}",
            elsewhere=True,
        ),
    )


OF_SERIES: Final = tenant("${__field.labels.tenant}")
OF_CELL: Final = tenant("${__value.text}")
