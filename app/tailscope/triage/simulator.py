"""An iteration-level simulator of a continuous-batching engine.

Every step of such an engine gives each decoding request one token and, as far as its token budget
allows, computes a part of the prompts that were let in. One step takes

    seconds = max(floor, base + per_prefill*P + per_decode*n) + per_read*R + per_pair*A

with P prompt tokens, n decoding requests, R cached tokens that the n requests read, and A
query-key pairs of the prompt tokens. Between two events (an admission, the last token of a request)
nothing but R changes, so that a run of pure decode steps is summed in closed form: the cost of a
simulation is O(requests log requests), not O(steps).

Two scheduler classes are known. ``mixed``: decodes first, what is left of the budget goes to
prompts, in chunks (vLLM V1, SGLang with mixed chunks, TensorRT-LLM). ``prefill_first``: a step
computes either whole prompts or decodes, and prompts go first (vLLM V0, SGLang by default).
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tailscope.triage.step import HEALTHY, UNLIMITED, Limits, Scheduler, Speed, StepCost
from tailscope.triage.work import Floats, Work


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent to a simulated engine; sequences of n elements, by ascending arrival.

    Attributes:
        arrived: Seconds.
        computed: Prompt tokens to compute.
        cached: Prompt tokens found in the prefix cache.
        output: Tokens to generate, at least 1.
        group: Small number of a group that a cap applies to.
        rank: Order in which waiting requests are let in; None for order of arrival.
        patience: Seconds after which a waiting request gives up.
        caps: Most requests of a group in the batch; groups that are not named have no cap.
    """

    arrived: Sequence[float]
    computed: Sequence[int]
    cached: Sequence[int]
    output: Sequence[int]
    group: Sequence[int] | None = None
    rank: Sequence[float] | None = None
    patience: float = math.inf
    caps: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Play:
    """What a simulation gives; arrays of n elements, in the order of the load.

    Attributes:
        start: When the first step with this request began; NaN if it gave up.
        first: First token.
        done: Last token.
        preemptions: Requests that lost their place and were computed again.
        counters: The step counters at start, first and done, shape (n, 3, 6); None if not asked.
    """

    start: Floats
    first: Floats
    done: Floats
    preemptions: int
    counters: Floats | None = None


def load(work: Work) -> Load:
    """What an engine was sent, from its records."""
    return Load(
        arrived=work.arrived.tolist(),
        computed=np.maximum(np.rint(work.computed), 1).astype(np.int64).tolist(),
        cached=np.rint(work.cached).astype(np.int64).tolist(),
        output=np.maximum(np.rint(work.output), 1).astype(np.int64).tolist(),
    )


COUNTERS = ("floored", "based", "prefill", "decode", "read", "pair")
"""What a step counts: which term of the maximum held, and the units that its cost is linear in."""


def simulate(
    load: Load, cost: StepCost, limits: Limits, speed: Speed = HEALTHY, *, count: bool = False
) -> Play:
    """Play a load on an engine.

    Args:
        load: What is sent.
        cost: Seconds of a step.
        limits: What the engine holds at most.
        speed: When it was slower than usual.
        count: Also return the step counters at each request's start, first and last token.
    """
    engine = _Engine(load, cost, limits, speed, count)
    engine.run()
    return Play(
        start=np.array(engine.start),
        first=np.array(engine.first),
        done=np.array(engine.done),
        preemptions=engine.preemptions,
        counters=np.array(engine.marks).reshape(-1, 3, len(COUNTERS)) if count else None,
    )


