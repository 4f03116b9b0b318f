"""What happened: lines across every panel of every board."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tailscope.catalogue.promql import Query, compare, either, unless
from tailscope.dashboards.query import SCOPE
from tailscope.dashboards.style import DATASOURCE, Colour

_JUST_NOW: Final = Query("2m", SCOPE)
_KNOWN: Final = Query("1d", SCOPE, offset="1m")
"""What was last seen a minute ago or before, however long a restart took."""

_MODEL: Final = ("server", "model")
_VERSION: Final = ("instance", "version")
_CAPACITY: Final = "engine_kv_cache_capacity_tokens"
_RUNNING: Final = "engine_requests_running"


def _changed() -> str:
    """For a minute after: another size of the cache, another model, another exporter."""
    return either(
        compare(
            _JUST_NOW.gauge(_CAPACITY, _MODEL),
            "!=",
            _KNOWN.last(_CAPACITY, _MODEL),
            on=_MODEL,
        ),
        _unless_known(_RUNNING, _MODEL),
        _unless_known("build_info", _VERSION),
    )


def _unless_known(gauge: str, labels: tuple[str, ...]) -> str:
    """Series of the labels that were not there before, on what was there."""
    return unless(_JUST_NOW.gauge(gauge, labels), _KNOWN.last(gauge, labels), on=labels)


def _annotation(
    name: str, colour: Colour, expr: str, title: str, text: str, tags: str
) -> dict[str, Any]:
    return {
        "datasource": DATASOURCE,
        "enable": True,
        "expr": expr,
        "hide": False,
        "iconColor": colour,
        "name": name,
        "step": "60s",
        "tagKeys": tags,
        "textFormat": text,
        "titleFormat": title,
    }


ANNOTATIONS: Final[tuple[dict[str, Any], ...]] = (
    {
        "builtIn": 1,
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": True,
        "hide": True,
        "iconColor": Colour.SKY,
        "name": "Annotations & Alerts",
        "type": "dashboard",
    },
    _annotation(
        "Engine restarts",
        Colour.PINK,
        compare(_JUST_NOW.increase("source_resets_total", ("source",)), ">", 0),
        "Restart",
        "Counters of {{source}} went back",
        "source",
    ),
    _annotation(
        "Configuration changes",
        Colour.VIOLET,
        _changed(),
        "Change",
        "Another cache size, model or exporter: {{server}} {{model}} {{instance}} {{version}}",
        "server,model,instance,version",
    ),
    _annotation(
        "Firing alerts",
        Colour.RED,
        replace(_JUST_NOW, where={}).firing("Tailscope.*", ("server",)),
        "{{alertname}}",
        "{{severity}}, cause {{cause}} {{server}}",
        "alertname,severity",
    ),
)
