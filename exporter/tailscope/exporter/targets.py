"""The engines that the user names: a URL, NAME=URL, or a mapping with what the server wants."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from tailscope.address import parse_url, server_name, without_query
from tailscope.catalogue.engines import engines
from tailscope.catalogue.upstream import Engine
from tailscope.errors import UsageError
from tailscope.exporter.access import OPEN, Access

KEYS = ("url", "engine", "prefix", "model", "token-file", "token-env", "ca-file")
"""Keys of the mapping."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server to read.

    Attributes:
        url: Base URL, or with a path that of its metrics.
        engine: Which engine it is; None to find out from what it says.
        access: What the server wants to see.
        model: Name of the served model, for an engine that tells none.
    """

    url: str
    engine: Engine | None
    access: Access = OPEN
    model: str = ""


def parse_targets(texts: Sequence[str]) -> tuple[Target, ...]:
    """Read the values of ``--engine``; a single ``off`` is none.

    Raises:
        UsageError: If one is unusable.
    """
    # YAML reads a bare `off` as its False.
    off = [text for text in texts if text.lower() in ("off", "false")]
    if off and len(texts) > 1:
        raise UsageError(f"--engine {off[0]}: others are given too; leave it out, or all of them")
    return () if off else tuple(parse_target(text) for text in texts)


def parse_target(text: str) -> Target:
    """Read one value of ``--engine``.

    Raises:
        UsageError: If it is unusable. A value that may be a secret is not repeated.
    """
    if text.lstrip().startswith("{"):
        return _from_mapping(_mapping(text))
    name, equals, url = text.partition("=")
    if equals and re.fullmatch(r"[\w-]*", name):
        return Target(_url(url), _engine(name))
    if text in engines():
        raise UsageError(f"--engine {text}: say where, for example {text}=http://127.0.0.1:8000")
    return Target(_url(text), None)


def check_targets(targets: tuple[Target, ...]) -> None:
    """Refuse two targets of one server, for their series would be the same.

    Raises:
        UsageError: If there are two.
    """
    servers: set[str] = set()
    for target in targets:
        server = server_name(target.url)
        if server in servers:
            raise UsageError(
                f"--engine {without_query(target.url)}: {server} is given twice; engines are told "
                "apart by host and port, so give each its own or leave one out"
            )
        servers.add(server)


def _mapping(text: str) -> Mapping[str, str]:
    # Imported only where it is wanted: it takes 1 MiB.
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise UsageError("--engine {...}: a mapping is expected, for example {url: http://a:8000}")
    for key in found:
        if key not in KEYS:
            raise UsageError(f"--engine {{...}}: no key {key!r}; there are {', '.join(KEYS)}")
    if not found.get("url"):
        raise UsageError("--engine {...}: it has no url")
    return {key: str(value) for key, value in found.items() if value is not None}


def _from_mapping(found: Mapping[str, str]) -> Target:
    if "token-file" in found and "token-env" in found:
        raise UsageError("--engine {...}: give token-file or token-env, not both")
    url = _url(found["url"])
    ca_file = Path(found["ca-file"]) if "ca-file" in found else None
    if ca_file is not None and not ca_file.is_file():
        raise UsageError(f"--engine {without_query(url)}: ca-file {ca_file}: there is no such file")
    if ca_file is not None and urlsplit(url).scheme != "https":
        raise UsageError(f"--engine {without_query(url)}: ca-file is for https:// addresses")
    access = Access(
        Path(found["token-file"]) if "token-file" in found else None,
        found.get("token-env", ""),
        ca_file,
    )
    engine = _engine(found["engine"]) if "engine" in found else None
    if prefix := found.get("prefix"):
        if engine is None:
            raise UsageError(f"--engine {{...}}: prefix {prefix}: say which engine it is, too")
        engine = replace(engine, renamed=prefix)
    return Target(url, engine, access, found.get("model", ""))


def _engine(name: str) -> Engine:
    known = engines()
    if name not in known:
        raise UsageError(f"--engine {name}=...: engines are {', '.join(known)}")
    return known[name]


def _url(url: str) -> str:
    return parse_url("--engine", url, "http://127.0.0.1:8000")
