"""Real engines on a CPU: what the exporter says of them is what their clients saw."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest

from tests.engines.servers import checkpoint
from tests.process import ROOT, Exporter, exporter, until

HOME = ROOT / ".tools/engines"
KEY = "sk-0123456789abcdef0123456789abcdef"
PREFIX = "The same words begin each request, so that a cache can find them again. " * 4


def python(engine: str) -> Path:
    if not (HOME / engine / ".ready").exists():
        pytest.skip(f"the engine {engine} is not installed: make test-engines")
    return HOME / engine / "bin/python"


def free_port(below: int = 65536) -> int:
    for port in random.sample(range(20000, below), 100):
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@contextmanager
def process(
    log: Path, command: Sequence[str | Path], env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A server of ours, until the block ends."""
    with log.open("wb") as out:
        running = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def answers(url: str, word: str = "") -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return word in answer.read().decode()
    except (URLError, OSError):
        return False


@dataclass
class Client:
    """Asks a server, and adds up what it says of each request."""

    url: str
    model: str
    key: str = ""
    usage: list[dict[str, int]] = field(default_factory=list)
    streams: int = 0

    def ask(self, text: str, tokens: int, *, stream: bool = False, model: str = "") -> None:
        body: dict[str, object] = {
            "model": model or self.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens,
            "temperature": 1.0,
            "ignore_eos": True,
            "stream": stream,
        }
        if stream:
            body["stream_options"] = {"include_usage": True}
        request = urllib.request.Request(
            f"{self.url}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            content = answer.read().decode()
        chunks = content.split("\n\n") if stream else [content]
        found = [json.loads(one.removeprefix("data: ")) for one in chunks if "usage" in one]
        used = next(one["usage"] for one in reversed(found) if one.get("usage"))
        details = used.get("prompt_tokens_details") or {}
        self.usage.append({**used, "cached": details.get("cached_tokens") or 0})
        self.streams += stream

    def many(self, times: int) -> None:
        """Ask several times at once, every second time for a stream."""
        asked = [
            threading.Thread(
                target=self.ask,
                args=(f"{PREFIX}{number}" * (number % 3 + 1), 5 + number),
                kwargs={"stream": number % 2 == 0},
            )
            for number in range(times)
        ]
        for one in asked:
            one.start()
        for one in asked:
            one.join()
        assert len(self.usage) == times

    def total(self, name: str) -> int:
        return sum(one[name] for one in self.usage)


def same(running: Exporter, metric: str, wanted: float, **labels: str) -> None:
    """Wait until a metric says what the clients saw."""

    def says() -> bool:
        return sum(running.values(metric, **labels)) == wanted

    try:
        until(says, seconds=30)
    except AssertionError:
        raise AssertionError(
            f"{metric}{labels}: {sum(running.values(metric, **labels))}, not {wanted}"
        ) from None


def understood(running: Exporter, server: str) -> None:
    assert running.state(f"engine:{server}") == "ok", running.log
    assert running.value("source_unmapped_families", source=f"engine:{server}") == 0, running.log


def name_of(url: str) -> str:
    return url.removeprefix("http://")


# Servers


@contextmanager
def llamacpp(folder: Path) -> Iterator[str]:
    log = folder / "llamacpp.log"
    script = ROOT / "tests/engines/servers/llamacpp.py"
    with process(log, [python("llamacpp"), script, folder]) as running:

        def address() -> str | None:
            assert running.poll() is None, log.read_text()
            lines = [line for line in log.read_text().splitlines() if line.startswith("http://")]
            return lines[0] if lines else None

        url = until(address, "the address of llama.cpp", 60)
        until(lambda: answers(f"{url}/health", "ok"), "llama.cpp's health", 60)
        yield url


@contextmanager
def litellm(folder: Path, server: str) -> Iterator[str]:
    port = free_port()
    settings = folder / "litellm.json"  # JSON is YAML
    settings.write_text(
        json.dumps(
            {
                "model_list": [
                    {
                        "model_name": "tiny",
                        "litellm_params": {
                            "model": "openai/tiny.gguf",
                            "api_base": f"{server}/v1",
                            "api_key": "none",
                        },
                    }
                ],
                "litellm_settings": {"callbacks": ["prometheus"]},
                "general_settings": {"master_key": KEY},
            }
        )
    )
    log = folder / "litellm.log"
    command: list[str | Path] = [python("litellm").parent / "litellm", "--config", settings]
    command += ["--host", "127.0.0.1"]
    with process(log, [*command, "--port", str(port)], {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}):
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{url}/health/liveliness"), "LiteLLM's proxy", 120)
        yield url


@contextmanager
def dynamo(folder: Path) -> Iterator[tuple[str, str]]:
    """Frontend and worker, that is a simulated vLLM."""
    checkpoint.write(folder / "tiny")
    # It takes the second one as a signed number of 16 bits.
    http, system = free_port(), free_port(below=32768)
    shared = {
        "HOME": str(folder),
        "DYN_DISCOVERY_BACKEND": "file",
        "DYN_FILE_KV": str(folder / "discovery"),
        "DYN_REQUEST_PLANE": "tcp",
        "DYN_EVENT_PLANE": "zmq",
    }
    with ExitStack() as stack:
        frontend: list[str | Path] = [python("dynamo"), "-m", "dynamo.frontend"]
        frontend += ["--http-port", str(http)]
        worker: list[str | Path] = [python("dynamo"), "-m", "dynamo.mocker", "--model-name", "tiny"]
        worker += ["--model-path", folder / "tiny"]
        log = folder / "worker.log"
        stack.enter_context(process(folder / "frontend.log", frontend, shared))
        running = stack.enter_context(
            process(log, worker, {**shared, "DYN_SYSTEM_PORT": str(system)})
        )
        url = f"http://127.0.0.1:{http}"

        def ready() -> bool:
            assert running.poll() is None, log.read_text()[-4000:]
            return answers(f"{url}/v1/models", '"tiny"')

        until(ready, "Dynamo's worker", 120)
        yield url, f"http://127.0.0.1:{system}"


@contextmanager
def vllm(folder: Path) -> Iterator[str]:
    checkpoint.write(folder / "tiny")
    port = free_port()
    command: list[str | Path] = [python("vllm"), "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", folder / "tiny"]
    command += ["--served-model-name", "tiny", "--load-format", "dummy", "--dtype", "float32"]
    command += ["--enforce-eager", "--max-model-len", "4096", "--max-num-seqs", "4"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    env = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    log = folder / "vllm.log"
    with process(log, command, env) as running:

        def ready() -> bool:
            assert running.poll() is None, log.read_text()[-4000:]
            return answers(f"http://127.0.0.1:{port}/v1/models", '"tiny"')

        until(ready, "vLLM", 900)
        yield f"http://127.0.0.1:{port}"


# Tests


def test_llamacpp(tmp_path: Path) -> None:
    with llamacpp(tmp_path) as url:
        flags = ("--engine", url, "--interval", "100ms")
        with exporter(tmp_path / "log", *flags) as running:
            client = Client(url, "tiny.gguf")
            client.many(12)
            labels = {"engine": "llamacpp", "model": "tiny.gguf"}
            same(running, "engine_prompt_tokens_total", client.total("prompt_tokens"), **labels)
            same(
                running,
                "engine_generation_tokens_total",
                client.total("completion_tokens"),
                **labels,
            )
            same(running, "engine_prefix_cache_hit_tokens_total", client.total("cached"), **labels)
            assert client.total("cached") > 0
            same(running, "engine_requests_running", 0, **labels)
            same(running, "engine_slot_context_usage_ratio", 0, **labels)

            # Three for two places.
            long = [
                threading.Thread(target=client.ask, args=(f"{number} {PREFIX}", 1200))
                for number in range(3)
            ]
            for one in long:
                one.start()
            until(lambda: running.value("engine_requests_waiting") == 1, "one waits", 30)
            same(running, "engine_requests_running", 2, **labels)
            until(lambda: (running.value("engine_slot_context_usage_ratio") or 0) > 0)
            for one in long:
                one.join()
            same(
                running,
                "engine_generation_tokens_total",
                client.total("completion_tokens"),
                **labels,
            )
            understood(running, name_of(url))


def test_litellm_before_llamacpp(tmp_path: Path) -> None:
    with llamacpp(tmp_path) as server, litellm(tmp_path, server) as url:
        gateway = json.dumps({"url": url, "token-env": "GATEWAY_KEY"})
        flags = ("--engine", gateway, "--engine", server, "--interval", "200ms")
        with exporter(tmp_path / "log", *flags, env={"GATEWAY_KEY": KEY}) as running:
            client = Client(url, "tiny", KEY)
            client.many(8)
            with pytest.raises(HTTPError):
                client.ask("nobody serves this", 5, model="no-such-model")
            labels = {"engine": "litellm", "model": "tiny.gguf"}
            same(running, "gateway_input_tokens_total", client.total("prompt_tokens"), **labels)
            same(
                running, "gateway_output_tokens_total", client.total("completion_tokens"), **labels
            )
            same(running, "gateway_request_seconds_count", len(client.usage), **labels)
            same(running, "gateway_time_to_first_token_seconds_count", client.streams, **labels)
            same(running, "gateway_responses_total", 1, engine="litellm", code="400")
            same(running, "gateway_responses_total", len(client.usage), code="200")
            # The engine behind it counts the same tokens, under names of its own.
            same(running, "engine_generation_tokens_total", client.total("completion_tokens"))
            understood(running, name_of(url))
            understood(running, name_of(server))
            assert KEY not in running.get() + running.log


def test_dynamo_with_a_simulated_engine(tmp_path: Path) -> None:
    with dynamo(tmp_path) as (url, worker):
        flags = ("--engine", url, "--engine", worker, "--interval", "100ms")
        with exporter(tmp_path / "log", *flags) as running:
            client = Client(url, "tiny")
            client.many(10)
            front = {"engine": "dynamo", "model": "tiny"}
            same(running, "engine_prompt_tokens_total", client.total("prompt_tokens"), **front)
            same(
                running,
                "engine_generation_tokens_total",
                client.total("completion_tokens"),
                **front,
            )
            same(running, "engine_requests_finished_total", 10, reason="success", **front)
            same(running, "engine_time_to_first_token_seconds_count", 10, **front)
            same(running, "engine_request_seconds_count", 10, engine="dynamo_worker", model="tiny")
            with pytest.raises(HTTPError):
                client.ask("nobody serves this", 5, model="no-such-model")
            same(running, "engine_requests_finished_total", 1, reason="not_found")
            same(running, "engine_request_seconds_count", 10, **front)
            understood(running, name_of(url))
            understood(running, name_of(worker))


def test_vllm(tmp_path: Path) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(vllm(tmp_path))
        running = stack.enter_context(exporter(tmp_path / "log", "--engine", url))
        client = Client(url, "tiny")
        client.many(6)
        labels = {"engine": "vllm", "model": "tiny"}
        same(running, "engine_prompt_tokens_total", client.total("prompt_tokens"), **labels)
        same(running, "engine_generation_tokens_total", client.total("completion_tokens"), **labels)
        same(running, "engine_request_seconds_count", 6, **labels)
        understood(running, name_of(url))
