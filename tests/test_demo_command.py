"""``tailscope demo``: ports, children, and the whole stack."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from tailscope.address import Address, choose, parse
from tailscope.demo.recording import Recording
from tailscope.demo.stack import Settings, Stack
from tailscope.errors import UsageError
from tailscope.launch.child import ChildError
from tailscope.launch.clock import Clock
from tests.demorecording import DEADLINE, recording
from tests.process import free, until

__all__ = ["recording"]


@pytest.mark.parametrize("text", ["9836", "host:", "host:x", "host:70000", ":-1"])
def test_bad_address_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=r"--listen .*: give host:port"):
        parse("--listen", text)


def test_addresses() -> None:
    assert parse("x", "[::1]:80") == Address("::1", 80)
    assert str(Address("::1", 80)) == "[::1]:80"
    assert Address("0.0.0.0", 80).url == "http://127.0.0.1:80"
    assert Address("::", 80).url == "http://[::1]:80"


def test_taken_port_is_replaced_or_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = Address("127.0.0.1", taken.getsockname()[1])
        other = choose("--listen", wanted, insist=False)
        assert other.port not in (0, wanted.port)
        with pytest.raises(UsageError, match=f"--listen is {wanted}, which cannot be used") as no:
            choose("--listen", wanted, insist=True)
        assert "port 0 for any that is free" in str(no.value)
        assert choose("--listen", Address(wanted.host, 0), insist=True).port not in (0, wanted.port)


FAKE = """
import http.server, signal, sys
arguments = dict(zip(sys.argv[2::2], sys.argv[3::2]))
print("arguments", sys.argv[1:], flush=True)
if sys.argv[1] == {failing!r}:
    sys.exit("no luck: 7 is missing")
port = int(arguments.get("--port") or arguments["--listen"].rpartition(":")[2])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def _settings(tmp_path: Path) -> Settings:
    return Settings(
        listen=free(),
        app=free(),
        data=tmp_path / "data",
        history_seconds=0,
    )


@pytest.mark.parametrize("failing", ["exporter", "app"])
def test_child_that_ends_is_named(recording: Recording, tmp_path: Path, failing: str) -> None:
    program = tmp_path / "fake.py"
    program.write_text(FAKE.format(failing=failing))
    stack = Stack(recording, _settings(tmp_path), Clock(), print, (sys.executable, str(program)))
    with pytest.raises(ChildError) as ended:
        stack.run()
    text = str(ended.value)
    assert text.startswith(f"the {failing} ended with exit status 1\n")
    assert text.endswith("no luck: 7 is missing")
    if failing == "app":
        assert recording.notice in text


def test_stack_says_where_things_are_and_stops(recording: Recording, tmp_path: Path) -> None:
    program = tmp_path / "fake.py"
    program.write_text(FAKE.format(failing=""))
    settings, clock, said = _settings(tmp_path), Clock(), list[str]()

    def say(line: str) -> None:
        said.append(line)
        if line == "Ctrl-C ends it.":
            clock.interrupt()

    Stack(recording, settings, clock, say, (sys.executable, str(program))).run()
    assert settings.app
    assert f"  metrics          {settings.listen.url}/metrics" in said
    assert f"  triage app       {settings.app.url}" in said
    for address in (settings.listen, settings.app):
        with socket.socket() as probe:
            assert probe.connect_ex(address) != 0


@pytest.mark.parametrize("otlp", ["grpc", "http"])
def test_demo_fills_the_exporter_and_ends_cleanly(tmp_path: Path, otlp: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    flags = ["--no-app", "--listen", "127.0.0.1:0", "--history", "1", "--otlp", otlp]
    process = subprocess.Popen(
        [sys.executable, "-m", "tailscope.cli", "demo", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    try:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(3)]
        assert "recording of a real vLLM 0.32" in lines[0], process.stderr
        metrics, engine = (line.split()[-1] for line in lines[1:])
        with urllib3.PoolManager(retries=False, timeout=DEADLINE) as pool:

            def counted() -> dict[str, float]:
                text = pool.request("GET", metrics).data.decode()
                totals: dict[str, float] = {}
                for family in text_string_to_metric_families(text):
                    for sample in family.samples:
                        source = sample.labels.get("source", "")
                        if sample.name == "tailscope_records_total":
                            totals[source] = sample.value
                        if sample.name == "tailscope_source_up" and source.startswith("engine:"):
                            totals["up"] = sample.value
                return totals

            def full() -> bool:
                totals = counted()
                return (
                    totals.get(f"otlp:{otlp}", 0) >= 200
                    and totals.get("file:requests.jsonl", 0) >= 200
                    and totals.get("up") == 1
                )

            until(full)
            assert pool.request("GET", engine).status == 200
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert not list(temporary.iterdir())


def test_demo_names_a_bad_recording(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailscope.cli", "demo", "--recording", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 2
    assert f"--recording: cannot read {tmp_path}" in done.stderr
