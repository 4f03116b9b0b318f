"""``tailscope dashboards``: writes the Grafana dashboards, or checks what is committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tailscope.dashboards.boards import boards
from tailscope.errors import UsageError
from tailscope.generated import reconcile


def configure(parser: Any) -> None:
    """Add the flags."""
    parser.add_argument("action", choices=["build"], help="build: write one JSON file for a board")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("dashboards/json"),
        metavar="DIR",
        help="where the files go (default: %(default)s)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; show how DIR differs, and exit with 1 if it does",
    )


def run(arguments: Any) -> int:
    """Write or check the files.

    Raises:
        UsageError: If DIR cannot be read or written.
    """
    files = {f"{board.uid}.json": board.text() for board in boards()}
    command = f"tailscope dashboards build --output {arguments.output}"
    try:
        return reconcile(arguments.output, files, check=arguments.check, command=command)
    except OSError as error:
        raise UsageError(
            f"--output {arguments.output}: {error.strerror or error}; name a folder that can be "
            "written"
        ) from error
