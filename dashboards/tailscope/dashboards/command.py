"""``tailscope dashboards``: writes the boards, pushes them into Grafana, or draws them without."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tailscope.dashboards.board import Board
from tailscope.dashboards.boards import boards
from tailscope.dashboards.grafana import Grafana
from tailscope.dashboards.preview.command import preview
from tailscope.dashboards.preview.prometheus import Prometheus
from tailscope.dashboards.push import push
from tailscope.dashboards.service import Login
from tailscope.errors import UsageError
from tailscope.generated import reconcile

_DURATION: Final = re.compile(r"(\d+)([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FOLDERS: Final = {"build": Path("dashboards/json"), "preview": Path("preview")}


def configure(parser: Any) -> None:
    """Add the flags."""
    parser.add_argument(
        "action",
        choices=["build", "push", "preview"],
        help="build: write one JSON file for a board; push: bring the boards into a Grafana; "
        "preview: draw them from a Prometheus, without Grafana",
    )
    parser.add_argument(
        "--board",
        action="append",
        metavar="UID",
        help="push and preview: this board alone, for example tailscope-triage (repeatable)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="build and preview: where the files go (default: dashboards/json, preview)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="build: write nothing; show how DIR differs, and exit with 1 if it does",
    )
    _configure_push(parser)
    _configure_preview(parser)


def _configure_push(parser: Any) -> None:
    parser.add_argument("--grafana-url", metavar="URL", help="push: address of Grafana")
    parser.add_argument(
        "--grafana-token", metavar="TOKEN", default="", help="push: token of a service account"
    )
    parser.add_argument("--grafana-user", metavar="NAME", default="", help="push: user's name")
    parser.add_argument("--grafana-password", metavar="TEXT", default="", help="push: password")
    parser.add_argument(
        "--folder",
        metavar="TITLE",
        default="Tailscope",
        help="push: folder in Grafana; it is made if it is missing (default: %(default)s)",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="push: replace boards that are there with another content",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="push: change nothing; say what would be done"
    )


def _configure_preview(parser: Any) -> None:
    parser.add_argument("--prometheus", metavar="URL", help="preview: Prometheus with the data")
    parser.add_argument(
        "--last",
        default="1h",
        metavar="TIME",
        help="preview: time range until now, for example 30m (default: %(default)s)",
    )
    parser.add_argument(
        "--scrape",
        default="15s",
        metavar="TIME",
        help="preview: how often Prometheus scrapes (default: %(default)s)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="preview: value of a variable of the boards, for example tenant=acme (repeatable)",
    )
    parser.add_argument(
        "--png", action="store_true", help="preview: take a picture of each page too"
    )


def run(arguments: Any) -> int:
    """Do what the action says.

    Raises:
        UsageError: If a flag is missing or wrong, or the other side does not answer.
    """
    chosen = _chosen(arguments.board or ())
    if arguments.action == "push":
        return _push(arguments, chosen)
    directory = arguments.output or _FOLDERS[arguments.action]
    try:
        if arguments.action == "preview":
            return _preview(arguments, chosen, directory)
        return _build(arguments, directory)
    except OSError as error:
        raise UsageError(
            f"--output {directory}: {error.strerror or error}; name a folder that can be written"
        ) from error


def _chosen(uids: Sequence[str]) -> Sequence[Board]:
    known = {board.uid: board for board in boards()}
    for uid in uids:
        if uid not in known:
            raise UsageError(f"--board {uid}: there is none; there are {', '.join(known)}")
    return [known[uid] for uid in uids] or list(known.values())


def _build(arguments: Any, directory: Path) -> int:
    files = {f"{board.uid}.json": board.text() for board in boards()}
    command = f"tailscope dashboards build --output {directory}"
    return reconcile(directory, files, check=arguments.check, command=command)


def _push(arguments: Any, chosen: Sequence[Board]) -> int:
    if not arguments.grafana_url:
        raise UsageError("--grafana-url is missing; give it, for example http://127.0.0.1:3000")
    token = arguments.grafana_token.strip()
    if not (token.isascii() and token.isprintable()):
        raise UsageError("--grafana-token: it has a character that no token has; copy it anew")
    login = Login(token, arguments.grafana_user, arguments.grafana_password)
    push(
        Grafana(arguments.grafana_url, login),
        chosen,
        arguments.folder,
        overwrite=arguments.overwrite,
        dry_run=arguments.dry_run,
    )
    return 0


def _preview(arguments: Any, chosen: Sequence[Board], directory: Path) -> int:
    if not arguments.prometheus:
        raise UsageError("--prometheus is missing; give it, for example http://127.0.0.1:9090")
    preview(
        chosen,
        Prometheus(arguments.prometheus),
        directory,
        seconds=_seconds("--last", arguments.last),
        scrape=_seconds("--scrape", arguments.scrape),
        chosen=dict(_pair(text) for text in arguments.set),
        png=arguments.png,
    )
    return 0


def _seconds(flag: str, text: str) -> float:
    hit = _DURATION.fullmatch(text)
    if hit is None or not int(hit[1]):
        raise UsageError(f"{flag} {text}: give a time such as 90s, 15m, 6h or 2d")
    return int(hit[1]) * _SECONDS[hit[2]]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text}: give NAME=VALUE, for example tenant=acme")
    return name, value
