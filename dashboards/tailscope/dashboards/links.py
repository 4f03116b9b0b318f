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


def _of_server(board: str, title: str) -> Link:
    kept = _KEPT.replace("&${server:queryparam}", "")
    url = f"/d/{board}?${{__url_time_range}}&{kept}&${{tenant:queryparam}}"
    return _link(title, f"{url}&var-server=${{__value.text}}")


OF_SERVER: Final = (
    _of_server("tailscope-queue", "The queue of this server"),
    _of_server("tailscope-prefill", "The prefill of this server"),
    _of_server("tailscope-decode", "The decode and the batch of this server"),
)
"""Links of a cell that names a server."""

OF_SERIES: Final = tenant("${__field.labels.tenant}")
OF_CELL: Final = tenant("${__value.text}")
