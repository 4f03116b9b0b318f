"""Settings of the exporter, checked before anything starts."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tailscope.address import Address
from tailscope.address import parse as parse_address
from tailscope.errors import UsageError
from tailscope.exporter.gpus import DCGM_URL, GpuChoice, dcgm_url
from tailscope.exporter.targets import KEYS, Target, check_targets, parse_targets
from tailscope.records.declaration import declared
from tailscope.records.formats import formats, told_format
from tailscope.records.formats.model import Format
from tailscope.records.tenancy import Pseudonyms, TenantRule
from tailscope.records.tenantflags import configure_tenants, parse_tenants

_T = TypeVar("_T")

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_MIN_INTERVAL = 0.1
_MAX_TENANTS = 1000

# Their flags have no default, so that one can tell whether the user gave them.
_RETENTION = "7d"
_MAX_BYTES = "10GB"


@dataclass(frozen=True, slots=True)
class RequestFile:
    """A file of request records.

    Attributes:
        path: Its name, or a pattern of names.
        format: What it holds; None to recognise each line.
    """

    path: Path
    format: Format | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, with units as said.

    Attributes:
        targets: Engines to read.
        listen: Address of the metrics page.
        otlp_grpc: Address of OTLP over gRPC; None for none.
        otlp_http: Address of OTLP over HTTP; None for none.
        requests: Files of request records to follow.
        data: Directory of the store; None to keep nothing.
        interval: Seconds from one read of a source to the next.
        retention: Seconds that records are kept; None for ever.
        max_bytes: Bytes that the store may take; None for any.
        tenants: Tenants that get series of their own.
        tenant_rules: Where the tenant is, best first.
        log_level: Lowest level that is logged.
        gpu: What reads the GPUs.
        dcgm_url: URL of a dcgm-exporter; None for the usual one, if there is any.
        pseudonyms: Hides the tenants' names; None to keep them.
        formats: Formats of files that the user declared.
        discover: Whether to look for engines on this machine.
    """

    targets: tuple[Target, ...]
    listen: Address
    otlp_grpc: Address | None
    otlp_http: Address | None
    requests: tuple[RequestFile, ...]
    data: Path | None
    interval: float
    retention: float | None
    max_bytes: int | None
    tenants: int
    tenant_rules: tuple[TenantRule, ...]
    log_level: str
    gpu: GpuChoice = GpuChoice.AUTO
    dcgm_url: str | None = None
    pseudonyms: Pseudonyms | None = None
    formats: tuple[Format, ...] = ()
    discover: bool = False


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the exporter's flags."""
    parser.add_argument(
        "--engine",
        action="append",
        metavar="URL",
        help="engine to read, as URL, as NAME=URL, or as a mapping with the keys "
        f"{', '.join(KEYS)}; without a path, at the engine's usual one; may be given several "
        "times, or `off` (default: what answers at the usual ports of this machine)",
    )
    parser.add_argument(
        "--gpu",
        default="auto",
        choices=[choice.value for choice in GpuChoice],
        help="what reads the GPUs: NVIDIA's library NVML, a dcgm-exporter, none, or `auto`: NVML, "
        "and a dcgm-exporter for what NVML does not know of older GPUs (default %(default)s)",
    )
    parser.add_argument(
        "--dcgm-url",
        metavar="URL",
        help=f"metrics of a dcgm-exporter (default {DCGM_URL}, if there is one)",
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:9836",
        metavar="HOST:PORT",
        help="address of the metrics page (default %(default)s)",
    )
    parser.add_argument(
        "--otlp-grpc",
        default="127.0.0.1:4317",
        metavar="HOST:PORT",
        help="address for spans over gRPC, or `off` (default %(default)s)",
    )
    parser.add_argument(
        "--otlp-http",
        default="127.0.0.1:4318",
        metavar="HOST:PORT",
        help="address for spans over HTTP, or `off` (default %(default)s)",
    )
    parser.add_argument(
        "--requests",
        action="append",
        metavar="[FORMAT=]FILE",
        help="file of request records to follow as it grows, or a pattern such as '/logs/*.jsonl': "
        "from its beginning with --data, from its end without; lines in the record's columns or a "
        f"known format are recognised, or told: {', '.join(formats())}; may be given several times",
    )
    parser.add_argument(
        "--request-format",
        metavar="YAML",
        help="formats of your own, as {NAME: {COLUMN: KEY, ...}}; docs/records.md has examples",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="directory of the store; without it records are counted and not kept",
    )
    parser.add_argument(
        "--interval",
        default="1s",
        metavar="TIME",
        help="time from one read of a source to the next (default %(default)s)",
    )
    parser.add_argument(
        "--retention",
        metavar="TIME",
        help=f"how long records are kept, or `off` (default {_RETENTION})",
    )
    parser.add_argument(
        "--max-bytes",
        metavar="SIZE",
        help="size of the store above which the oldest records go, or `off` "
        f"(default {_MAX_BYTES})",
    )
    parser.add_argument(
        "--tenants",
        type=int,
        default=50,
        metavar="N",
        help="tenants that get metrics of their own; the rest counts as `other` "
        "(default %(default)s)",
    )
    configure_tenants(parser)
    parser.add_argument(
        "--log-level",
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="lowest level that is logged (default %(default)s)",
    )


