"""What the slow requests have in common: a second opinion, never the judge.

For every dimension and value: its share among the slow requests against the rest, as the effect

    h = 2 asin(sqrt(p1)) - 2 asin(sqrt(p0))

Slow requests come in bursts, so that whatever happened to be busy then looks associated, and tests
that take rows for independent find something in every trace. So the largest z of all values is
compared with those of the same slow mask shifted in time (circularly): the bursts stay, their place
is random (Westfall and Young). A finding also needs an effect of some size, and several bursts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tailscope.triage.phrase import tell
from tailscope.triage.work import Flags, Floats, Ints

SHIFTS = 199
EFFECT = 0.3
BURSTS = 5
FEWEST = 20
"""Rows that a value needs."""

TEXTS = ("tenant", "model", "server", "finish_reason", "status", "attempt", "priority", "adapter")
NUMBERS = ("input_tokens", "cached_tokens", "output_tokens", "max_tokens")
_BUCKETS = 8
_GAP = 0.02
"""Share of the rows between two slow ones that makes them two bursts."""

_MOST = 200_000
_UNKNOWN = tell("unknown")


@dataclass(frozen=True, slots=True)
class Association:
    """A value that is more, or less, common among slow requests.

    Attributes:
        dimension: Column.
        value: Value, or range of values.
        slow: Share of the slow requests that have it.
        rest: Share of the others.
        effect: h; positive if slow requests have it more often.
        p: Share of the shifted masks whose largest z is as large.
        bursts: Separate bursts of slow requests that have it.
        rows: Requests that have it.
    """

    dimension: str
    value: str
    slow: float
    rest: float
    effect: float
    p: float
    bursts: int
    rows: int

    @property
    def found(self) -> bool:
        """Whether it is worth a mention, as associated."""
        return self.p <= 0.05 and abs(self.effect) >= EFFECT and self.bursts >= BURSTS


def associations(
    frame: pd.DataFrame, slow: Flags, *, seed: int = 0, extra: pd.DataFrame | None = None
) -> list[Association]:
    """Compare slow requests with the rest over all dimensions.

    Args:
        frame: Requests with the record's columns, by arrival.
        slow: Which are slow, shape (n,).
        seed: Of the shifts.
        extra: More dimensions as columns, for example the queue at arrival.

    Returns:
        The strongest effects first; those that are no finding are kept, with their p.
    """
    count, hits = len(frame), np.flatnonzero(slow)
    if not len(hits) or len(hits) == count:
        return []
    codes, names = _dimensions(frame, extra)
    sizes = [
        np.bincount(code, minlength=len(name)) for code, name in zip(codes, names, strict=True)
    ]
    step = max(len(hits) * len(codes) // _MOST, 1)
    random = np.random.default_rng(seed)
    real = [_z(code, size, hits, count) for code, size in zip(codes, sizes, strict=True)]
    largest = np.zeros(SHIFTS)
    for number, shift in enumerate(random.integers(count // 20, count - count // 20 + 1, SHIFTS)):
        moved = (hits[::step] + shift) % count
        largest[number] = max(
            float(np.abs(_z(code, size, moved, count, step)).max(initial=0.0))
            for code, size in zip(codes, sizes, strict=True)
        )
    found = [
        _association(dimension, name, code, size, z, hits, largest, count)
        for (dimension, code, size, z, name) in _flat(codes, names, sizes, real)
    ]
    return sorted(found, key=lambda one: -abs(one.effect))


def _dimensions(
    frame: pd.DataFrame, extra: pd.DataFrame | None
) -> tuple[list[Ints], list[list[tuple[str, str]]]]:
    codes, names = [], []
    columns = [(name, frame[name], name in NUMBERS) for name in (*TEXTS, *NUMBERS) if name in frame]
    if extra is not None:
        columns += [(str(name), extra[name], True) for name in extra]
    for name, column, number in columns:
        if number:
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
            if np.isnan(values).all():
                continue
            edges = np.unique(np.nanquantile(values, np.linspace(0, 1, _BUCKETS + 1)))
            code = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 1)
            labels: list[str] = [tell("from {low}", low=_figure(edge)) for edge in edges]
        else:
            code, found = pd.factorize(column)
            labels = [str(value) for value in found]
            if (code < 0).any():
                if _UNKNOWN not in labels:
                    labels.append(_UNKNOWN)
                code = np.where(code < 0, labels.index(_UNKNOWN), code)
        if len(labels) > 1:
            codes.append(code.astype(np.int64))
            names.append([(name, label) for label in labels])
    return codes, names


def _figure(edge: float) -> str:
    """A bound of a bucket; digits behind the point are worth nothing beside hundreds."""
    return f"{edge:,.0f}" if abs(edge) >= 100 else f"{edge:.4g}"


def _z(code: Ints, size: Ints, hits: Ints, count: int, step: int = 1) -> Floats:
    """Standard score of the share of each value among the hits; 0 for a value with few rows."""
    inside = np.bincount(code[hits], minlength=len(size)) * step
    number = len(hits) * step
    share = size / count
    spread = np.sqrt(np.maximum(number * share * (1.0 - share), 1e-12))
    found: Floats = np.where(size >= FEWEST, (inside - number * share) / spread, 0.0)
    return found


def _flat(
    codes: list[Ints], names: list[list[tuple[str, str]]], sizes: list[Ints], real: list[Floats]
) -> list[tuple[int, Ints, int, float, tuple[str, str]]]:
    return [
        (value, code, int(size[value]), float(z[value]), name[value])
        for code, name, size, z in zip(codes, names, sizes, real, strict=True)
        for value in range(len(name))
        if size[value] >= FEWEST
    ]


def _association(
    value: int,
    name: tuple[str, str],
    code: Ints,
    size: int,
    z: float,
    hits: Ints,
    largest: Floats,
    count: int,
) -> Association:
    own = hits[code[hits] == value]
    slow = len(own) / len(hits)
    rest = (size - len(own)) / (count - len(hits))
    effect = 2.0 * np.arcsin(np.sqrt(slow)) - 2.0 * np.arcsin(np.sqrt(min(rest, 1.0)))
    bursts = 1 + int((np.diff(own) > _GAP * count).sum()) if len(own) else 0
    p = (1 + int((largest >= abs(z)).sum())) / (1 + SHIFTS)
    return Association(name[0], name[1], slow, rest, float(effect), p, bursts, size)
