"""The exporter as a whole: builds the parts, starts them, and ends them in order."""

from __future__ import annotations

import logging
import os
import platform
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from glob import has_magic
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector

from tailscope.address import Address
from tailscope.catalogue import METRICS, PREFIX
from tailscope.catalogue.engines import engines
from tailscope.exporter.config import Config, RequestFile
from tailscope.exporter.discovery import INTERVAL, Discovery
from tailscope.exporter.exposition import Line, Lines, Page, series
from tailscope.exporter.gpus import gpu_sources
from tailscope.exporter.health import Health
from tailscope.exporter.intake import Intake
from tailscope.exporter.listeners import App, HttpListeners, bind
from tailscope.exporter.matcher import Matcher
from tailscope.exporter.memory import collect_seldom, return_arrow_blocks
from tailscope.exporter.poller import STALE_INTERVALS, Poller
from tailscope.exporter.requestmetrics import RequestMetrics
from tailscope.exporter.sources.requestfile import RequestFileSource
from tailscope.exporter.sources.requestfiles import RequestFilesSource
from tailscope.exporter.targets import Target
from tailscope.exporter.web import MetricsApp
from tailscope.records.translation import Translator

if TYPE_CHECKING:
    from tailscope.exporter.otlpgrpc import GrpcListener
    from tailscope.exporter.receiver import Receiver
    from tailscope.exporter.sources.engine import EngineSource
    from tailscope.records.store import Store

log = logging.getLogger(__name__)

_STOP_SECONDS = 1.0
_FILE_DEADLINE = 10.0

_GATEWAY = "gateway.seen"
"""File in the data directory that is there once a gateway has sent records."""