class _Engine:
    """State of one simulation. Plain attributes and heaps: this is the inner loop."""

    __slots__ = (
        "arrived",
        "cache",
        "cached",
        "caps",
        "computed",
        "context",
        "cost",
        "count",
        "counters",
        "crowded",
        "decoding",
        "done",
        "edge",
        "edges",
        "factor",
        "factors",
        "finish",
        "first",
        "group",
        "held",
        "incoming",
        "left",
        "marks",
        "mixed",
        "now",
        "output",
        "partial",
        "patience",
        "preemptions",
        "produced",
        "queues",
        "rank",
        "reads",
        "running",
        "sequences",
        "slots",
        "start",
        "step",
        "tokens",
    )

    def __init__(
        self, load: Load, cost: StepCost, limits: Limits, speed: Speed, count: bool
    ) -> None:
        n = len(load.arrived)
        self.arrived, self.computed = load.arrived, load.computed
        self.cached, self.output = load.cached, load.output
        self.group = load.group or [0] * n
        self.rank: Sequence[float] = load.rank or range(n)
        self.patience, self.caps = load.patience, load.caps
        self.cost, self.count = cost, count
        self.sequences, self.tokens, self.cache = limits.sequences, limits.tokens, limits.cache
        self.mixed = limits.scheduler is Scheduler.MIXED
        self.edges, self.factors = speed.edges, speed.factor
        self.factor, self.edge = 1.0, math.inf
        self.now = load.arrived[0] if n else 0.0
        self.incoming = 0  # next request to arrive
        self.step = 0  # decode steps so far
        self.queues: dict[int, list[tuple[float, int]]] = {}
        self.partial: list[int] = []  # let in, prompt not yet computed
        self.finish: list[tuple[int, int]] = []  # (step of the last token, request)
        self.left = [0] * n  # prompt tokens to compute; after a pre-emption also lost output
        self.context = [0] * n  # tokens held when decoding began, less the step then
        self.produced = [0] * n  # tokens given before the last pre-emption
        self.slots: dict[int, None] = {}  # running, in the order in which they were let in
        self.running: dict[int, int] = {}  # by group
        self.decoding = 0
        self.held = 0  # tokens in the cache
        self.reads = 0  # of these, of decoding requests
        self.preemptions = 0
        self.crowded = False  # a place was taken away since the last decode step
        self.start, self.first, self.done = [math.nan] * n, [math.nan] * n, [math.nan] * n
        self.counters = [0.0] * len(COUNTERS)
        self.marks = [[0.0] * len(COUNTERS) for _ in range(3 * n)] if count else []
        self._turn()

    def run(self) -> None:
        total = len(self.arrived)
        while True:
            while self.incoming < total and self.arrived[self.incoming] <= self.now:
                self._receive()
            if self.now >= self.edge:
                self._turn()
            chunks = self._schedule()
            if chunks:
                self._prompt_step(chunks)
            elif self.decoding:
                self._decode_steps()
            elif self.incoming < total:
                self.now = max(self.now, self.arrived[self.incoming])
            else:
                return

    def _turn(self) -> None:
        """Take the speed that holds now, and note until when."""
        after = bisect_right(self.edges, self.now)
        self.factor = self.factors[after - 1] if after else 1.0
        self.edge = self.edges[after] if after < len(self.edges) else math.inf

    def _receive(self) -> None:
        request = self.incoming
        self.incoming += 1
        self.left[request] = self.computed[request]
        queue = self.queues.setdefault(self.group[request], [])
        heapq.heappush(queue, (self.rank[request], request))

    def _head(self) -> tuple[int, int] | None:
        """The waiting request whose turn it is, and its group; groups at their cap are skipped."""
        best: tuple[float, int] | None = None
        for group, queue in self.queues.items():
            while queue and self.now - self.arrived[queue[0][1]] > self.patience:
                if not math.isnan(self.start[queue[0][1]]):
                    break  # it had started: only a request that never started gives up
                heapq.heappop(queue)
            if not queue or self.running.get(group, 0) >= self.caps.get(group, UNLIMITED):
                continue
            if best is None or queue[0] < best:
                best = queue[0]
        return None if best is None else (best[1], self.group[best[1]])

    def _schedule(self) -> list[tuple[int, int]]:
        """Prompt parts of the next step as (request, tokens); lets waiting requests in."""
        budget = self.tokens - (self.decoding if self.mixed else 0)
        chunks: list[tuple[int, int]] = []
        for request in self.partial:
            if budget <= 0:
                return chunks
            part = min(self.left[request], budget)
            chunks.append((request, part))
            budget -= part
        # As in vLLM, nobody is let in by the step that took a place away.
        while budget > 0 and len(self.slots) < self.sequences and not self.crowded:
            head = self._head()
            if head is None:
                break
            request, group = head
            need = self.left[request] + self.cached[request]
            if self.held + need > self.cache and self.slots:
                break
            heapq.heappop(self.queues[group])
            self._admit(request, group, need)
            part = min(self.left[request], budget)
            chunks.append((request, part))
            budget -= part
        return chunks

    def _admit(self, request: int, group: int, need: int) -> None:
        self.slots[request] = None
        self.running[group] = self.running.get(group, 0) + 1
        self.held += need
        self.partial.append(request)
        if math.isnan(self.start[request]):
            self.start[request] = self.now
            self._mark(request, 0)

    def _prompt_step(self, chunks: list[tuple[int, int]]) -> None:
        decoding = self.decoding if self.mixed else 0
        tokens, pairs = 0, 0.0
        for request, part in chunks:
            done = self.cached[request] + self.computed[request] - self.left[request]
            tokens += part
            pairs += part * (max(done, 0) + 0.5 * part)
            self.left[request] -= part
        self._spend(1, tokens, decoding, pairs)
        if decoding:
            self._advance(1)
        for request, _ in chunks:
            if self.left[request] == 0:
                self._first_token(request)
        self.partial = [request for request in self.partial if self.left[request] > 0]
        self._complete()

    def _first_token(self, request: int) -> None:
        held = self.cached[request] + self.computed[request] + self.produced[request]
        if math.isnan(self.first[request]):
            self.first[request] = self.now
            self._mark(request, 1)
        more = self.output[request] - 1 - self.produced[request]
        self.decoding += 1
        self.reads += held
        self.context[request] = held - self.step
        heapq.heappush(self.finish, (self.step + max(more, 0), request))

    def _decode_steps(self) -> None:
        """Run decode steps until something else can happen."""
        n = self.decoding
        room = (self.cache - self.held) // n
        if room <= 0 and len(self.slots) > 1:
            self._preempt()
            return
        steps = self.finish[0][0] - self.step
        if room > 0:
            steps = min(steps, room)
        until = self.edge
        if len(self.slots) < self.sequences and self.incoming < len(self.arrived):
            until = min(until, self.arrived[self.incoming])
        if until < math.inf:
            steps = min(steps, self._steps_until(until))
        self._spend(steps, 0, n, 0.0)
        self._advance(steps)
        self.crowded = False
        self._complete()

    def _steps_until(self, until: float) -> int:
        """Decode steps that end at ``until`` or just after; at least 1."""
        cost, n = self.cost, self.decoding
        span = (until - self.now) / self.factor
        growth = 0.5 * cost.per_read * n
        one = max(cost.floor, cost.base + cost.per_decode * n) + cost.per_read * self.reads - growth
        if growth > 1e-15 and one > 0:
            steps = 2.0 * span / (one + math.sqrt(one * one + 4.0 * growth * span))
        else:
            steps = span / max(one, 1e-9)
        return max(1, math.ceil(steps - 1e-9))

    def _advance(self, steps: int) -> None:
        self.step += steps
        self.held += steps * self.decoding
        self.reads += steps * self.decoding

    def _spend(self, steps: int, tokens: int, decoding: int, pairs: float) -> None:
        """Let the clock run for equal steps; reads grow by one token a step and request."""
        cost = self.cost
        reads = 0.0
        if decoding:
            reads = steps * (self.reads + 0.5 * (steps - 1) * decoding)
        linear = cost.base + cost.per_prefill * tokens + cost.per_decode * decoding
        floored = linear < cost.floor
        seconds = steps * max(cost.floor, linear) + cost.per_read * reads + cost.per_pair * pairs
        self.now += seconds * self.factor
        if not self.count:
            return
        counters = self.counters
        weight = self.factor
        if floored:
            counters[0] += steps * weight
        else:
            counters[1] += steps * weight
            counters[2] += steps * tokens * weight
            counters[3] += steps * decoding * weight
        counters[4] += reads * weight
        counters[5] += pairs * weight

    def _complete(self) -> None:
        while self.finish and self.finish[0][0] <= self.step:
            request = heapq.heappop(self.finish)[1]
            self._release(request)
            self.done[request] = self.now
            self._mark(request, 2)

    def _release(self, request: int) -> None:
        held = self.context[request] + self.step
        self.held -= held
        self.reads -= held
        self.decoding -= 1
        del self.slots[request]
        self.running[self.group[request]] -= 1

    def _preempt(self) -> None:
        """Take the place of the request that was let in last; it is computed again later."""
        victim = next(reversed(self.slots))
        if self.left[victim] > 0:  # its prompt is not complete: give back what it reserved
            self.held -= self.cached[victim] + self.computed[victim] + self.produced[victim]
            self.partial.remove(victim)
            del self.slots[victim]
            self.running[self.group[victim]] -= 1
        else:
            held = self.context[victim] + self.step
            own = self.cached[victim] + self.computed[victim]
            self._release(victim)
            self.produced[victim] = held - own
            self.finish = [entry for entry in self.finish if entry[1] != victim]
            heapq.heapify(self.finish)
        self.left[victim] = self.computed[victim] + self.produced[victim]
        self.preemptions += 1
        self.crowded = True
        queue = self.queues.setdefault(self.group[victim], [])
        heapq.heappush(queue, (-math.inf, victim))

    def _mark(self, request: int, which: int) -> None:
        if self.count:
            self.marks[3 * request + which] = self.counters.copy()
