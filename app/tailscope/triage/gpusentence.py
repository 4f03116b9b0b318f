"""What GPUs went through, in words. They never say more than was computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from tailscope.triage.coincidence import FATAL, MIN_SECONDS
from tailscope.triage.hardware import Bandwidth, Coincidence, Gpu, Throttle, Trouble, Weight, Xid
from tailscope.triage.phrase import row, several, tell
from tailscope.triage.words import clock, moment, percent, seconds

LIMIT_SHARE = 0.1
"""A GPU that was at a limit for a smaller part of the time than this is not worth a word."""

BOUND_SHARE = 0.3
"""Nor is one whose memory was near its limit for a smaller part of the time than this."""

WATCHED_SHARE = 0.95
"""What was watched for less of the time than this was watched in part."""

MAX_SAID = 8
"""Sentences about GPUs in one answer."""

_ACTIVITY: Mapping[str, str] = MappingProxyType(
    {
        "sm": tell("SM activity"),
        "dram": tell("DRAM activity"),
        "tensor": tell("tensor-core activity"),
    }
)
_ACTIONS: Mapping[str, str] = MappingProxyType(
    {
        "ignore": tell("nothing has to be done at once"),
        "restart_app": tell("it hit a program on the GPU"),
        "reset_gpu": tell("the GPU has to be reset"),
        "restart_node": tell("the machine has to be restarted"),
        "restart_vm": tell("the virtual machine has to be restarted"),
        "check_mechanicals": tell("seating, power and cables have to be looked at"),
        "update_software": tell("driver or firmware have to be updated"),
        "contact_support": tell("the vendor has to be asked"),
        "check_log": tell("the kernel log says more"),
    }
)
"""What a class of action of an XID means."""


def statements(gpu: Gpu) -> tuple[str, ...]:
    """What is worth a word about one GPU, the worst first; nothing if it did well."""
    said = [
        (_lost(gpu), Trouble.LOST, "") if gpu.lost or gpu.lost_at_end else None,
        *((_xid(gpu, event), Trouble.XID, event.code) for event in _by_code(gpu.xids)),
        *(
            (_throttled(gpu, throttle), Trouble.THROTTLED, throttle.cause.name)
            for throttle in gpu.throttles
            if _worth(gpu, throttle)
        ),
    ]
    found: list[str] = [
        row([text, *_beside(gpu, trouble, cause)])
        for entry in said
        if entry
        for text, trouble, cause in [entry]
    ]
    if gpu.bandwidth is not None and _worth_saying(gpu, gpu.bandwidth):
        beside = _beside(gpu, Trouble.BANDWIDTH, "")
        found.append(" ".join([_bound(gpu, gpu.bandwidth), *beside]))
    return tuple(found)


def _worth_saying(gpu: Gpu, found: Bandwidth) -> bool:
    suspect = any(one.suspect and one.trouble is Trouble.BANDWIDTH for one in gpu.beside)
    return suspect or found.share >= BOUND_SHARE


def suspicions(gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """What may have to do with the slow requests; nothing if nothing may."""
    return _few(
        [
            text
            for gpu in gpus
            if any(one.suspect for one in gpu.beside)
            for text in statements(gpu)[:1]
        ]
    )


def health(gpus: tuple[Gpu, ...], since_ns: int | None) -> tuple[str, ...]:
    """The GPUs together, in sentences; nothing without GPUs.

    Args:
        gpus: GPUs, compared with the slow requests.
        since_ns: Begin of the window that the requests are of.
    """
    if not gpus:
        return ()
    ordered = sorted(gpus, key=lambda gpu: not any(one.suspect for one in gpu.beside))
    said = [text for gpu in ordered for text in statements(gpu)]
    cut = since_ns is not None and gpus[0].start_ns > since_ns
    begun = moment(gpus[0].start_ns)
    since = [tell("GPUs were looked at from {when} on.", when=begun)] if cut else []
    return (*(_few(said) or (_well(gpus),)), *_missing(gpus), *_watched(gpus), *since)


def during(gpus: Iterable[Gpu], total: float) -> tuple[str, ...]:
    """What GPUs went through while one request ran.

    Args:
        gpus: GPUs, compared with that request alone.
        total: Seconds of the request.
    """
    return tuple(_during(gpu, one, total) for gpu in gpus for one in gpu.beside if _told(gpu, one))


def _told(gpu: Gpu, one: Coincidence) -> bool:
    """Whether it is worth a word: a setting never is, a limit if it is one over the whole time."""
    if one.trouble is Trouble.BANDWIDTH:
        return one.suspect
    return one.trouble is not Trouble.THROTTLED or any(
        throttle.cause.name == one.cause and _worth(gpu, throttle) for throttle in gpu.throttles
    )


def _during(gpu: Gpu, one: Coincidence, total: float) -> str:
    if one.share_slow is None:
        return tell("{name} had XID {code} meanwhile.", name=gpu.name, code=one.cause)
    words = {throttle.cause.name: throttle.cause.words for throttle in gpu.throttles}
    words |= {
        Trouble.LOST: tell("lost"),
        Trouble.BANDWIDTH: tell("held by the bandwidth of its memory"),
    }
    return tell(
        "{name} was {state} for {time} of it.",
        name=gpu.name,
        state=words[one.cause or one.trouble],
        time=seconds(one.share_slow * total),
    )


def _few(said: list[str]) -> tuple[str, ...]:
    more = len(said) - MAX_SAID
    if more <= 0:
        return tuple(said)
    rest = several(
        more, "{n} more such sentence is left out.", "{n} more such sentences are left out."
    )
    return (*said[:MAX_SAID], rest)


def _well(gpus: tuple[Gpu, ...]) -> str:
    boards = [gpu for gpu in gpus if not gpu.instance]
    levels = row(
        (
            tell("{what} {share}", what=_ACTIVITY[name], share=percent(sum(known) / len(known)))
            for name in ("sm", "dram")
            if (known := [gpu.activity[name].mean for gpu in gpus if name in gpu.activity])
        ),
        ", ",
    )
    text = tell(
        "No loss, no XID event and no long hold of the clocks was seen on {who}.",
        who=boards[0].name if len(boards) == 1 else tell("the {n} GPUs", n=len(boards)),
    )
    return row([text, tell("On average: {levels}.", levels=levels)]) if levels else text


def _missing(gpus: tuple[Gpu, ...]) -> Iterator[str]:
    for name, what in _ACTIVITY.items():
        without = [gpu.name for gpu in gpus if name in gpu.missing]
        if without:
            every = len(without) == len(gpus) > 1
            whose = tell("any GPU") if every else row(without, ", ")
            yield tell("No {what} is known of {who}.", what=what, who=whose)


def _watched(gpus: tuple[Gpu, ...]) -> Iterator[str]:
    """Say what of the time is known, if it is not all."""
    for gpu in gpus:
        whole = _whole(gpu)
        if not gpu.instance and gpu.watched_seconds < WATCHED_SHARE * whole:
            yield tell(
                "{name} was watched for {time} of {whole}.",
                name=gpu.name,
                time=seconds(gpu.watched_seconds),
                whole=seconds(whole),
            )


def _whole(gpu: Gpu) -> float:
    return (gpu.end_ns - gpu.start_ns) / 1e9


def _worth(gpu: Gpu, throttle: Throttle) -> bool:
    weight = throttle.cause.weight
    if weight is Weight.FAULT:
        return throttle.seconds >= MIN_SECONDS
    suspect = any(one.suspect and one.cause == throttle.cause.name for one in gpu.beside)
    return weight is Weight.LIMIT and (
        suspect or throttle.seconds >= max(LIMIT_SHARE * gpu.watched_seconds, MIN_SECONDS)
    )


def _throttled(gpu: Gpu, throttle: Throttle) -> str:
    first, last = throttle.spans[0], throttle.spans[-1]
    return several(
        len(throttle.spans),
        "{name} was {state} for {time} of the {watched} it was watched, between {begin} and {end} "
        "UTC.",
        "{name} was {state} for {time} of the {watched} it was watched, {n} times between {begin} "
        "and {end} UTC.",
        name=gpu.name,
        state=throttle.cause.words,
        time=seconds(throttle.seconds),
        watched=seconds(gpu.watched_seconds),
        begin=clock(first.start_ns),
        end=clock(last.end_ns),
    )


def _lost(gpu: Gpu) -> str:
    since = clock(gpu.lost[0].start_ns) if gpu.lost else clock(gpu.end_ns)
    if gpu.lost_at_end and len(gpu.lost) <= 1:
        return tell(
            "{name} is lost: it could not be read from {since} UTC on.", name=gpu.name, since=since
        )
    said = several(
        len(gpu.lost),
        "{name} was lost: it could not be read for {time}, from {since} UTC on.",
        "{name} was lost: it could not be read for {time}, {n} times, from {since} UTC on.",
        name=gpu.name,
        time=seconds(gpu.lost_seconds),
        since=since,
    )
    return row([said, tell("It is lost again.")]) if gpu.lost_at_end else said


def _by_code(events: tuple[Xid, ...]) -> list[Xid]:
    """The first event of each code, fatal codes first."""
    first = {event.code: event for event in reversed(events)}
    return sorted(first.values(), key=lambda event: (event.action not in FATAL, event.time_ns))


def _xid(gpu: Gpu, event: Xid) -> str:
    count = sum(other.count for other in gpu.xids if other.code == event.code)
    said: dict[str, object] = {"name": gpu.name, "at": clock(event.time_ns), "code": event.code}
    meaning = _ACTIONS.get(event.action)
    if meaning is None:
        return several(
            count,
            "{name} had XID {code} at {at} UTC.",
            "{name} had XID {code} at {at} UTC, {n} times in all.",
            **said,
        )
    return several(
        count,
        "{name} had XID {code} ({means}, after NVIDIA's catalogue) at {at} UTC.",
        "{name} had XID {code} ({means}, after NVIDIA's catalogue) at {at} UTC, {n} times in all.",
        means=meaning,
        **said,
    )


def _beside(gpu: Gpu, trouble: Trouble, cause: str) -> Iterator[str]:
    for one in gpu.beside:
        if (one.trouble, one.cause) == (trouble, cause):
            yield _meanwhile(one)
            return


def _meanwhile(one: Coincidence) -> str:
    counts = {"some": f"{one.requests:,}", "all": f"{one.slow:,}"}
    if one.share is None or one.share_slow is None:
        return tell(
            "{some} of the {all} slow requests ran at that moment (association, not proof).",
            **counts,
        )
    return tell(
        "{some} of the {all} slow requests ran meanwhile; it was so in {slow} of the slow "
        "requests' time and in {whole} of the whole (association, not proof).",
        slow=percent(one.share_slow),
        whole=percent(one.share),
        **counts,
    )


def _bound(gpu: Gpu, found: Bandwidth) -> str:
    return tell(
        "{name} moved data in {dram} of its memory's cycles on average, while its tensor cores "
        "were in use in {tensor}: in {share} of the time it was busy with memory rather than "
        "arithmetic, as decoding usually is.",
        name=gpu.name,
        dram=percent(found.dram),
        tensor=percent(found.tensor),
        share=percent(found.share),
    )
