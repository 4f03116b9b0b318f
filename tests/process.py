"""The real ``tailscope`` command as a process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.error import URLError

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

T = TypeVar("T")

ROOT = Path(__file__).parents[1]
TAILSCOPE = (sys.executable, "-m", "tailscope.cli")
PATIENCE = 60.0

_ROOTS = ("exporter", "dashboards", "app", "alerts")
_PORTS = {
    "listen": re.compile(r"metrics at http://\S+:(\d+)/metrics"),
    "otlp_grpc": re.compile(r"spans over otlp grpc at port (\d+)"),
    "otlp_http": re.compile(r"spans over otlp http at port (\d+)"),
}


def environment(**extra: str) -> dict[str, str]:
    """This checkout, and none of the user's settings."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TAILSCOPE_")}
    path = os.pathsep.join(str(ROOT / name) for name in _ROOTS)
    return {**kept, "PYTHONPATH": path, **extra}


def run(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of Tailscope that ends by itself."""
    return subprocess.run(
        [*TAILSCOPE, *arguments],
        env=environment(**(env or {})),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


def until(
    condition: Callable[[], T | None],
    what: str = "",
    seconds: float = PATIENCE,
    pause: float = 0.02,
) -> T:
    """Wait until a condition holds, and return what it gave.

    Args:
        condition: What has to be true, asked again and again.
        what: The same for people.
        seconds: Time to wait at most.
        pause: Seconds from one question to the next, more where it costs more.

    Raises:
        AssertionError: If it does not hold in time.
    """
    ends = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < ends, f"not within {seconds:g} s: {what or condition}"
        time.sleep(pause)
    return found


class Exporter:
    """A running ``tailscope exporter``. Its ports are free ones, which its log tells.

    Args:
        log: File for its output.
        flags: Flags; without ``--listen``, ``--otlp-grpc`` and ``--otlp-http``, ports are free
            ones, and without ``--gpu`` no GPU is read.
        env: Further environment variables.
    """

    def __init__(self, log: Path, *flags: str, env: Mapping[str, str] | None = None) -> None:
        self._log = log
        given = {flag for flag in flags if flag.startswith("--")}
        own = [
            part
            for flag in ("--listen", "--otlp-grpc", "--otlp-http")
            if flag not in given
            for part in (flag, "127.0.0.1:0")
        ]
        if "--gpu" not in given:
            own += ["--gpu", "off"]  # a GPU of this machine has no part in the test
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [*TAILSCOPE, "exporter", *own, *flags],
                env=environment(**(env or {})),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def port(self, name: str = "listen") -> int:
        """The port of ``listen``, ``otlp_grpc`` or ``otlp_http``."""

        def found() -> re.Match[str] | None:
            assert self.process.poll() is None, f"the exporter ended:\n{self.log}"
            return _PORTS[name].search(self.log)

        return int(until(found, f"the log tells the port of {name}")[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port()}"

    @property
    def otlp_http(self) -> str:
        return f"http://127.0.0.1:{self.port('otlp_http')}/v1/traces"

    @property
    def otlp_grpc(self) -> str:
        return f"127.0.0.1:{self.port('otlp_grpc')}"

    def wait_ready(self) -> None:
        """Wait until ``/-/ready`` says yes."""
        url = f"{self.url}/-/ready"

        def ready() -> bool:
            assert self.process.poll() is None, f"the exporter ended:\n{self.log}"
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    return bool(answer.status == 200)
            except (URLError, OSError):
                return False

        until(ready, "the exporter is ready")

    def get(self, path: str = "/metrics", **headers: str) -> str:
        """The body of one of its pages.

        Raises:
            HTTPError: If the status is no 2xx.
        """
        request = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def samples(self, name: str) -> list[Sample]:
        """The samples of a name; ``tailscope_`` may be left out."""
        if not name.startswith(("tailscope_", "process_")):
            name = f"tailscope_{name}"
        page = self.get()
        # Only its lines: parsing the whole page takes longer than making it.
        lines = [line for line in page.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        families = text_string_to_metric_families("\n".join(lines) + "\n")
        return [sample for family in families for sample in family.samples]

    def values(self, name: str, **labels: str) -> list[float]:
        """The values of the series that have these labels."""
        return [
            sample.value for sample in self.samples(name) if labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the one series that has these labels; None if there is none."""
        found = self.values(name, **labels)
        assert len(found) <= 1, f"{name}{labels} has {len(found)} series"
        return found[0] if found else None

    def state(self, source: str) -> str:
        """The present reason of a source."""
        reasons = [
            sample.labels["reason"]
            for sample in self.samples("source_state")
            if sample.labels["source"] == source
        ]
        assert len(reasons) == 1, f"{source} has the states {reasons}"
        return reasons[0]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)


@contextmanager
def exporter(log: Path, *flags: str, env: Mapping[str, str] | None = None) -> Iterator[Exporter]:
    """A running exporter that is ready, until the block ends."""
    running = Exporter(log, *flags, env=env)
    try:
        running.wait_ready()
        yield running
    finally:
        running.kill()
