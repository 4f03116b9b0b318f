"""A real Prometheus, and time series for it made from the catalogue."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.process import until
from tests.tools import tool

_LISTENING = re.compile(r'Listening on"? address=(\S+)')
_READY = "ready to receive web requests"
_PATIENCE = 60.0


class Prometheus:
    """A running server, asked over HTTP."""

    def __init__(self, address: str) -> None:
        self.url = f"http://{address}"

    def at(self, expr: str, moment: float) -> list[Any]:
        """The series that an expression has at one moment.

        Raises:
            AssertionError: If Prometheus refuses the expression.
        """
        return self._ask("query", query=expr, time=moment)

    def over(self, expr: str, start: float, end: float, step: float) -> list[Any]:
        """The series that an expression has over a range of time.

        Raises:
            AssertionError: If Prometheus refuses the expression.
        """
        return self._ask("query_range", query=expr, start=start, end=end, step=step)

    def _ask(self, path: str, **parameters: object) -> list[Any]:
        body = urllib.parse.urlencode(parameters).encode()
        try:
            url = f"{self.url}/api/v1/{path}"
            with urllib.request.urlopen(url, body, timeout=_PATIENCE) as answer:
                result: list[Any] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters['query']}: {error.read().decode()}") from error
        return result


@contextmanager
def running(
    directory: Path, scrape: Mapping[str, str] | None = None, lookback: str = "5m"
) -> Iterator[Prometheus]:
    """Run a Prometheus on the time series of a directory until the block ends.

    Args:
        directory: Its storage; may hold blocks already.
        scrape: Targets to scrape every second, ``host:port`` by the name of the job.
        lookback: For how long a series that ended is still there, where no scrape marked its end.
    """
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}]}
            for job, target in (scrape or {}).items()
        ],
    }
    directory.mkdir(parents=True, exist_ok=True)
    settings = directory / "prometheus.yml"
    settings.write_text(yaml.safe_dump(config), encoding="utf-8")
    log = directory / "prometheus.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                tool("prometheus"),
                f"--config.file={settings}",
                f"--storage.tsdb.path={directory}",
                "--storage.tsdb.retention.time=100y",
                f"--query.lookback-delta={lookback}",
                "--enable-feature=exemplar-storage",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Prometheus(_address(process, log))
    finally:
        process.terminate()
        process.wait(_PATIENCE)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    def listens() -> str | None:
        text = log.read_text(encoding="utf-8")
        assert process.poll() is None, f"Prometheus did not start:\n{text}"
        found = _LISTENING.search(text)
        return found[1] if found and _READY in text else None

    return until(listens, "Prometheus listens", _PATIENCE)


def backfill(openmetrics: Path, directory: Path) -> None:
    """Turn a file of OpenMetrics with times into blocks of a storage directory."""
    subprocess.run(
        [
            tool("promtool"),
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            # Else a block for every 2 hours, and the file is read for each.
            "--max-block-duration=1000h",
            str(openmetrics),
            str(directory),
        ],
        check=True,
        capture_output=True,
    )
