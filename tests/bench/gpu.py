"""Ours and nvitop-exporter side by side on the same fake library with 8 GPUs.

nvitop-exporter is fetched from PyPI into an environment of
its own, and both run as processes. NVML itself takes next to no time here, but for
``nvmlDeviceGetPcieThroughput``, which takes its 20 ms: what is compared is what each makes of it.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import urllib3

from tests.fakenvml.library import build
from tests.fakenvml.rig import ROOT, environment
from tests.fakenvml.state import State

GPUS = 8
NVITOP = "nvitop-exporter==1.7.2"
MIB = 1 << 20
FOLDER = ROOT / ".tools" / "nvitop"
"""Where nvitop-exporter is put."""

_POWER = {"ours": "tailscope_gpu_power_watts{", "nvitop": "gpu_power_usage_"}


@dataclass(slots=True)
class Figures:
    """What was measured of one exporter."""

    start_seconds: list[float] = field(default_factory=list)
    scrape_ms: list[float] = field(default_factory=list)
    rss: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    series: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Args:
    """How long to measure."""

    rounds: int
    scrapes: int
    seconds: float


def nvitop(folder: Path) -> Path:
    """Return the program nvitop-exporter, fetched at the first call."""
    program = folder / "bin" / "nvitop-exporter"
    if not program.exists():
        print(f"Fetching {NVITOP} into {folder}.")
        venv.create(folder, with_pip=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", NVITOP], check=True)
    return program


def ours(port: int) -> list[str]:
    """Return the command of ours: the GPUs alone, and no store."""
    command = [sys.executable, "-m", "tailscope.cli", "exporter", "--gpu", "nvml"]
    command += ["--engine", "off", "--listen", f"127.0.0.1:{port}"]
    return [*command, "--otlp-grpc", "off", "--otlp-http", "off"]


def theirs(program: Path, port: int) -> list[str]:
    """Return the command of nvitop-exporter."""
    return [str(program), "--bind-address", "127.0.0.1", "--port", str(port), "--interval", "1"]


class Running:
    """One exporter that runs, ready when its page has the power of every GPU."""

    def __init__(self, name: str, command: list[str], port: int, env: Mapping[str, str]) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"
        self._http = urllib3.PoolManager(retries=False, timeout=10)
        began = time.monotonic()
        self._process = subprocess.Popen(
            command, env=dict(env), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while self._page().count("\n" + _POWER[name]) < GPUS:
            if self._process.poll() is not None or time.monotonic() - began > 30:
                raise SystemExit(f"{name} does not start: {' '.join(command)}")
            time.sleep(0.002)
        self.start_seconds = time.monotonic() - began
        self.process = psutil.Process(self._process.pid)

    def _page(self) -> str:
        try:
            return self._http.request("GET", self._url).data.decode()
        except urllib3.exceptions.HTTPError:
            return ""

    def scrape(self) -> tuple[float, str]:
        """Scrape once; returns milliseconds and the page."""
        began = time.perf_counter()
        page = self._page()
        return 1000 * (time.perf_counter() - began), page

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def end(self) -> None:
        """End it."""
        self._http.clear()
        self._process.kill()
        self._process.wait()


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def round_of(running: Mapping[str, Running], found: Mapping[str, Figures], args: Args) -> None:
    """Measure both in turn, so that the machine's other load hits both alike."""
    time.sleep(2)
    before = {name: process.cpu_seconds() for name, process in running.items()}
    began = time.monotonic()
    time.sleep(args.seconds)
    for name, process in running.items():
        share = (process.cpu_seconds() - before[name]) / (time.monotonic() - began)
        found[name].cpu.append(100 * share)
    for _ in range(args.scrapes):
        for name, process in running.items():
            ms, page = process.scrape()
            figures = found[name]
            figures.scrape_ms.append(ms)
            lines = page.splitlines()
            figures.series = sum(not line.startswith("#") for line in lines)
            figures.size = len(page)
        time.sleep(0.01)
    for name, process in running.items():
        found[name].start_seconds.append(process.start_seconds)
        found[name].rss.append(process.process.memory_info().rss / MIB)


def measure(args: Args, program: Path) -> dict[str, Figures]:
    """Run both several times and return what was measured."""
    found = {"ours": Figures(), "nvitop": Figures()}
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder) / "lib")
        state = State(Path(folder) / "state", {"count": GPUS})
        env = environment(library, state.path)
        for _ in range(args.rounds):
            running: dict[str, Running] = {}
            try:
                for name in found:
                    port = free_port()
                    command = ours(port) if name == "ours" else theirs(program, port)
                    running[name] = Running(name, command, port, env)
                round_of(running, found, args)
            finally:
                for process in running.values():
                    process.end()
    return found


def percentile(values: list[float], share: float) -> float:
    """Return the value below which that share lies, nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


ROWS: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("start to all GPUs shown, s", lambda f: f"{statistics.median(f.start_seconds):.2f}"),
    ("scrape p50, ms", lambda f: f"{percentile(f.scrape_ms, 0.5):.2f}"),
    ("scrape p99, ms", lambda f: f"{percentile(f.scrape_ms, 0.99):.2f}"),
    ("memory (RSS), MiB", lambda f: f"{max(f.rss):.1f}"),
    ("CPU, % of a core", lambda f: f"{statistics.median(f.cpu):.2f}"),
    ("series", lambda f: f"{f.series}"),
    ("page, kB", lambda f: f"{f.size / 1000:.0f}"),
)


def report(found: Mapping[str, Figures], args: Args) -> Iterator[str]:
    """Write the table, line by line."""
    scrapes = args.rounds * args.scrapes
    yield (
        f"{GPUS} GPUs on the same fake NVML, 1 s sampling, {args.rounds} rounds, {scrapes} "
        "scrapes each, in turn"
    )
    yield f"{'':28}{'tailscope':>12}{'nvitop-exporter':>18}"
    for name, show in ROWS:
        yield f"{name:28}{show(found['ours']):>12}{show(found['nvitop']):>18}"
    yield "only tailscope: GPM activity, integrals and distributions, XID, ECC, throttle seconds,"
    yield "energy, remapped rows, recovery action"


def run(args: Args = Args(3, 100, 15.0), folder: Path = FOLDER) -> Iterator[str]:
    """Measure; yields the lines of the table."""
    yield from report(measure(args, nvitop(folder)), args)


def main() -> None:
    """Measure as the flags say, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scrapes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=15.0, help="for which CPU is measured")
    parser.add_argument("--nvitop", type=Path, default=FOLDER, metavar="DIR")
    given = parser.parse_args()
    for line in run(Args(given.rounds, given.scrapes, given.seconds), given.nvitop):
        print(line)


if __name__ == "__main__":
    main()
