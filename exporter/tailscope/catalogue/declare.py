"""Short ways to write an engine's entries down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from tailscope.catalogue.model import PREFIX, Ignored
from tailscope.catalogue.upstream import Derived, Operation, Part, Upstream

PYTHON = Ignored(re.compile(r"(python|process)_.*"), "the Python process, not the engine")
"""What the Python client adds to each page."""

RAY = Ignored(re.compile(r"ray_(?!vllm|sglang).*"), "Ray itself, not the engine")
"""What stands on the page of a Ray node beside its engines."""


def to(
    metric: str,
    *families: str,
    scale: float = 1.0,
    labels: Mapping[str, str] | None = None,
    fixed: Mapping[str, str] | None = None,
    only: Mapping[str, tuple[str, ...]] | None = None,
    total_under: tuple[str, ...] = (),
    product_of: tuple[str, ...] = (),
    part: Part = Part.WHOLE,
) -> Upstream:
    """Map families onto the engine metric of that name, without ``tailscope_engine_``."""
    return Upstream(
        f"{PREFIX}engine_{metric}",
        families,
        scale,
        MappingProxyType(dict(labels or {})),
        MappingProxyType(dict(fixed or {})),
        MappingProxyType(dict(only or {})),
        total_under,
        product_of,
        part,
    )


def at_gateway(
    metric: str,
    *families: str,
    labels: Mapping[str, str] | None = None,
    only: Mapping[str, tuple[str, ...]] | None = None,
    part: Part = Part.WHOLE,
) -> Upstream:
    """Map families onto the gateway metric of that name, without ``tailscope_gateway_``."""
    entry = to(metric, *families, labels=labels, only=only, part=part)
    return replace(entry, metric=f"{PREFIX}gateway_{metric}")


def term(
    name: str,
    *families: str,
    scale: float = 1.0,
    only: Mapping[str, tuple[str, ...]] | None = None,
    total_under: tuple[str, ...] = (),
    product_of: tuple[str, ...] = (),
    part: Part = Part.WHOLE,
) -> Upstream:
    """Map families onto a term of the engine."""
    return Upstream(
        name,
        families,
        scale,
        only=MappingProxyType(dict(only or {})),
        total_under=total_under,
        product_of=product_of,
        part=part,
    )


def derive(
    metric: str,
    operation: Operation,
    *operands: str,
    optional: tuple[str, ...] = (),
    fixed: Mapping[str, str] | None = None,
) -> Derived:
    """Compute the engine metric of that name from terms."""
    return Derived(
        f"{PREFIX}engine_{metric}", operation, operands, optional, MappingProxyType(fixed or {})
    )


def ignore(pattern: str, reason: str) -> Ignored:
    """Leave families out, by a regular expression over their whole names."""
    return Ignored(re.compile(pattern), reason)
