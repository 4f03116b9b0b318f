"""All groups as Grafana's file provisioning of alert rules.

Not grafanalib's own output, which nests each rule as the HTTP API has it; the provisioner then says
"rule has no title set" and Grafana does not start. The shapes are those of its
``pkg/services/provisioning/alerting/rules_types.go``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from tailscope.alerts.model import Alert, Group
from tailscope.alerts.prometheus import Links
from tailscope.alerts.yamltext import Text, dump

_HEADER: Final = (
    "# Made by `tailscope alerts build`: change alerts/tailscope/alerts, not this file.\n"
    "# For /etc/grafana/provisioning/alerting; set TAILSCOPE_PROMETHEUS_UID, the uid of the data\n"
    "# source, where Grafana starts. Needs ../recordings in Prometheus, and none of ../rules:\n"
    "# both would page.\n"
)
_SOURCE: Final = "${TAILSCOPE_PROMETHEUS_UID}"
_FOLDER: Final = "Tailscope"
_LOOK_BACK: Final = 600
"""Seconds that Grafana asks for, of which it takes the last moment."""
_INTERVAL: Final = "1m"
"""Of every group: Grafana takes multiples of 10 s, and one version failed on others than this."""
_VALUE: Final = re.compile(r"\.Value\b")


def text(groups: Sequence[Group], links: Links) -> str:
    """Return the content of the file."""
    return _HEADER + dump(
        {"apiVersion": 1, "groups": [_group(group, links) for group in groups if group.alerts]}
    )


def uid(alert: Alert) -> str:
    """Return the alert's name in Grafana: its words in small letters, at most 40 characters."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", alert.name).lower()


def _group(group: Group, links: Links) -> dict[str, Any]:
    return {
        "orgId": 1,
        "name": group.name,
        "folder": _FOLDER,
        "interval": _INTERVAL,
        "rules": [_rule(alert, links) for alert in group.alerts],
    }


def _rule(alert: Alert, links: Links) -> dict[str, Any]:
    return {
        "uid": uid(alert),
        "title": alert.name,
        "condition": "B",
        "data": [_query(alert), _condition()],
        # The expression is itself the condition: nothing means that nothing is wrong. What is
        # missing has an alert of its own.
        "noDataState": "OK",
        "execErrState": "Error",
        "for": "0s" if alert.lasts == "0m" else alert.lasts,
        **({"keepFiringFor": alert.lingers} if alert.lingers else {}),
        "dashboardUid": alert.panel.board,
        "panelId": alert.panel.panel,
        "labels": {"severity": str(alert.severity), "cause": alert.cause},
        "annotations": {
            "summary": _template(alert.summary),
            "description": _template(alert.description),
            "runbook_url": links.runbook(alert),
            "dashboard_url": links.dashboard(alert),
            "__dashboardUid__": alert.panel.board,
            "__panelId__": str(alert.panel.panel),
        },
        "isPaused": False,
    }


def _template(text: str) -> str:
    """Prometheus' ``.Value`` is a number; Grafana's is a text, and the number is elsewhere."""
    return _VALUE.sub("$values.A.Value", text)


def _query(alert: Alert) -> dict[str, Any]:
    return {
        "refId": "A",
        "relativeTimeRange": {"from": _LOOK_BACK, "to": 0},
        "datasourceUid": _SOURCE,
        "model": {
            "refId": "A",
            "editorMode": "code",
            "expr": Text(alert.expr),
            "instant": True,
            "range": False,
            "intervalMs": 1000,
            "maxDataPoints": 43200,
        },
    }


def _condition() -> dict[str, Any]:
    """Any number: ``up == 0`` has the value 0, which as a condition of its own would be false."""
    return {
        "refId": "B",
        "relativeTimeRange": {"from": _LOOK_BACK, "to": 0},
        "datasourceUid": "__expr__",
        "model": {
            "refId": "B",
            "type": "math",
            "datasource": {"type": "__expr__", "uid": "__expr__"},
            "expression": "is_number($A)",
        },
    }
