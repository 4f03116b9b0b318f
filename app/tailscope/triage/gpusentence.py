"""What GPUs went through, in words. They never say more than was computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from tailscope.triage.coincidence import FATAL, MIN_SECONDS
from tailscope.triage.hardware import Bandwidth, Coincidence, Gpu, Throttle, Trouble, Weight, Xid
from tailscope.triage.words import clock, moment, percent, plural, seconds

LIMIT_SHARE = 0.1
"""A GPU that was at a limit for a smaller part of the time than this is not worth a word."""

BOUND_SHARE = 0.3
"""Nor is one whose memory was near its limit for a smaller part of the time than this."""

WATCHED_SHARE = 0.95
"""What was watched for less of the time than this was watched in part."""

MAX_SAID = 8
"""Sentences about GPUs in one answer."""

_ACTIVITY: Mapping[str, str] = MappingProxyType(
    {"sm": "SM activity", "dram": "DRAM activity", "tensor": "tensor-core activity"}
)
_ACTIONS: Mapping[str, str] = MappingProxyType(
    {
        "ignore": "nothing has to be done at once",
        "restart_app": "it hit a program on the GPU",
        "reset_gpu": "the GPU has to be reset",
        "restart_node": "the machine has to be restarted",
        "restart_vm": "the virtual machine has to be restarted",
        "check_mechanicals": "seating, power and cables have to be looked at",
        "update_software": "driver or firmware have to be updated",
        "contact_support": "the vendor has to be asked",
        "check_log": "the kernel log says more",
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
    found = [
        " ".join([text, *_beside(gpu, trouble, cause)])
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
    since = [f"GPUs were looked at from {moment(gpus[0].start_ns)} on."] if cut else []
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
        return f"{gpu.name} had XID {one.cause} meanwhile."
    words = {throttle.cause.name: throttle.cause.words for throttle in gpu.throttles}
    words |= {Trouble.LOST: "lost", Trouble.BANDWIDTH: "held by the bandwidth of its memory"}
    was = words[one.cause or one.trouble]
    return f"{gpu.name} was {was} for {seconds(one.share_slow * total)} of it."


def _few(said: list[str]) -> tuple[str, ...]:
    more = len(said) - MAX_SAID
    rest = [f"{more} more such sentences are left out."] if more > 0 else []
    return (*said[:MAX_SAID], *rest)


def _well(gpus: tuple[Gpu, ...]) -> str:
    boards = [gpu for gpu in gpus if not gpu.instance]
    levels = ", ".join(
        f"{_ACTIVITY[name]} {percent(sum(known) / len(known))}"
        for name in ("sm", "dram")
        if (known := [gpu.activity[name].mean for gpu in gpus if name in gpu.activity])
    )
    who = boards[0].name if len(boards) == 1 else f"the {len(boards)} GPUs"
    text = f"No loss, no XID event and no long hold of the clocks was seen on {who}."
    return text + (f" On average: {levels}." if levels else "")


def _missing(gpus: tuple[Gpu, ...]) -> Iterator[str]:
    for name, what in _ACTIVITY.items():
        without = [gpu.name for gpu in gpus if name in gpu.missing]
        if without:
            whose = "any GPU" if len(without) == len(gpus) > 1 else ", ".join(without)
            yield f"No {what} is known of {whose}."


def _watched(gpus: tuple[Gpu, ...]) -> Iterator[str]:
    """Say what of the time is known, if it is not all."""
    for gpu in gpus:
        whole = _whole(gpu)
        if not gpu.instance and gpu.watched_seconds < WATCHED_SHARE * whole:
            yield f"{gpu.name} was watched for {seconds(gpu.watched_seconds)} of {seconds(whole)}."


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
    times = plural(len(throttle.spans), "time")
    when = f"between {clock(first.start_ns)} and {clock(last.end_ns)} UTC"
    if len(throttle.spans) > 1:
        when = f"{times} {when}"
    return (
        f"{gpu.name} was {throttle.cause.words} for {seconds(throttle.seconds)} of the "
        f"{seconds(gpu.watched_seconds)} it was watched, {when}."
    )


def _lost(gpu: Gpu) -> str:
    since = clock(gpu.lost[0].start_ns) if gpu.lost else clock(gpu.end_ns)
    if gpu.lost_at_end and len(gpu.lost) <= 1:
        return f"{gpu.name} is lost: it could not be read from {since} UTC on."
    often = f", {len(gpu.lost)} times" if len(gpu.lost) > 1 else ""
    end = "; it is lost again" if gpu.lost_at_end else ""
    return (
        f"{gpu.name} was lost: it could not be read for {seconds(gpu.lost_seconds)}{often}, "
        f"from {since} UTC on{end}."
    )


def _by_code(events: tuple[Xid, ...]) -> list[Xid]:
    """The first event of each code, fatal codes first."""
    first = {event.code: event for event in reversed(events)}
    return sorted(first.values(), key=lambda event: (event.action not in FATAL, event.time_ns))


def _xid(gpu: Gpu, event: Xid) -> str:
    count = sum(other.count for other in gpu.xids if other.code == event.code)
    often = f", {count} times in all" if count > 1 else ""
    meaning = _ACTIONS.get(event.action)
    means = f" ({meaning}, after NVIDIA's catalogue)" if meaning else ""
    return f"{gpu.name} had XID {event.code}{means} at {clock(event.time_ns)} UTC{often}."


def _beside(gpu: Gpu, trouble: Trouble, cause: str) -> Iterator[str]:
    for one in gpu.beside:
        if (one.trouble, one.cause) == (trouble, cause):
            yield _meanwhile(one)
            return


def _meanwhile(one: Coincidence) -> str:
    who = f"{one.requests:,} of the {one.slow:,} slow requests ran"
    if one.share is None or one.share_slow is None:
        return f"{who} at that moment (association, not proof)."
    return (
        f"{who} meanwhile; it was so in {percent(one.share_slow)} of the slow requests' time and "
        f"in {percent(one.share)} of the whole (association, not proof)."
    )


def _bound(gpu: Gpu, found: Bandwidth) -> str:
    return (
        f"{gpu.name} moved data in {percent(found.dram)} of its memory's cycles on average, while "
        f"its tensor cores were in use in {percent(found.tensor)}: in {percent(found.share)} of "
        "the time it was busy with memory rather than arithmetic, as decoding usually is."
    )
