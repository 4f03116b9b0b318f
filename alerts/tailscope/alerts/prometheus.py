"""Groups as files of Prometheus rules, and the links that their annotations carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import yaml

from tailscope.alerts.model import Alert, Group, Recording

_HEADER: Final = (
    "# Made by `tailscope alerts build`: change alerts/tailscope/alerts, not this file.\n"
    "# Load it into Prometheus (rule_files), or into Grafana, but not into both: each would page.\n"
)
_FOLLOWED: Final = ("job", "model", "server", "tenant")
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


class _Text(str):
    """Text that is written as it is, line by line."""


class _Dumper(yaml.SafeDumper):
    """Writes what people read: no aliases, and several lines as several lines."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never write an alias."""
        return True


def _literal(dumper: yaml.SafeDumper, text: _Text) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=style)


_Dumper.add_representer(_Text, _literal)


def text(group: Group, links: Links) -> str:
    """Return the content of the group's file."""
    rules = [
        *(_recording(recording) for recording in group.recordings),
        *(_alert(alert, links) for alert in group.alerts),
    ]
    found = {"groups": [{"name": group.name, "interval": group.interval, "rules": rules}]}
    return _HEADER + yaml.dump(found, Dumper=_Dumper, sort_keys=False, width=100_000)


def _recording(recording: Recording) -> dict[str, Any]:
    return {"record": recording.name, "expr": _Text(recording.expr)}


def _alert(alert: Alert, links: Links) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": _Text(alert.expr),
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
