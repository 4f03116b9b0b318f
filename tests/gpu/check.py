"""Checks on a real GPU what no fake can tell. One command, under 4 minutes:

    python -m tests.gpu.check | tee docs/gpu-check.txt

It needs an NVIDIA GPU with GPM (Hopper or newer), Python 3.11, ``nvidia-ml-py`` and
``prometheus-client``, and ``nvidia-smi`` for the comparison; what is missing is said and left out.
Tailscope need not be installed: ``PYTHONPATH=exporter:.`` does. The load needs the driver alone.
"""

from __future__ import annotations

import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailscope.catalogue import PREFIX
from tailscope.exporter.health import SourceError
from tailscope.exporter.sources.nvml import library
from tailscope.exporter.sources.nvml.source import NvmlSource, binding

ACTIVITY = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "graphics_active")
DMON_IDS = {2: "sm_active", 3: "sm_occupancy", 5: "tensor_active", 10: "dram_active"}
INTERVAL = 1.0
PATIENCE = 60.0
"""Seconds after which what does not go on is ended, so that the rest is still checked."""
_NOBODY = 65534


@dataclass(slots=True)
class Check:
    """What was found.

    Attributes:
        idle, compute, memory: Mean activity of GPU 0 by load, by metric.
        smi: What nvidia-smi said of each load meanwhile.
        latency: Milliseconds of each call.
        unprivileged: What a user without rights got.
    """

    idle: dict[str, float] = field(default_factory=dict)
    compute: dict[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    smi: dict[str, dict[str, float]] = field(default_factory=dict)
    latency: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    unprivileged: str = ""


def values(source: NvmlSource) -> dict[str, float]:
    """Return the values of GPU 0 by metric, more labels appended."""
    found: dict[str, float] = {}
    for name, lines in source.lines(True).items():
        for line in lines:
            if '{gpu="0"' in line.series and "_sampled" not in line.series:
                extra = line.series.partition('profile=""')[2].strip(',}"').replace('"', "")
                found[f"{name.removeprefix(PREFIX)}{' ' + extra if extra else ''}"] = line.value
    return found


def timed(check: Check) -> None:
    """Measure each call into NVML from here on."""
    real = library.Library.call

    def call(self: library.Library, name: str, *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return real(self, name, *arguments)
        finally:
            check.latency[name].append(1000 * (time.perf_counter() - began))

    setattr(library.Library, "call", call)  # noqa: B010 - mypy takes no method assigned


def sample(source: NvmlSource, seconds: int) -> dict[str, float]:
    """Read for a while; returns the mean activity of GPU 0."""
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(seconds):
        time.sleep(INTERVAL)
        try:
            source.read()
        except SourceError as error:
            print(f"one read failed: {error}")
            continue
        now = values(source)
        for name in ACTIVITY:
            if f"gpu_{name}_ratio" in now:
                found[name].append(now[f"gpu_{name}_ratio"])
    # The first one may hold a second of what was before.
    return {name: statistics.mean(numbers[1:] or numbers) for name, numbers in found.items()}


def smi(seconds: int) -> subprocess.Popen[str] | None:
    """Begin to let nvidia-smi read the same metrics; None if there is none."""
    ids = ",".join(map(str, DMON_IDS))
    command = ["nvidia-smi", "dmon", "--gpm-metrics", ids, "-i", "0", "-d", "1", "-c", str(seconds)]
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        print(f"no comparison: nvidia-smi cannot be run: {error}")
        return None


def smi_means(output: str) -> dict[str, float]:
    """Return the means of the GPM columns, which are the last ones, in the order asked for."""
    columns: list[list[float]] = [[] for _ in DMON_IDS]
    for line in output.splitlines():
        cells = line.split()
        # A line without all of its columns is a message.
        if len(cells) <= len(DMON_IDS) or not cells[0].isdecimal():
            continue
        for column, cell in zip(columns, cells[-len(DMON_IDS) :], strict=True):
            try:
                column.append(float(cell) / 100)
            except ValueError:
                continue
    return {
        name: statistics.mean(column[1:])
        for name, column in zip(DMON_IDS.values(), columns, strict=True)
        if len(column) > 1
    }


def under_load(source: NvmlSource, kind: str, seconds: int, check: Check) -> dict[str, float]:
    """Read while the GPU works; nothing if it cannot be given work."""
    command = [sys.executable, "-m", "tests.gpu.load", kind, str(seconds + PATIENCE)]
    # CUDA counts the fastest GPU first, and may have been told to see another one.
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid_of_first(source)}
    load = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    assert load.stdout and load.stderr
    too_late = threading.Timer(PATIENCE, load.kill)
    too_late.start()
    try:
        if not load.stdout.readline():
            print(f"{kind}: {(load.stderr.read().strip().splitlines() or ['no load'])[-1]}")
            return {}
        too_late.cancel()
        watcher = smi(seconds)
        found = sample(source, seconds)
        if load.poll() is not None:
            print(f"{kind}: the load ended early: {load.stderr.read().strip()}")
            return {}
        if watcher is not None:
            output = _ended(watcher)
            check.smi[kind] = smi_means(output)
            print(f"nvidia-smi dmon under {kind} load:\n{output}")
        return found
    finally:
        too_late.cancel()
        load.kill()
        load.communicate()


def _ended(watcher: subprocess.Popen[str]) -> str:
    """Return what a process said, which should be at its end."""
    try:
        output, _ = watcher.communicate(timeout=15)
    except subprocess.TimeoutExpired:
        watcher.kill()
        output, _ = watcher.communicate()
    return output


def uuid_of_first(source: NvmlSource) -> str:
    """Return the UUID of GPU 0, by which CUDA knows it too."""
    (line,) = (line for line in source.lines(True)[f"{PREFIX}gpu_up"] if '{gpu="0"' in line.series)
    return line.series.partition('uuid="')[2].partition('"')[0]


def unprivileged() -> str:
    """Read as nobody, who has no rights; returns what came of it.

    In a process of its own, before NVML is opened in this one.
    """
    binding()
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        text = "it broke off"
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(_NOBODY)
                os.setuid(_NOBODY)
            text = _two_reads()
        except (OSError, ImportError, RuntimeError) as error:
            text = f"it broke off: {error!r}"
        finally:
            os.write(write_end, text.encode())
            os._exit(0)
    os.close(write_end)
    if not select.select([read_end], [], [], PATIENCE)[0]:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(read_end) as pipe:
        text = pipe.read() or "it did not come to an end"
    os.waitpid(child, 0)
    return text


def _two_reads() -> str:
    source = NvmlSource(interval=INTERVAL, longest=3 * INTERVAL)
    try:
        source.read()
        time.sleep(1.2 * INTERVAL)
        text = source.read()
    except SourceError as error:
        text = f"{error.reason}: {error}"
    sm = [name for name in values(source) if "sm_active_ratio" in name]
    errors = source.lines(True).get(f"{PREFIX}gpu_call_errors_total", [])
    return f"uid {os.getuid()}: {text}; {sm}; {[line.series for line in errors]}"


def run(quick: bool = False) -> Check:
    """Do all checks and print what was found.

    Raises:
        SourceError: If no GPU can be read.
    """
    seconds = 6 if quick else 15
    check = Check()
    check.unprivileged = unprivileged()
    timed(check)
    began = time.monotonic()
    source = NvmlSource(interval=INTERVAL, longest=3 * INTERVAL)
    try:
        print(f"Python {platform.python_version()}, uid {os.getuid()}")
        print(f"first read, which opens NVML: {source.read()}, {time.monotonic() - began:.2f} s")
        check.idle = sample(source, seconds // 2)
        check.compute = under_load(source, "compute", seconds, check)
        check.memory = under_load(source, "memory", seconds, check)
        print("\n".join(f"  {name:58} {value:g}" for name, value in sorted(values(source).items())))
    finally:
        source.close()
    report(check)
    return check


def report(check: Check) -> None:
    """Print the tables."""
    print(f"\n{'activity of GPU 0':22}{'idle':>9}{'compute':>9}{'memory':>9}")
    for name in ACTIVITY:
        means = (check.idle, check.compute, check.memory)
        print(f"{name:22}" + "".join(f"{mean.get(name, float('nan')):9.3f}" for mean in means))
    print(f"\n{'ours against nvidia-smi':22}{'load':>9}{'ours':>9}{'smi':>9}")
    for kind, theirs in check.smi.items():
        mine: Mapping[str, float] = getattr(check, kind)
        for name, value in theirs.items():
            print(f"{name:22}{kind:>9}{mine.get(name, float('nan')):9.3f}{value:9.3f}")
    print(f"\n{'call, ms':48}{'n':>6}{'p50':>9}{'max':>9}")
    for name, times in sorted(dict(check.latency).items(), key=lambda entry: -max(entry[1])):
        print(f"{name:48}{len(times):6}{statistics.median(times):9.3f}{max(times):9.3f}")
    print(f"\nas a user without rights:\n{check.unprivileged}")


def main() -> None:
    """Run, and say why if there is nothing to run on."""
    try:
        run("--quick" in sys.argv)
    except SourceError as error:
        raise SystemExit(f"no check: {error}") from None


if __name__ == "__main__":
    main()
