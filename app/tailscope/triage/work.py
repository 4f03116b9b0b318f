"""What each request asked of its engine, and when: the arrays that all attribution works on.

Attribution never crosses engines, so there is one :class:`Work` per server and model. Times are
seconds after a common origin; a request arrives, starts (first step), gives its first token and is
done. Between arrival and start it waits, in the frontend or in the queue: an engine takes new
requests only between two steps, and books the rest of that step as neither queue nor prefill.

Units of work (tokens, and token pairs for attention):

    prefill    p = input - cached              prompt tokens that were computed
    attention  A = p * (cached + p / 2)        query-key pairs of the prompt
    steps      m = max(output - 1, 0)          decode steps
    reads      K = m * (input + output / 2)    cached tokens read by those steps
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tailscope.records.record import UNKNOWN_TENANT
from tailscope.triage.stages import floats
from tailscope.triage.stagetimes import Stages, stage_times

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

UNKNOWN_SERVER = ""
"""Name of the engine of requests that do not say theirs."""

UNKNOWN_MODEL = ""
"""Name of the model of requests that do not say theirs."""

_NUMBERS = (
    "total_seconds",
    "frontend_seconds",
    "queue_seconds",
    "prefill_seconds",
    "decode_seconds",
    "ttft_seconds",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "max_tokens",
)


@dataclass(frozen=True, slots=True)
class Work:
    """Requests of one engine instance, in the order of their arrival; all arrays have n elements.

    Attributes:
        server: Engine instance.
        model: Served model.
        rows: Positions of the requests in the frame that they come from.
        tenants: Names of the tenants of the whole frame.
        tenant: Position of each request's tenant in ``tenants``.
        arrived: Seconds after the origin.
        frontend: Seconds before the engine's queue.
        queue: Seconds in the queue.
        prefill: Seconds from the first step to the first token.
        decode: Seconds from the first token to the last.
        computed: Prompt tokens that were computed, p.
        cached: Prompt tokens from the prefix cache.
        output: Generated tokens.
        limit: Most tokens that the request might generate; the generated ones where unknown.
        censored: Its true time is longer than what was seen: aborted or timed out.
        stages: The weakest knowledge among the requests.
        measured: Which requests have all stages measured.
    """

    server: str
    model: str
    rows: Ints
    tenants: tuple[str, ...]
    tenant: Ints
    arrived: Floats
    frontend: Floats
    queue: Floats
    prefill: Floats
    decode: Floats
    computed: Floats
    cached: Floats
    output: Floats
    limit: Floats
    censored: Flags
    stages: Stages
    measured: Flags

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def wait(self) -> Floats:
        """Seconds between arrival and first step."""
        return self.frontend + self.queue

    @property
    def held_back(self) -> Floats:
        """Seconds in the queue; and before it, where a gateway is what holds requests back."""
        return self.wait if self.frontend.sum() > self.queue.sum() else self.queue

    @property
    def start(self) -> Floats:
        """When the first step began."""
        return self.arrived + self.frontend + self.queue

    @property
    def first(self) -> Floats:
        """When the first token came."""
        return self.start + self.prefill

    @property
    def done(self) -> Floats:
        """When the last token came, and the place in the batch was free again."""
        return self.first + self.decode

    @property
    def total(self) -> Floats:
        """Seconds from arrival to the last token."""
        return self.frontend + self.queue + self.prefill + self.decode

    @property
    def context(self) -> Floats:
        """Prompt tokens, cached ones included."""
        return self.computed + self.cached

    @property
    def attention(self) -> Floats:
        """Query-key pairs of the prompt, A."""
        return self.computed * (self.cached + 0.5 * self.computed)

    @property
    def steps(self) -> Floats:
        """Decode steps, m."""
        return np.maximum(self.output - 1.0, 0.0)

    @property
    def reads(self) -> Floats:
        """Cached tokens read by the decode steps, K."""
        return self.steps * (self.context + 0.5 * self.output)

    def take(self, which: Ints | Flags) -> Work:
        """The same engine with only some of its requests."""
        arrays = {name: getattr(self, name)[which] for name in _ARRAYS}
        return Work(
            server=self.server,
            model=self.model,
            tenants=self.tenants,
            stages=self.stages,
            **arrays,
        )


def merged(parts: Sequence[Work]) -> Work:
    """The requests of several models as one engine's, under the name of the most used one."""
    arrays = {name: np.concatenate([getattr(one, name) for one in parts]) for name in _ARRAYS}
    order = np.argsort(arrays["arrived"], kind="stable")
    most = max(parts, key=len)
    known = list(Stages)
    return Work(
        server=most.server,
        model=most.model,
        tenants=most.tenants,
        stages=max((one.stages for one in parts), key=known.index),
        **{name: values[order] for name, values in arrays.items()},
    )


_ARRAYS = (
    "rows",
    "tenant",
    "arrived",
    "frontend",
    "queue",
    "prefill",
    "decode",
    "computed",
    "cached",
    "output",
    "limit",
    "censored",
    "measured",
)

