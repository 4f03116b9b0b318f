"""The processes of one run: started one after the other, watched, and ended together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tailscope.address import Address
from tailscope.launch.child import TAILSCOPE, Child
from tailscope.launch.clock import Clock

_EXPORTER_SECONDS = 30.0
_APP_SECONDS = 60.0
_POLL = 0.2


class Processes:
    """The exporter and the app.

    Args:
        folder: For what they write.
        clock: Stop or interrupt it to end them.
        say: Takes each line for the user.
        tailscope: Program and arguments of the ``tailscope`` command.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        say: Callable[[str], None],
        tailscope: Sequence[str] = TAILSCOPE,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._say = say
        self._tailscope = tuple(tailscope)
        self._children: list[Child] = []

    def start_exporter(self, listen: Address, data: Path, *flags: str) -> bool:
        """Start the exporter and wait until it is ready.

        Returns:
            False if the clock was stopped meanwhile.

        Raises:
            ChildError: If it ends or does not get ready.
        """
        exporter = self._child("exporter", "--listen", str(listen), "--data", str(data), *flags)
        if not self._answers(exporter, f"{listen.url}/-/ready", _EXPORTER_SECONDS):
            return False
        self._say(f"  metrics          {listen.url}/metrics")
        return True

    def start_app(self, address: Address, data: Path, *flags: str) -> bool:
        """Start the triage app and wait until it answers.

        Returns:
            False if the clock was stopped meanwhile.

        Raises:
            ChildError: If it ends or does not answer.
        """
        app = self._child("app", "--port", str(address.port), "--data", str(data), *flags)
        if not self._answers(app, address.url, _APP_SECONDS):
            return False
        self._say(f"  triage app       {address.url}")
        return True

    def watch(self) -> None:
        """Wait until the clock is stopped.

        Raises:
            ChildError: If a process ends by itself.
        """
        self._say("Ctrl-C ends it.")
        while self._clock.wait(_POLL):
            self._check()

    def end(self) -> None:
        """End all processes, with what they still have to write."""
        for child in self._children:
            child.ask_to_end()
        for child in self._children:
            child.end()

    def _child(self, name: str, *arguments: str) -> Child:
        command = [*self._tailscope, name, *arguments]
        child = Child(name, command, self._folder / f"{name}.log")
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
