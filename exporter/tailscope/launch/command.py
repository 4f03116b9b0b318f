"""``tailscope run``: the exporter and the triage app together, on one machine."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tailscope.address import choose, parse
from tailscope.launch.child import ChildError
from tailscope.launch.clock import Clock
from tailscope.launch.processes import Processes


def configure(parser: ArgumentParser) -> None:
    """Add the flags of ``tailscope run``."""
    parser.add_argument(
        "--engine",
        action="append",
        metavar="URL",
        help="engine to read; may be given several times (default: what answers at the usual "
        "ports of this machine)",
    )
    parser.add_argument(
        "--requests",
        action="append",
        metavar="FILE",
        help="file of request records to follow; may be given several times",
    )
    parser.add_argument(
        "--gpu",
        default="auto",
        choices=("auto", "nvml", "dcgm", "off"),
        help="what reads the GPUs (default %(default)s)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="directory of the store (default %(default)s)",
    )
    for flag, default, what in (
        ("--listen", "127.0.0.1:9836", "the metrics page"),
        ("--otlp-grpc", "127.0.0.1:4317", "spans over gRPC"),
        ("--otlp-http", "127.0.0.1:4318", "spans over HTTP"),
        ("--app", "127.0.0.1:8501", "the triage app"),
    ):
        parser.add_argument(
            flag,
            default=default,
            metavar="HOST:PORT",
            help=f"address of {what} (default %(default)s)",
        )


def run(arguments: Namespace) -> int:
    """Run both until SIGINT or SIGTERM; return 1 if one of them ends by itself."""
    listen, grpc, http, app = (
        choose(flag, parse(flag, text), insist=True)
        for flag, text in (
            ("--listen", arguments.listen),
            ("--otlp-grpc", arguments.otlp_grpc),
            ("--otlp-http", arguments.otlp_http),
            ("--app", arguments.app),
        )
    )
    flags = ["--otlp-grpc", str(grpc), "--otlp-http", str(http), "--gpu", arguments.gpu]
    for engine in arguments.engine or ():
        flags += ["--engine", engine]
    for path in arguments.requests or ():
        flags += ["--requests", path]
    clock = Clock()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: clock.interrupt())
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(TemporaryDirectory(prefix="tailscope-run-")))
        processes = Processes(folder, clock, _say)
        cleanup.callback(processes.end)
        try:
            if processes.start_exporter(listen, arguments.data, *flags):
                _say(f"  spans            {grpc} (gRPC), {http} (HTTP)")
                if processes.start_app(app, arguments.data, "--address", app.host):
                    processes.watch()
        except ChildError as error:
            print(f"tailscope run: {error}", file=sys.stderr)
            return 1
    return 0


def _say(line: str) -> None:
    print(line, flush=True)
