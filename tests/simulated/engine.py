"""A continuous-batching engine, step by step: the truth that the triage is tested against.

It shares no code with ``tailscope.triage.simulator`` and works the other way round: every step is
played, every running request is advanced by hand, the KV cache is kept in blocks, and step times
can jitter, stall, or slow down for a while. So it can be wrong in other ways.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Machine:
    """Seconds of a step and limits of the engine."""

    floor: float = 0.008
    fixed: float = 0.002
    per_prompt: float = 60e-6
    per_decode: float = 60e-6
    per_read: float = 60e-9
    per_pair: float = 2e-9
    sequences: int = 48
    budget: int = 2048
    blocks: int = 20_000
    block: int = 16
    prompts_first: bool = False
    jitter: float = 0.0
    stall: float = 0.0
    first: tuple[str, ...] = ()  # tenants that are let in before the others
    boundary: bool = False  # requests are taken between steps only, and that time is frontend
    speculation: float = 0.0  # tokens beside the first that a step gives a request, at most
    slow_from: float = 0.0
    slow_until: float = 0.0
    slow_by: float = 1.0
    slow_every: float = 0.0  # if not 0: slow in every second stretch of this length


@dataclass
class Request:
    """One request and what became of it."""

    number: int
    tenant: str
    arrived: float
    input: int
    cached: int
    output: int
    seen: float = -1.0
    start: float = -1.0
    first: float = -1.0
    done: float = -1.0
    left: int = 0
    made: int = 0
    spare: float = 0.0
    held: int = 0

    @property
    def context(self) -> int:
        return self.input + self.made


def play(requests: list[Request], machine: Machine, seed: int) -> None:
    """Fill in the times of all requests, which must be sorted by arrival."""
    random = np.random.default_rng(seed)
    coming = deque(requests)
    waiting: deque[Request] = deque()
    running: list[Request] = []
    now = requests[0].arrived if requests else 0.0
    free = machine.blocks
    while coming or waiting or running:
        while coming and coming[0].arrived <= now:
            request = coming.popleft()
            request.seen = now if machine.boundary else request.arrived
            request.left = request.input - request.cached
            _queue(request, waiting, machine)
        if not waiting and not running:
            now = coming[0].arrived
            continue
        free, chunks = _plan(waiting, running, machine, free, now)
        decoding = [r for r in running if r.left == 0]
        if chunks and machine.prompts_first:
            decoding = []
        decoding, free = _make_room(decoding, running, waiting, machine, free)
        chunks = [(r, n) for r, n in chunks if r.held > 0]
        now += _seconds(chunks, decoding, machine, random, now)
        for request in decoding:
            request.made += 1 + _guessed(request, machine)
        for request, tokens in chunks:
            request.left -= tokens
            if request.left == 0:
                if request.first < 0:
                    request.first = now
                request.made += 1
        over = [r for r in running if r.left == 0 and r.made >= r.output]
        for request in over:
            request.done = now
            free += request.held
            request.held = 0
        if over:
            running = [r for r in running if r.held > 0]


def _guessed(request: Request, machine: Machine) -> int:
    """Tokens of a step that were guessed right: of each request another part, always the same."""
    part = (31 * request.input + 17 * request.output) % 100 / 100
    request.spare += machine.speculation * part
    found = int(request.spare)
    request.spare -= found
    return found


def _queue(request: Request, waiting: deque[Request], machine: Machine) -> None:
    """By arrival; tenants that go first, behind their own kind."""
    if request.tenant not in machine.first:
        waiting.append(request)
        return
    ahead = sum(1 for one in waiting if one.tenant in machine.first or one.start >= 0)
    waiting.insert(ahead, request)


def _blocks(tokens: int, machine: Machine) -> int:
    return -(-tokens // machine.block)


def _plan(
    waiting: deque[Request], running: list[Request], machine: Machine, free: int, now: float
) -> tuple[int, list[tuple[Request, int]]]:
    budget = machine.budget
    if not machine.prompts_first:
        budget -= sum(r.left == 0 for r in running)
    chunks: list[tuple[Request, int]] = []
    for request in running:
        if request.left > 0 and budget > 0:
            tokens = min(request.left, budget)
            chunks.append((request, tokens))
            budget -= tokens
    while waiting and budget > 0 and len(running) < machine.sequences:
        request = waiting[0]
        need = _blocks(request.context + 1, machine)
        if need > free and running:
            break
        waiting.popleft()
        free -= need
        request.held = need
        running.append(request)
        if request.start < 0:
            request.start = now
        tokens = min(request.left, budget)
        chunks.append((request, tokens))
        budget -= tokens
    return free, chunks


def _make_room(
    decoding: list[Request],
    running: list[Request],
    waiting: deque[Request],
    machine: Machine,
    free: int,
) -> tuple[list[Request], int]:
    """Blocks for the next token of each; the youngest loses its place where there are none."""
    lost = False
    for request in decoding:
        while request.input + request.made + 1 > request.held * machine.block:
            if request.held == 0:
                break  # it lost its place to another one
            if free > 0 or len(running) == 1:
                free -= 1
                request.held += 1
                continue
            victim = running.pop()
            free += victim.held
            victim.held = 0
            victim.left = victim.context - victim.cached
            waiting.appendleft(victim)
            lost = True
    return ([r for r in decoding if r.held > 0] if lost else decoding), free


def _seconds(
    chunks: list[tuple[Request, int]],
    decoding: list[Request],
    machine: Machine,
    random: np.random.Generator,
    now: float,
) -> float:
    tokens = sum(n for _, n in chunks)
    pairs = sum(n * (r.context - r.left + n / 2) for r, n in chunks)
    reads = sum(r.context for r in decoding)
    linear = machine.fixed + machine.per_prompt * tokens + machine.per_decode * len(decoding)
    seconds = max(machine.floor, linear) + machine.per_read * reads + machine.per_pair * pairs
    if machine.jitter:
        seconds *= random.lognormal(-(machine.jitter**2) / 2, machine.jitter)
    if machine.stall and random.random() < machine.stall:
        seconds += random.exponential(0.3)
    if _is_slow(machine, now):
        seconds *= machine.slow_by
    return max(seconds, 1e-4)


def _is_slow(machine: Machine, now: float) -> bool:
    if not machine.slow_from <= now < machine.slow_until:
        return False
    every = machine.slow_every
    return not every or int((now - machine.slow_from) / every) % 2 == 0
