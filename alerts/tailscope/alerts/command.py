"""``tailscope alerts``: writes the Prometheus alert rules, or checks what is committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tailscope.alerts.groups import groups
from tailscope.alerts.prometheus import Links, text
from tailscope.errors import UsageError
from tailscope.generated import reconcile


def configure(parser: Any) -> None:
    """Add the flags."""
    parser.add_argument("action", choices=["build"], help="build: write one YAML file for a group")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("alerts/rules"),
        metavar="DIR",
        help="where the files go (default: %(default)s)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; show how DIR differs, and exit with 1 if it does",
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
        UsageError: If DIR cannot be read or written.
    """
    links = Links(arguments.grafana_url, arguments.runbook_url)
    files = {f"{group.name}.yml": text(group, links) for group in groups()}
    command = f"tailscope alerts build --output {arguments.output}"
    try:
        return reconcile(arguments.output, files, check=arguments.check, command=command)
    except OSError as error:
        raise UsageError(
            f"--output {arguments.output}: {error.strerror or error}; name a folder that can be "
            "written"
        ) from error