def parse(arguments: argparse.Namespace) -> Config:
    """Check the flags.

    Raises:
        UsageError: If a value is unusable, or two contradict each other.
    """
    _needs_store(arguments)
    own = declared("--request-format", arguments.request_format)
    rules, pseudonyms = parse_tenants(arguments)
    config = Config(
        targets=parse_targets(arguments.engine or ()),
        listen=parse_address("--listen", arguments.listen),
        otlp_grpc=_off(parse_address, "--otlp-grpc", arguments.otlp_grpc),
        otlp_http=_off(parse_address, "--otlp-http", arguments.otlp_http),
        requests=tuple(_request_file(text, own) for text in arguments.requests or ()),
        data=Path(arguments.data) if arguments.data else None,
        interval=duration("--interval", arguments.interval),
        retention=_off(duration, "--retention", arguments.retention or _RETENTION),
        max_bytes=_off(size, "--max-bytes", arguments.max_bytes or _MAX_BYTES),
        tenants=arguments.tenants,
        tenant_rules=rules,
        log_level=arguments.log_level,
        gpu=GpuChoice(arguments.gpu),
        dcgm_url=dcgm_url(GpuChoice(arguments.gpu), arguments.dcgm_url),
        pseudonyms=pseudonyms,
        formats=tuple(own.values()),
        discover=not arguments.engine,
    )
    _check_numbers(config)
    _check_listeners(config)
    _check_sources(config)
    return config


def _needs_store(arguments: argparse.Namespace) -> None:
    for flag, text in (
        ("--retention", arguments.retention),
        ("--max-bytes", arguments.max_bytes),
    ):
        if text and not arguments.data:
            raise UsageError(f"{flag} {text}: nothing is kept without a store; add --data DIR")


def _check_numbers(config: Config) -> None:
    if config.interval < _MIN_INTERVAL:
        raise UsageError(
            f"--interval {config.interval:g}s: at least {_MIN_INTERVAL:g}s, or the reading "
            "itself becomes the load"
        )
    if not 1 <= config.tenants <= _MAX_TENANTS:
        raise UsageError(
            f"--tenants {config.tenants}: from 1 to {_MAX_TENANTS}, for each has series of its own"
        )


def _check_listeners(config: Config) -> None:
    taken: dict[Address, str] = {}
    for flag, address in (
        ("--listen", config.listen),
        ("--otlp-grpc", config.otlp_grpc),
        ("--otlp-http", config.otlp_http),
    ):
        if address is None or not address.port:
            continue
        if address in taken:
            raise UsageError(
                f"{flag} {address}: {taken[address]} has the same address; give each its own"
            )
        taken[address] = flag


def _check_sources(config: Config) -> None:
    """Refuse two sources of one name, for their series would be the same."""
    names: set[str] = set()
    for path in (file.path for file in config.requests):
        if path.name in names:
            raise UsageError(
                f"--requests {path}: two files are called {path.name}; sources are told apart by "
                "their file's name, so rename one"
            )
        names.add(path.name)
    check_targets(config.targets)


def _request_file(text: str, own: Mapping[str, Format]) -> RequestFile:
    form, path = told_format("--requests", text, own)
    return RequestFile(path, form)


def _off(parse: Callable[[str, str], _T], flag: str, text: str) -> _T | None:
    # YAML reads a bare `off` as its False.
    return None if text.lower() in ("off", "false") else parse(flag, text)


def duration(flag: str, text: str) -> float:
    """Read a time such as 500ms, 1s, 15m, 6h, 7d as seconds.

    Raises:
        UsageError: If it is none, or not above 0.
    """
    hit = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
    if not hit or float(hit[1]) <= 0:
        raise UsageError(f"{flag} {text}: give a time above 0, for example 1s, 15m or 7d")
    return float(hit[1]) * _UNITS[hit[2]]


def size(flag: str, text: str) -> int:
    """Read a size such as 500MB, 10GB, 2GiB as bytes.

    Raises:
        UsageError: If it is none, or not above 0.
    """
    hit = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]i?B)?", text, re.IGNORECASE)
    if not hit or float(hit[1]) <= 0:
        raise UsageError(f"{flag} {text}: give a size above 0, for example 500MB or 10GB")
    return int(float(hit[1]) * _SIZES[(hit[2] or "").upper()])
