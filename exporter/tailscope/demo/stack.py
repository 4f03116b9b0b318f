"""The whole stack on a recording: the recorded engine, the player, the exporter and the app."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tailscope.demo.address import Address, free
from tailscope.demo.child import TAILSCOPE, Child
from tailscope.demo.clock import Clock
from tailscope.demo.engine import RecordedEngine
from tailscope.demo.player import Player
from tailscope.demo.recording import Recording
from tailscope.demo.schedule import Schedule
from tailscope.demo.sender import FileSender, GrpcSender, HttpSender, Sender

_READY_SECONDS = 30.0
_APP_SECONDS = 60.0
_POLL = 0.2


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user can choose.

    Attributes:
        listen: Where the exporter serves its metrics.
        app: Where the app is; None for no app.
        data: The store; None for one that is removed at the end.
        loops_before: Loops that are played at once, with times in the past.
        otlp_http: Whether spans go over HTTP instead of gRPC.
    """

    listen: Address
    app: Address | None
    data: Path | None
    loops_before: int
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
        self._children: list[Child] = []

    def run(self) -> None:
        """Run until the clock is stopped.

        Raises:
            ChildError: If the exporter or the app ends by itself.
            OSError: If a file cannot be written.
        """
        with ExitStack() as cleanup:
            folder = Path(cleanup.enter_context(TemporaryDirectory(prefix="tailscope-demo-")))
            if self._start(cleanup, folder):
                self._say("Ctrl-C ends it.")
                while self._clock.wait(_POLL):
                    self._check()

    def _start(self, cleanup: ExitStack, folder: Path) -> bool:
        """Start all parts; return False if the clock was stopped meanwhile."""
        now_ns, before = self._clock.now_ns, self._settings.loops_before
        schedule = Schedule.of(self._recording, live_ns=now_ns(), before=before)
        engine = RecordedEngine(self._recording, schedule, now_ns)
        engine.start()
        cleanup.callback(engine.stop)
        cleanup.callback(self._end)

        requests = FileSender(folder / "requests.jsonl")
        cleanup.callback(requests.close)
        data = self._settings.data or folder / "data"
        otlp = self._start_exporter(engine.url, requests.path, data, folder)
        if otlp is None:
            return False
        cleanup.callback(otlp.close)
        self._say(f"  recorded engine  {engine.url}/metrics")

        player = Player(self._recording, schedule, otlp, requests, self._clock)
        player.start()
        cleanup.callback(player.stop)
        return self._settings.app is None or self._start_app(self._settings.app, data, folder)

    def _start_exporter(
        self, engine: str, requests: Path, data: Path, folder: Path
    ) -> Sender | None:
        listen, grpc, http = self._settings.listen, free(), free()
        exporter = self._child(
            "exporter",
            folder,
            *("--engine", engine),
            *("--requests", str(requests)),
            *("--otlp-grpc", str(grpc)),
            *("--otlp-http", str(http)),
            *("--listen", str(listen)),
            *("--data", str(data)),
        )
        if not self._answers(exporter, f"{listen.url}/-/ready", _READY_SECONDS):
            return None
        self._say(f"  metrics          {listen.url}/metrics")
        if self._settings.otlp_http:
            return HttpSender(f"{http.url}/v1/traces")
        return GrpcSender(str(grpc))

    def _start_app(self, address: Address, data: Path, folder: Path) -> bool:
        app = self._child(
            "app",
            folder,
            *("--data", str(data)),
            *("--port", str(address.port)),
            *("--notice", self._recording.notice),
        )
        if not self._answers(app, address.url, _APP_SECONDS):
            return False
        self._say(f"  triage app       {address.url}")
        return True

    def _child(self, name: str, folder: Path, *arguments: str) -> Child:
        command = [*self._tailscope, name, *arguments]
        child = Child(name, command, folder / f"{name}.log")
        self._children.append(child)
        return child

    def _answers(self, child: Child, url: str, seconds: float) -> bool:
        """Wait until a child answers; return False if the clock was stopped meanwhile."""
        deadline = time.monotonic() + seconds
        while not child.answers(url):
            self._check()
            if time.monotonic() > deadline:
                raise child.silent(url, seconds)
            if not self._clock.wait(_POLL):
                return False
        return True

    def _check(self) -> None:
        for child in self._children:
            child.check()

    def _end(self) -> None:
        for child in self._children:
            child.ask_to_end()
        for child in self._children:
            child.end()
