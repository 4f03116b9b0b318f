"""The whole stack on a recording: the recorded engine, the player, the exporter and the app."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tailscope.address import Address, free
from tailscope.demo.engine import RecordedEngine
from tailscope.demo.player import Player
from tailscope.demo.recording import Recording
from tailscope.demo.schedule import Schedule
from tailscope.demo.sender import FileSender, GrpcSender, HttpSender, Sender
from tailscope.launch.child import TAILSCOPE
from tailscope.launch.clock import Clock
from tailscope.launch.processes import Processes

_RETENTION = "1d"
"""Of a store that is removed at the end; one that the user named is the user's."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user can choose.

    Attributes:
        listen: Where the exporter serves its metrics.
        app: Where the app is; None for no app.
        data: The store; None for one that is removed at the end.
        history_seconds: What is played at once, with times in the past.
        otlp_http: Whether spans go over HTTP instead of gRPC.
    """

    listen: Address
    app: Address | None
    data: Path | None
    history_seconds: float
    otlp_http: bool = False


class Stack:
    """Starts everything, watches it, and ends it.

    The exporter and the app are the ordinary commands, and are told nothing of a recording but
    for the sentence that the app shows.

    Args:
        recording: What is played.
        settings: What the user chose.
        clock: Stop or interrupt it to end the stack.
        say: Takes each line for the user.
        tailscope: Program and arguments of the ``tailscope`` command.
    """

    def __init__(
        self,
        recording: Recording,
        settings: Settings,
        clock: Clock,
        say: Callable[[str], None],
        tailscope: Sequence[str] = TAILSCOPE,
    ) -> None:
        self._recording = recording
        self._settings = settings
        self._clock = clock
        self._say = say
        self._tailscope = tuple(tailscope)

    def run(self) -> None:
        """Run until the clock is stopped.

        Raises:
            ChildError: If the exporter or the app ends by itself.
            OSError: If a file cannot be written.
        """
        with ExitStack() as cleanup:
            folder = Path(cleanup.enter_context(TemporaryDirectory(prefix="tailscope-demo-")))
            processes = Processes(folder, self._clock, self._say, self._tailscope)
            if self._start(cleanup, folder, processes):
                processes.watch()

    def _start(self, cleanup: ExitStack, folder: Path, processes: Processes) -> bool:
        """Start all parts; return False if the clock was stopped meanwhile."""
        now_ns, history_ns = self._clock.now_ns, round(self._settings.history_seconds * 1e9)
        schedule = Schedule.of(self._recording, live_ns=now_ns(), history_ns=history_ns)
        engine = RecordedEngine(self._recording, schedule, now_ns)
        engine.start()
        cleanup.callback(engine.stop)
        cleanup.callback(processes.end)

        requests = FileSender(folder / "requests.jsonl")
        cleanup.callback(requests.close)
        data = self._settings.data or folder / "data"
        grpc, http = free(), free()
        # The recording has no GPU; one of this machine has nothing to do with it.
        flags = ["--engine", engine.url, "--requests", str(requests.path), "--gpu", "off"]
        flags += ["--otlp-grpc", str(grpc), "--otlp-http", str(http)]
        if not self._settings.data:
            flags += ["--retention", _RETENTION]
        if not processes.start_exporter(self._settings.listen, data, *flags):
            return False
        self._say(f"  recorded engine  {engine.url}/metrics")

        otlp = self._sender(grpc, http)
        cleanup.callback(otlp.close)
        player = Player(self._recording, schedule, otlp, requests, self._clock)
        player.start()
        cleanup.callback(player.stop)
        app = self._settings.app
        notice = ("--notice", self._recording.notice)
        return app is None or processes.start_app(app, data, *notice)

    def _sender(self, grpc: Address, http: Address) -> Sender:
        if self._settings.otlp_http:
            return HttpSender(f"{http.url}/v1/traces")
        return GrpcSender(str(grpc))
