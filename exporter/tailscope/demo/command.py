"""``tailscope demo``: the whole stack on a recording of a real vLLM."""

from __future__ import annotations

import logging
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path

from tailscope.address import Address, choose, parse
from tailscope.demo.recording import BUNDLED, RecordingError, load
from tailscope.demo.stack import Settings, Stack
from tailscope.errors import UsageError
from tailscope.launch.child import ChildError
from tailscope.launch.clock import Clock

_LISTEN = Address("127.0.0.1", 9836)
_APP = Address("127.0.0.1", 8501)
_LONGEST_HISTORY = 1440
"""Minutes: a day of the bundled recording is some 300,000 requests."""
_HIGHEST_PORT = 65535


def configure(parser: ArgumentParser) -> None:
    """Add the flags of ``tailscope demo``."""
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help=f"where the metrics are served (default {_LISTEN}, or a free port if it is taken)",
    )
    parser.add_argument(
        "--port",
        type=_whole(0, _HIGHEST_PORT),
        help=f"port of the triage app (default {_APP.port}, or a free one if it is taken)",
    )
    parser.add_argument(
        "--no-app",
        action="store_true",
        help="run without the triage app, which needs the app extra",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="keep the records here (default: a temporary folder that holds a day at most and is "
        "removed at the end)",
    )
    parser.add_argument(
        "--history",
        type=_whole(0, _LONGEST_HISTORY),
        default=15,
        metavar="MINUTES",
        help="what is played at once, with times in the past, so that the app has a history "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--otlp",
        choices=("grpc", "http"),
        default="grpc",
        help="how spans are sent to the exporter (default grpc, as vLLM does)",
    )
    parser.add_argument(
        "--recording",
        type=Path,
        default=BUNDLED,
        metavar="DIR",
        help="play another recording (`python -m tailscope.demo.cut --help` makes one)",
    )


def run(arguments: Namespace) -> int:
    """Run the demo until SIGINT or SIGTERM; return 1 if one of its processes ends by itself."""
    try:
        recording = load(arguments.recording)
    except RecordingError as error:
        raise UsageError(f"--recording: {error}; leave it out to play the bundled one") from error
    settings = _settings(arguments)
    logging.basicConfig(level=logging.WARNING, format="tailscope demo: %(message)s")
    clock = Clock()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: clock.interrupt())
    _say(recording.notice)
    try:
        Stack(recording, settings, clock, _say).run()
    except (ChildError, OSError) as error:
        print(f"tailscope demo: {error}", file=sys.stderr)
        return 1
    return 0


def _settings(arguments: Namespace) -> Settings:
    listen = parse("--listen", arguments.listen) if arguments.listen else None
    app = None if arguments.port is None else Address(_APP.host, arguments.port)
    return Settings(
        listen=_address("--listen", listen, _LISTEN),
        app=None if arguments.no_app else _address("--port", app, _APP),
        data=arguments.data,
        history_seconds=60.0 * arguments.history,
        otlp_http=arguments.otlp == "http",
    )


def _address(setting: str, asked: Address | None, default: Address) -> Address:
    chosen = choose(setting, asked or default, insist=asked is not None)
    if asked is None and chosen != default:
        _say(f"{default} is taken: using {chosen} instead ({setting} chooses another one)")
    return chosen


def _whole(least: int, most: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise ArgumentTypeError(f"{text!r} is no whole number from {least} to {most}")
        return int(text)

    return convert


def _say(line: str) -> None:
    print(line, flush=True)
