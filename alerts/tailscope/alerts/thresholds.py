"""Every number that an alert compares with, read from ``thresholds.yaml`` or a copy of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Any, Final

import yaml

from tailscope.catalogue.requests import SECONDS_BUCKETS
from tailscope.errors import UsageError


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit.

    Attributes:
        value: In base units.
        why: Where the number comes from.
    """

    value: float
    why: str

    @property
    def seconds(self) -> str:
        """The value as text, for a sentence."""
        return f"{self.value:g} s"

    @property
    def percent(self) -> str:
        """The value, a ratio, as text for a sentence."""
        return f"{self.value * 100:g} %"


@dataclass(frozen=True, slots=True)
class Objective:
    """A promise: this share of the requests within this time.

    Attributes:
        within: Seconds; a bound of the records' histograms.
        share: Part of the requests, under 1.
        why: Where the numbers come from.
    """

    within: float
    share: float
    why: str

    @property
    def budget(self) -> float:
        """Part of the requests that may be slower."""
        return round(1 - self.share, 9)


@dataclass(frozen=True, slots=True)
class Objectives:
    """What is promised."""

    first_token: Objective
    total_time: Objective


@dataclass(frozen=True, slots=True)
class Timeouts:
    """When each layer gives up, outermost first."""

    client: Threshold
    gateway: Threshold
    engine: Threshold


@dataclass(frozen=True, slots=True)
class Limits:
    """All thresholds; ``thresholds.yaml`` says what each means and why it is that number."""

    objectives: Objectives
    timeouts: Timeouts
    queue_wait: Threshold
    queue_depth: Threshold
    queue_share: Threshold
    slow_first_token: Threshold
    least_traffic: Threshold
    stalled_load: Threshold
    stutter: Threshold
    step_spread: Threshold
    least_outputs: Threshold
    batch_spread: Threshold
    batch_floor: Threshold
    input_spread: Threshold
    cache_full: Threshold
    cache_usage: Threshold
    cache_waiting: Threshold
    preemptions: Threshold
    preemption_storm: Threshold
    prefix_fall: Threshold
    prefix_past: Threshold
    least_lookups: Threshold
    tenant_share: Threshold
    tenant_growth: Threshold
    tenant_harm: Threshold
    thermal: Threshold
    power_cap: Threshold
    slow_clock: Threshold
    bandwidth_high: Threshold
    compute_low: Threshold
    full_batch_waiting: Threshold
    utilisation: Threshold
    utilisation_floor: Threshold
    utilisation_ahead: Threshold
    retries: Threshold
    given_up: Threshold
    near_timeout: Threshold
    source_age: Threshold
    beyond_buckets: Threshold
    burn_fast: Threshold
    burn_medium: Threshold
    burn_slow: Threshold
    burn_steady: Threshold
    burn_volume: Threshold


_TEXT: Final = "why"
SHARES: Final = frozenset(
    {
        "queue_share", "cache_full", "cache_usage", "prefix_fall", "prefix_past", "tenant_share",
        "tenant_growth", "thermal", "power_cap", "slow_clock", "bandwidth_high", "compute_low",
        "utilisation", "utilisation_floor", "given_up", "near_timeout", "beyond_buckets",
    }
)  # fmt: skip
"""Limits of what is never above 1: a percentage in their place would never fire, or always."""


@cache
def limits() -> Limits:
    """Return the thresholds as they are shipped."""
    return _limits(_shipped())


def read(path: Path) -> Limits:
    """Return the thresholds with those of a file in place of the shipped ones.

    A threshold may be given as its number alone.

    Raises:
        UsageError: If the file cannot be read, or has a key or a value that is none.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise UsageError(f"--thresholds {path}: {error}") from error
    merged = _shipped()
    try:
        for group, entries in _mapping(found, "the file").items():
            _merge(_part(merged, group, "group"), entries, group)
        return _limits(merged)
    except ValueError as error:
        raise UsageError(f"--thresholds {path}: {error}") from error


def _shipped() -> dict[str, Any]:
    text = files("tailscope.alerts").joinpath("thresholds.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def _merge(into: dict[str, Any], entries: object, group: str) -> None:
    for name, given in _mapping(entries, group).items():
        entry = _part(into, name, f"entry of {group}")
        values = given if isinstance(given, Mapping) else {"value": given}
        for key, value in values.items():
            before = _part(entry, key, f"key of {group}.{name}")
            if key != _TEXT and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ValueError(f"{group}.{name}: {key} is {value!r}; give a number")
            entry[key] = value if key != _TEXT else str(value or before)


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} holds {value!r}; give names and values")
    return value


def _part(of: dict[str, Any], name: str, what: str) -> Any:
    if name not in of:
        raise ValueError(f"there is no {what} {name!r}; there are {', '.join(of)}")
    return of[name]


def _limits(data: Mapping[str, Any]) -> Limits:
    objectives = {name: Objective(**entry) for name, entry in data["objectives"].items()}
    for name, objective in objectives.items():
        _check(name, objective)
    return Limits(
        Objectives(**objectives),
        Timeouts(**{name: _threshold("timeouts", name, data) for name in data["timeouts"]}),
        **{name: _threshold("thresholds", name, data) for name in data["thresholds"]},
    )


def _threshold(group: str, name: str, data: Mapping[str, Any]) -> Threshold:
    found = Threshold(**data[group][name])
    if not 0 <= found.value < inf:
        raise ValueError(f"{group}.{name} is {found.value:g}; give a number that is 0 or more")
    if name in SHARES and found.value > 1:
        raise ValueError(
            f"{group}.{name} is {found.value:g}, but it is a share; give a part of 1, as 0.9 "
            "for 90 %"
        )
    return found


def _check(name: str, objective: Objective) -> None:
    if objective.within not in SECONDS_BUCKETS:
        bounds = ", ".join(f"{bound:g}" for bound in SECONDS_BUCKETS)
        raise ValueError(
            f"objectives.{name}: within is {objective.within:g} s, which is no bound of the "
            f"buckets; give one of {bounds}"
        )
    if not 0 < objective.share < 1:
        raise ValueError(
            f"objectives.{name}: share is {objective.share:g}; give a part between 0 and 1, for "
            "example 0.99"
        )


def numbers(found: Limits) -> frozenset[float]:
    """Every number that an expression may compare with."""
    plain = [
        value.value
        for field in fields(Limits)
        if isinstance(value := getattr(found, field.name), Threshold)
    ]
    timeouts = [getattr(found.timeouts, field.name).value for field in fields(Timeouts)]
    budgets = [getattr(found.objectives, field.name).budget for field in fields(Objectives)]
    return frozenset(map(float, (*plain, *timeouts, *budgets)))
