"""``tailscope alerts``: writes the alert rules in three forms, or checks what is committed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tailscope.alerts import grafana, operator, prometheus
from tailscope.alerts.groups import groups
from tailscope.alerts.prometheus import Links
from tailscope.alerts.thresholds import Limits, limits, read
from tailscope.errors import UsageError
from tailscope.generated import reconcile


def configure(parser: Any) -> None:
    """Add the flags."""
    parser.add_argument(
        "action",
        choices=["build"],
        help="build: write the rules for Prometheus, for its operator and for Grafana",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("alerts"),
        metavar="DIR",
        help="where the folders rules, operator, grafana and recordings go (default: %(default)s)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; show how DIR differs, and exit with 1 if it does",
    )
    parser.add_argument(
        "--thresholds",
        type=Path,
        metavar="FILE",
        help="YAML with objectives, timeouts and thresholds of your own; it may leave out any",
    )
    parser.add_argument(
        "--grafana-url",
        default=Links().grafana,
        metavar="URL",
        help="address of Grafana, for the links to the panels (default: a path without it)",
    )
    parser.add_argument(
        "--runbook-url",
        default=Links().runbooks,
        metavar="URL",
        help="where the runbooks are (default: %(default)s)",
    )


def run(arguments: Any) -> int:
    """Write or check the files.

    Raises:
        UsageError: If DIR cannot be read or written, or FILE is not as it should be.
    """
    chosen = read(arguments.thresholds) if arguments.thresholds else limits()
    links = Links(arguments.grafana_url, arguments.runbook_url)
    command = f"tailscope alerts build --output {arguments.output}"
    try:
        found = [
            reconcile(arguments.output / folder, files, check=arguments.check, command=command)
            for folder, files in _folders(chosen, links).items()
        ]
    except OSError as error:
        raise UsageError(
            f"--output {arguments.output}: {error.strerror or error}; name a folder that can be "
            "written"
        ) from error
    return max(found)


def _folders(chosen: Limits, links: Links) -> Mapping[str, Mapping[str, str]]:
    """Every form, by its folder: content by file name."""
    all_groups = groups(chosen)
    return {
        "rules": {f"{group.name}.yml": prometheus.text(group, links) for group in all_groups},
        "recordings": {"tailscope-recordings.yml": prometheus.recordings(all_groups)},
        "operator": {"tailscope.yaml": operator.text(all_groups, links)},
        "grafana": {"tailscope.yaml": grafana.text(all_groups, links)},
    }