CENSORED = ("aborted", "queue_timeout", "generation_timeout", "error")
"""Outcomes whose time says only that the request would have taken at least as long."""


def works(
    frame: pd.DataFrame, origin_ns: int | None = None, changed_ns: Sequence[int] = ()
) -> list[Work]:
    """Split requests by engine instance and find what each asked of its engine.

    Rows without a total time, and rows that were rejected, held no engine and are left out.

    Args:
        frame: Requests with the record's columns; columns that are missing count as null.
        origin_ns: UTC nanoseconds of time 0; the first arrival if None.
        changed_ns: When engines were changed, UTC nanoseconds: what came before and what came after
            has not one cost.

    Returns:
        One for each server, model and time between changes, the one with the most requests first.
    """
    total = _totals(frame)
    kept = np.flatnonzero(np.isfinite(total) & ~_ended(frame, ("rejected",)))
    if not len(kept):
        return []
    arrived_ns = frame["arrived_ns"].to_numpy(dtype=np.int64)
    origin = int(arrived_ns[kept].min()) if origin_ns is None else origin_ns
    tenant, tenants = _codes(frame, "tenant", UNKNOWN_TENANT)
    server, servers = _codes(frame, "server", UNKNOWN_SERVER)
    model, models = _codes(frame, "model", UNKNOWN_MODEL)
    numbers = {name: floats(frame, name) for name in _NUMBERS}
    numbers["total_seconds"] = total
    censored = _ended(frame, CENSORED)
    found = []
    epoch = np.searchsorted(np.sort(np.asarray(changed_ns, dtype=np.int64)), arrived_ns, "right")
    engine = (epoch * len(servers) + server) * len(models) + model
    for rows in _groups(engine, arrived_ns, kept):
        found.append(
            _work(
                {name: values[rows] for name, values in numbers.items()},
                server=servers[int(server[rows[0]])],
                model=models[int(model[rows[0]])],
                rows=rows,
                tenants=tenants,
                tenant=tenant[rows],
                arrived=(arrived_ns[rows] - origin) / 1e9,
                censored=censored[rows],
            )
        )
    return sorted(found, key=len, reverse=True)


def _work(numbers: dict[str, Floats], **known: Any) -> Work:
    # Where no request tells its tokens, all have one step: so their time has a size.
    output = _filled(numbers["output_tokens"], 2.0)
    context = _filled(numbers["input_tokens"], 0.0)
    cached = np.clip(np.nan_to_num(numbers["cached_tokens"]), 0.0, np.maximum(context - 1.0, 0.0))
    computed = np.maximum(context - cached, 0.0)
    limit = np.fmax(numbers["max_tokens"], output)
    times = stage_times(numbers, computed, output)
    return Work(
        frontend=times.frontend,
        queue=times.queue,
        prefill=times.prefill,
        decode=times.decode,
        computed=computed,
        cached=cached,
        output=output,
        limit=limit,
        measured=times.measured,
        stages=times.known,
        **known,
    )


def _filled(values: Floats, default: float) -> Floats:
    """Unknown token counts become the median of the known ones."""
    unknown = np.isnan(values)
    if not unknown.any():
        return values
    middle = default if unknown.all() else float(np.median(values[~unknown]))
    return np.where(unknown, middle, values)


def _totals(frame: pd.DataFrame) -> Floats:
    """Total seconds, from the times of arrival and end where they are not told."""
    total = floats(frame, "total_seconds")
    unknown = np.isnan(total)
    if unknown.any() and "ended_ns" in frame:
        arrived = frame["arrived_ns"].to_numpy(dtype=np.float64)
        total = np.where(unknown, (floats(frame, "ended_ns") - arrived) / 1e9, total)
    return total


def _groups(engine: Ints, arrived_ns: Ints, kept: Ints) -> Iterator[Ints]:
    when = arrived_ns[kept]
    if (when[1:] < when[:-1]).any():
        kept = kept[np.argsort(when, kind="stable")]
    # Few engines have short numbers, which are sorted digit by digit.
    number = engine[kept].astype(np.min_scalar_type(int(engine.max())))
    order = kept[np.argsort(number, kind="stable")]
    cuts = np.flatnonzero(np.diff(engine[order])) + 1
    yield from np.split(order, cuts)


def _ended(frame: pd.DataFrame, outcomes: Sequence[str]) -> Flags:
    """Rows that ended in one of these ways."""
    if "outcome" not in frame:
        return np.zeros(len(frame), dtype=np.bool_)
    return frame["outcome"].isin(list(outcomes)).to_numpy(dtype=np.bool_)


def _codes(frame: pd.DataFrame, name: str, missing: str) -> tuple[Ints, tuple[str, ...]]:
    if name not in frame:
        return np.zeros(len(frame), dtype=np.int64), (missing,)
    codes, values = pd.factorize(frame[name].fillna(missing), sort=True)
    return codes.astype(np.int64), tuple(str(value) for value in values)
