"""Groups as Prometheus rules, and the links that their annotations carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailscope.alerts.model import Alert, Group, Recording
from tailscope.alerts.yamltext import Text, dump

_HEADER: Final = (
    "# Made by `tailscope alerts build`: change alerts/tailscope/alerts, not this file.\n"
    "# Load it into Prometheus (rule_files), or into Grafana, but not into both: each would page.\n"
)
_RECORDINGS_HEADER: Final = (
    "# Made by `tailscope alerts build`: change alerts/tailscope/alerts, not this file.\n"
    "# For Prometheus (rule_files) where Grafana alerts: what the Grafana rules build on.\n"
)
_FOLLOWED: Final = ("job", "instance", "model", "server", "tenant", "gpu")
"""Labels that are variables of the boards too: the link chooses by them."""


@dataclass(frozen=True, slots=True)
class Links:
    """Where links go.

    Attributes:
        grafana: Address of Grafana; empty makes a path, which Grafana itself understands.
        runbooks: Address of the folder with the runbooks.
    """

    grafana: str = ""
    runbooks: str = "docs/runbooks"

    def runbook(self, alert: Alert) -> str:
        """Where the alert's runbook is."""
        return f"{self.runbooks.rstrip('/')}/{alert.name}.md"

    def dashboard(self, alert: Alert) -> str:
        """Where the alert's panel is, with the alert's own labels chosen."""
        chosen = [
            f"&var-{label}={{{{ urlquery .Labels.{label} }}}}"
            for label in _FOLLOWED
            if label in alert.labels
        ]
        path = f"/d/{alert.panel.board}?viewPanel={alert.panel.panel}"
        return self.grafana.rstrip("/") + path + "".join(chosen)


def text(group: Group, links: Links) -> str:
    """Return the content of the group's file."""
    return _HEADER + dump({"groups": [rules(group, links)]})


def recordings(groups: Sequence[Group]) -> str:
    """Return the content of a file with the recording rules alone."""
    found = [
        _group(group, [_recording(each) for each in group.recordings])
        for group in groups
        if group.recordings
    ]
    return _RECORDINGS_HEADER + dump({"groups": found})


def rules(group: Group, links: Links) -> dict[str, Any]:
    """Return the group as Prometheus and its operator have it, recordings first."""
    return _group(
        group,
        [
            *(_recording(recording) for recording in group.recordings),
            *(_alert(alert, links) for alert in group.alerts),
        ],
    )


def _group(group: Group, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": group.name, "interval": group.interval, "rules": rules}


def _recording(recording: Recording) -> dict[str, Any]:
    return {
        "record": recording.name,
        "expr": Text(recording.expr),
        **({"labels": dict(recording.labels)} if recording.labels else {}),
    }


def _alert(alert: Alert, links: Links) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": Text(alert.expr),
        "for": alert.lasts,
        **({"keep_firing_for": alert.lingers} if alert.lingers else {}),
        "labels": {"severity": str(alert.severity), "cause": alert.cause},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": links.runbook(alert),
            "dashboard_url": links.dashboard(alert),
        },
    }
