"""The real ``tailscope exporter`` as a process, without an engine."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import urllib3

from tests.fakenvml.page import Page
from tests.fakenvml.rig import ROOT

T = TypeVar("T")

_PORT = re.compile(r"metrics at http://127\.0\.0\.1:(\d+)/metrics")


class ExporterProcess:
    """One exporter.

    Args:
        log: File of what it says.
        environment: Its environment.
        flags: More flags.
    """

    def __init__(self, log: Path, environment: Mapping[str, str], *flags: str) -> None:
        self._log = log
        command = [sys.executable, "-m", "tailscope.cli", "exporter"]
        command += ["--engine", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"]
        command += ["--otlp-grpc", "off", "--otlp-http", "off", *flags]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=file, env=dict(environment), cwd=ROOT
            )
        self._http = urllib3.PoolManager(retries=False, timeout=10)
        self.url = f"http://127.0.0.1:{self.until(self._port)}"

    def _port(self) -> str | None:
        assert self.process.poll() is None, self.log
        hit = _PORT.search(self.log)
        return hit[1] if hit else None

    @property
    def log(self) -> str:
        """What it said."""
        return self._log.read_text(errors="replace")

    def until(self, ask: Callable[[], T | None], seconds: float = 20.0) -> T:
        """Wait until an answer is not None and not False.

        Raises:
            AssertionError: If none comes in time.
        """
        ends = time.monotonic() + seconds
        while True:
            answer = ask()
            if answer is not None and answer is not False:
                return answer
            assert time.monotonic() < ends, self.log
            time.sleep(0.02)

    def get(self, path: str) -> str:
        """Return what it answers."""
        response = self._http.request("GET", self.url + path)
        assert response.status == 200, response.status
        return response.data.decode()

    def page(self) -> Page:
        """Return the page of metrics."""
        return Page(self.get("/metrics"))

    def stop(self) -> tuple[int, float]:
        """End it; returns its exit status and the seconds that it took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(20)
        return status, time.monotonic() - began

    def kill(self) -> None:
        """End it, whatever it does."""
        self._http.clear()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
