"""All groups as one ``PrometheusRule``, for the Prometheus operator on Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailscope.alerts.model import Group
from tailscope.alerts.prometheus import Links, rules
from tailscope.alerts.yamltext import dump

_HEADER: Final = (
    "# Made by `tailscope alerts build`: change alerts/tailscope/alerts, not this file.\n"
    "# Apply it with kubectl, and give it the labels that your operator's ruleSelector wants.\n"
)


def text(groups: Sequence[Group], links: Links) -> str:
    """Return the content of the file."""
    return _HEADER + dump(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": "tailscope", "labels": {"app.kubernetes.io/name": "tailscope"}},
            "spec": {"groups": [rules(group, links) for group in groups]},
        }
    )