class Sidecar:
    """One exporter.

    Args:
        config: Checked settings.

    Raises:
        UsageError: If an address cannot be had.
        StoreError: If the store cannot be opened.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._version = version("tailscope")
        self._stopping = False
        self._sockets: list[socket.socket] = []
        metrics_socket = self._bind("--listen", config.listen)
        otlp_socket = self._bind("--otlp-http", config.otlp_http) if config.otlp_http else None
        self._store = _open_store(config)
        self._requests = RequestMetrics(config.tenants)
        spans = [engine.spans for engine in engines().values() if engine.spans]
        self._matcher = Matcher(
            self._requests.observe,
            expect_gateway=bool(config.requests) or self._had_gateway(),
            staged=[kind.source for kind in spans if kind.stages],
        )
        self._intake = Intake(
            self._store, self._matcher, self._place, config.pseudonyms, self._note_gateway
        )
        self._engines = [self._engine_source(target) for target in config.targets]
        self._pollers = [self._engine_poller(source) for source in self._engines]
        self._pollers += [
            Poller(self._file_source(file), config.interval, _FILE_DEADLINE)
            for file in config.requests
        ]
        self._pollers += [
            Poller(source, config.interval, _deadline(config.interval))
            for source in gpu_sources(
                config.gpu,
                config.dcgm_url,
                interval=config.interval,
                deadline=_deadline(config.interval),
                longest=STALE_INTERVALS * config.interval,
                keep=self._store.submit_samples if self._store else None,
            )
        ]
        if config.discover:
            self._pollers.append(self._discovery())
        self._listening: list[Health] = []
        page = MetricsApp(self.exposition, self._ready, self._healths, self._version)
        apps: list[tuple[App, socket.socket]] = [(page, metrics_socket)]
        if otlp_socket is not None:
            # Imported only where it is wanted: protobuf takes 4 MiB.
            from tailscope.exporter.otlphttp import otlp_app

            apps.append((otlp_app(self._receiver("otlp:http")), otlp_socket))
        self._http = HttpListeners(apps)
        self._grpc = self._grpc_listener()
        self._page = Page(ProcessCollector(registry=None))
        self.ports = {
            "listen": metrics_socket.getsockname()[1],
            "otlp_http": otlp_socket.getsockname()[1] if otlp_socket else None,
            "otlp_grpc": self._grpc.port if self._grpc else None,
        }

    def _bind(self, flag: str, address: Address) -> socket.socket:
        sock = bind(flag, address)
        self._sockets.append(sock)
        return sock

    def _receiver(self, name: str) -> Receiver:
        from tailscope.exporter.receiver import Receiver
        from tailscope.exporter.spans import SpanReader

        health = Health(name)
        self._listening.append(health)
        spans = SpanReader(engines(), self._config.tenant_rules)
        return Receiver(spans, self._intake, health)

    def _grpc_listener(self) -> GrpcListener | None:
        if self._config.otlp_grpc is None:
            return None
        # It would write of a port that is taken in its own words, before we do in ours.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        # Imported only where it is wanted: gRPC takes 15 MiB.
        from tailscope.exporter.otlpgrpc import GrpcListener

        return GrpcListener(self._receiver("otlp:grpc"), str(self._config.otlp_grpc))

    def _engine_source(self, target: Target) -> EngineSource:
        # Imported only where it is wanted: HTTP takes 4 MiB.
        from tailscope.exporter.sources.engine import EngineSource

        return EngineSource(
            target.url,
            engines(),
            engine=target.engine,
            deadline=_deadline(self._config.interval),
            longest=STALE_INTERVALS * self._config.interval,
            keep=self._store.submit_samples if self._store else None,
            access=target.access,
            model=target.model,
        )

    def _file_source(self, file: RequestFile) -> RequestFileSource | RequestFilesSource:
        config = self._config
        translator = Translator(file.format, more=config.formats, rules=config.tenant_rules)
        kind = RequestFilesSource if has_magic(str(file.path)) else RequestFileSource
        return kind(file.path, self._intake, config.data, translator)

    def _engine_poller(self, source: EngineSource) -> Poller:
        return Poller(source, self._config.interval, _deadline(self._config.interval))

    def _discovery(self) -> Poller:
        """Look for engines, as the user named none."""
        ours = [sock.getsockname()[1] for sock in self._sockets]
        if self._config.otlp_grpc is not None:
            ours.append(self._config.otlp_grpc.port)
        discovery = Discovery(
            engines(), lambda url: self._engine_source(Target(url, None)), self._found, ours
        )
        return Poller(discovery, INTERVAL, _deadline(INTERVAL))

    def _found(self, source: EngineSource) -> None:
        if self._stopping:
            return
        self._engines.append(source)
        poller = self._engine_poller(source)
        self._pollers.append(poller)
        poller.start()

    def _place(self) -> tuple[str | None, str | None]:
        """The one engine beside us, for records that do not say where they were served."""
        if len(self._engines) != 1:
            return None, None
        source = self._engines[0]
        return source.server, source.model

    def _had_gateway(self) -> bool:
        """Whether a gateway sent records before a restart: engines' rows then wait for it again."""
        return self._config.data is not None and Path(self._config.data, _GATEWAY).exists()

    def _note_gateway(self) -> None:
        if self._config.data is not None:
            with suppress(OSError):  # engines' rows then count at once until one is seen
                Path(self._config.data, _GATEWAY).touch()

    def _ready(self) -> bool:
        return self._http.serving and not self._stopping

    def _healths(self) -> list[Health]:
        return [*(poller.watch() for poller in self._shown()), *self._listening]

    def _shown(self) -> list[Poller]:
        """Leave out a source that the user did not name and that is not needed or not there."""
        return [poller for poller in self._pollers if not getattr(poller.source, "hidden", False)]

    def exposition(self, openmetrics: bool) -> bytes:
        """Write the metrics page."""
        self._matcher.expire()
        groups: list[Lines] = [self._self_lines(), self._requests.lines(), self._intake.lines()]
        for poller in self._shown():
            groups.extend(poller.lines())
        groups.extend(health.lines() for health in self._listening)
        return self._page.render(groups, openmetrics)

    def _self_lines(self) -> Lines:
        found: dict[str, Sequence[Line]] = {}

        def put(name: str, value: float, *values: str) -> None:
            metric = METRICS[PREFIX + name]
            found[metric.name] = [Line(series(metric.name, metric.labels, values), value)]

        put("build_info", 1, self._version, platform.python_version())
        if self._store is not None:
            put("store_pending_records", self._store.pending)
            put("store_commits_total", self._store.commits)
            put("store_commit_seconds_total", self._store.commit_seconds)
            put("store_up", 0 if self._store.failure else 1)
        return found

    def start(self) -> None:
        """Start all threads."""
        collect_seldom()
        for poller in self._pollers:
            poller.start()
        if self._grpc is not None:
            self._grpc.start()
        self._http.start()
        for health in self._listening:
            health.success(message="listens")
        log.info(
            "metrics at http://%s/metrics",
            self._config.listen._replace(port=self.ports["listen"] or 0),
        )
        for flag in ("otlp_grpc", "otlp_http"):
            if self.ports[flag] is not None:
                log.info("spans over %s at port %s", flag.replace("_", " "), self.ports[flag])

    def stop(self) -> None:
        """End in order: no new spans, then the store, with all that was taken; under 2 s."""
        self._stopping = True
        ends = time.monotonic() + _STOP_SECONDS
        for poller in self._pollers:
            poller.stop()
        self._http.stop()
        if self._grpc is not None:
            self._grpc.stop(_STOP_SECONDS / 2)
        self._http.join(max(0.0, ends - time.monotonic()))
        for poller in self._pollers:
            poller.join(max(0.0, ends - time.monotonic()))
        if self._store is not None:
            self._store.close()


def _deadline(interval: float) -> float:
    """A read may take as long as it stays fresh, but no less than a second."""
    return max(1.0, interval * (STALE_INTERVALS - 1))


def _open_store(config: Config) -> Store | None:
    if config.data is None:
        return None
    return_arrow_blocks()
    # Imported only where it is wanted: Arrow takes 50 MiB.
    from tailscope.records.store import Store

    return Store(Path(config.data), retention_seconds=config.retention, max_bytes=config.max_bytes)
