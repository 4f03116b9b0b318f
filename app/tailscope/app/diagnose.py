"""``tailscope diagnose``: the verdict in the terminal, as text or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import pandas as pd

from tailscope.app.gpus import examined
from tailscope.app.source import LOOKBACK_NS
from tailscope.app.terminal import render
from tailscope.app.timespan import duration, instant
from tailscope.errors import UsageError
from tailscope.records.reader import Reader, ReaderError, join_records
from tailscope.records.recordfile import LeftOut, read_records
from tailscope.triage.diagnosis import Diagnosis, Options
from tailscope.triage.hardware import Gpu
from tailscope.triage.report import report
from tailscope.triage.scope import Scope
from tailscope.triage.slow import SlowRule
from tailscope.triage.words import moment

T = TypeVar("T")

LONG = 20_000
"""From so many requests on, what is done is said even where nobody watches a terminal."""

_MAX_NS = 2**63 - 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--data", metavar="DIR", help="store that an exporter writes")
    parser.add_argument(
        "--requests",
        metavar="FILE",
        help="file of request records instead: JSON lines, the same as .gz, or .parquet",
    )
    parser.add_argument(
        "--slow",
        default="p95",
        metavar="p95|TIME",
        help="slow is what took longer above what it would take alone than this percentile, or "
        "what took this time or more in all, such as 2.5s (default %(default)s)",
    )
    parser.add_argument("--since", metavar="TIME", help="the last 15m, 1h, 2d ... up to now")
    parser.add_argument(
        "--from", dest="start", metavar="TIME", help="first arrival, as 2026-11-30T02:10:00Z"
    )
    parser.add_argument("--to", dest="end", metavar="TIME", help="arrivals before this time")
    parser.add_argument("--tenant", action="append", default=[], help="judge its requests alone")
    parser.add_argument("--model", action="append", default=[], help="this model alone")
    parser.add_argument("--server", action="append", default=[], help="this server alone")
    parser.add_argument(
        "--offline",
        action="append",
        default=[],
        metavar="TENANT",
        help="its work is offline: judged by its own measure; may be given several times",
    )
    parser.add_argument(
        "--objective", metavar="TIME", help="p99 of the total time that is promised, such as 10s"
    )
    parser.add_argument(
        "--changed",
        metavar="TIME",
        help="something was changed at this time: compare what came before with what came after",
    )
    parser.add_argument(
        "--force", action="store_true", help="compare less than 30 minutes with --changed, too"
    )
    parser.add_argument("--json", action="store_true", help="for machines; all that is known")


def run(arguments: argparse.Namespace) -> int:
    """Print the diagnosis; 0 says that it ran, whatever it found."""
    options = _options(arguments)
    scope = options.scope
    rejected: Mapping[str, int] = {}
    if arguments.requests:
        frame, rejected = _from_file(Path(arguments.requests))
        gpus: tuple[Gpu, ...] = ()
    else:
        frame, gpus = _from_store(Path(arguments.data), scope)
    progress = _tell if sys.stderr.isatty() or len(frame) >= LONG else None
    found = Diagnosis(frame, options, rejected=rejected, gpus=gpus, progress=progress)
    if arguments.json:
        print(json.dumps(report(found), indent=2, ensure_ascii=False))
        return 0
    print(render(found))
    if not found.finding.window.requests:
        print(_elsewhere(arguments, scope, frame))
    return 0


def _tell(text: str) -> None:
    print(f"{text} ...", file=sys.stderr, flush=True)


def _options(arguments: argparse.Namespace) -> Options:
    objective = _parsed("--objective", arguments.objective, SlowRule.parse)
    if objective is not None and objective.seconds is None:
        raise UsageError(f"--objective {arguments.objective}: give a time, such as 10s")
    return Options(
        scope=_scope(arguments),
        offline=frozenset(arguments.offline),
        objective=None if objective is None else objective.seconds,
        changed_ns=_parsed("--changed", arguments.changed, instant),
        force=arguments.force,
    )


def _scope(arguments: argparse.Namespace) -> Scope:
    if bool(arguments.data) == bool(arguments.requests):
        raise UsageError("give one of --data DIR and --requests FILE")
    if arguments.since and (arguments.start or arguments.end):
        raise UsageError("--since does not go with --from or --to: give one or the other")
    start = _parsed("--from", arguments.start, instant)
    end = _parsed("--to", arguments.end, instant)
    if start is not None and end is not None and end <= start:
        raise UsageError(f"--to {arguments.end} is not after --from {arguments.start}")
    if (since := _parsed("--since", arguments.since, duration)) is not None:
        start = int((time.time() - since) * 1e9)
    return Scope(
        start_ns=start,
        end_ns=end,
        tenants=tuple(arguments.tenant),
        models=tuple(arguments.model),
        servers=tuple(arguments.server),
        slow=_parsed("--slow", arguments.slow, SlowRule.parse) or SlowRule(),
    )


def _parsed(flag: str, text: str | None, parse: Callable[[str], T]) -> T | None:
    if not text:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None


def _from_file(path: Path) -> tuple[pd.DataFrame, Mapping[str, int]]:
    left_out = LeftOut()
    try:
        records = list(read_records(path, left_out))
    except UsageError as error:
        raise UsageError(f"--requests {error}") from None
    if not records:
        why = left_out.named[0] if left_out.named else "the file is empty"
        raise UsageError(f"--requests {path}: no line is a request record; {why}")
    if said := left_out.text():
        print(said, file=sys.stderr)
    return join_records(records), left_out.reasons


def _from_store(directory: Path, scope: Scope) -> tuple[pd.DataFrame, tuple[Gpu, ...]]:
    reader = Reader(directory)
    if not reader.exists():
        raise UsageError(
            f"--data {directory}: no exporter has written there; "
            f"start one with `tailscope exporter --data {directory}`"
        )
    start = max((scope.start_ns or 0) - LOOKBACK_NS, 0)
    try:
        frame = reader.requests(start, _MAX_NS if scope.end_ns is None else scope.end_ns)
        return frame, examined(reader, frame, scope)
    except ReaderError as error:
        raise UsageError(f"--data {directory}: {error}") from None


def _elsewhere(arguments: argparse.Namespace, scope: Scope, frame: pd.DataFrame) -> str:
    """Say where there are requests, if the window has none."""
    filters = [*arguments.tenant, *arguments.model, *arguments.server]
    if scope.window(frame).any():
        return f"Requests are there, but none of {', '.join(filters)}."
    if arguments.requests:
        bounds = (int(frame["arrived_ns"].min()), int(frame["arrived_ns"].max()))
    elif (span := Reader(Path(arguments.data)).span()) is None:
        return "The store is empty: the exporter runs, or ran, but no request record came in."
    else:
        bounds = span
    return f"There are requests from {moment(bounds[0])} to {moment(bounds[1])}."
