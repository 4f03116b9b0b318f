"""``tailscope app``: starts Streamlit on the pages."""

from __future__ import annotations

import argparse
import ipaddress
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from tailscope.app import headers
from tailscope.app.roles import Roles
from tailscope.app.settings import Settings
from tailscope.errors import UsageError

_HERE = Path(__file__).parent

OPTIONS: Mapping[str, str] = {
    "browser.gatherUsageStats": "false",
    "client.disableDataExport": "true",
    "client.showErrorLinks": "false",
    "client.toolbarMode": "viewer",
    "global.developmentMode": "false",
    "runner.fastReruns": "true",
    "server.fileWatcherType": "none",
    "server.headless": "true",
    "server.runOnSave": "false",
    "server.showEmailPrompt": "false",
    "theme.base": str(_HERE / "theme.toml"),
}
"""Streamlit's options. As flags they win over every configuration file of the user.

Tables cannot be saved by Streamlit's own button, which would take single requests and the names of
tenants with few of them along.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="DIR",
        help="store that an exporter writes; may be given several times, and is then read as one",
    )
    parser.add_argument(
        "--prometheus",
        default="",
        metavar="URL",
        help="server with Prometheus' HTTP interface: gives the series that the stores lack",
    )
    parser.add_argument(
        "--prometheus-headers",
        type=Path,
        metavar="FILE",
        help="HTTP headers for it, one `Name: value` a line, for example an Authorization",
    )
    parser.add_argument(
        "--roles",
        type=Path,
        metavar="FILE",
        help="TOML file that says who may see what; whoever looks has to log in (see docs/app.md)",
    )
    parser.add_argument(
        "--secrets",
        type=Path,
        metavar="FILE",
        help="Streamlit's secrets.toml with the [auth] section of the login",
    )
    parser.add_argument(
        "--runbook-url",
        default="docs/runbooks",
        metavar="URL",
        help="where the runbooks are (default %(default)s)",
    )
    parser.add_argument(
        "--port", type=int, default=8501, help="port of the page (default %(default)s)"
    )
    parser.add_argument(
        "--address",
        default="127.0.0.1",
        help="address to listen on; whoever reaches it sees all tenants (default %(default)s)",
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="further host name by which browsers reach the page, for example that of a reverse "
        "proxy; may be given several times",
    )
    parser.add_argument("--notice", default="", metavar="TEXT", help="text at the top of the page")


def run(arguments: argparse.Namespace) -> int:
    """Become Streamlit: signals and the exit status are then its own."""
    if not 1 <= arguments.port <= 65535:
        raise UsageError(f"--port {arguments.port}: it must be between 1 and 65535")
    settings = _settings(arguments)
    _check_free(arguments.address, arguments.port)
    command = [sys.executable, "-P", "-m", "streamlit", "run", str(_HERE / "main.py")]
    address = {"server.address": arguments.address, "server.port": str(arguments.port)}
    options = {**OPTIONS, **address}
    if arguments.roles is not None:
        options["client.showErrorDetails"] = "none"
    if arguments.secrets is not None:
        options["secrets.files"] = str(arguments.secrets.absolute())
    command += [f"--{name}={value}" for name, value in options.items()]
    command += [f"--server.allowedHosts={name}" for name in _hosts(arguments)]
    sys.stdout.flush()
    os.execve(sys.executable, command, {**os.environ, **settings.environment()})  # noqa: S606


def _settings(arguments: argparse.Namespace) -> Settings:
    stores = tuple(Path(name) for name in arguments.data)
    for data in stores:
        if data.exists() and not data.is_dir():
            raise UsageError(f"--data {data}: this is a file; name the directory of a store")
    url = arguments.prometheus
    if not stores and not url:
        raise UsageError("--data is missing: name the directory of a store, or --prometheus URL")
    if url and not url.startswith(("http://", "https://")):
        raise UsageError(f"--prometheus {url}: it must begin with http:// or https://")
    headers.read(arguments.prometheus_headers)
    if arguments.roles is not None:
        Roles.read(arguments.roles)
    if arguments.secrets is not None and not arguments.secrets.is_file():
        raise UsageError(f"--secrets {arguments.secrets}: there is no such file")
    return Settings(
        stores,
        arguments.notice,
        url,
        arguments.prometheus_headers,
        arguments.roles,
        arguments.runbook_url,
    )


def _hosts(arguments: argparse.Namespace) -> list[str]:
    """Names by which the page may be reached.

    On loopback other names are refused, so that no web page can read the app through a name that
    points to this machine. On other addresses only those who run it know the names.
    """
    if not arguments.host and not _is_loopback(arguments.address):
        return []
    return sorted({"localhost", "127.0.0.1", "::1", arguments.address, *arguments.host})


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _check_free(address: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise UsageError(
                f"cannot listen on {address}:{port}: {error.strerror}; choose another --port"
            ) from None
