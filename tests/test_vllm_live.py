"""A real vLLM with the middleware and its spans, into a real exporter.

Wants ``TAILSCOPE_TEST_VLLM``: the Python of an environment with vLLM, transformers and the
OpenTelemetry exporter (a build for the CPU will do). It takes a minute or two.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

from tailscope.address import Address
from tailscope.records.reader import Reader
from tests.process import ROOT, Exporter, exporter, free, until

PYTHON = os.environ.get("TAILSCOPE_TEST_VLLM", "")

pytestmark = pytest.mark.skipif(not PYTHON, reason="TAILSCOPE_TEST_VLLM names no Python with vLLM")

MODEL = """
import json, sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast
words = ["<unk>", "<s>", "</s>"] + [f"w{n}" for n in range(997)]
base = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
base.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=base, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
)
tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}"
tokenizer.save_pretrained(sys.argv[1])
LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=2048,
    architectures=["LlamaForCausalLM"], torch_dtype="bfloat16",
).save_pretrained(sys.argv[1])
"""

TENANTS = ("acme", "globex")


def ask(address: Address, tenant: str, number: int, **more: object) -> int:
    body = {"model": "tiny", "prompt": "w1 w2 w3", "max_tokens": 8, "ignore_eos": True, **more}
    connection = http.client.HTTPConnection(address.host, address.port, timeout=60)
    try:
        headers = {"Content-Type": "application/json", "X-Tenant-Id": tenant}
        headers["X-Request-Id"] = f"{tenant}-{number}"
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        if more.get("max_tokens"):
            answer.read(100)  # the client leaves
        else:
            answer.read()
        return answer.status
    finally:
        connection.close()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pd.DataFrame]:
    folder = tmp_path_factory.mktemp("vllm")
    model, data, address = folder / "model", folder / "data", free()
    subprocess.run([PYTHON, "-c", MODEL, str(model)], check=True, capture_output=True)
    with (
        exporter(folder / "log", "--data", str(data), "--engine", f"http://{address}") as running,
        (folder / "vllm.log").open("wb") as log,
    ):
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "exporter"),
            "TAILSCOPE_MIDDLEWARE_ENDPOINT": running.otlp_http,
            "OTEL_BSP_SCHEDULE_DELAY": "300",
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        command = [str(Path(PYTHON).with_name("vllm")), "serve", str(model)]
        command += ["--served-model-name", "tiny", "--load-format", "dummy", "--enforce-eager"]
        command += ["--host", address.host, "--port", str(address.port)]
        command += ["--otlp-traces-endpoint", f"http://{running.otlp_grpc}"]
        command += ["--middleware", "tailscope.middleware.TailscopeMiddleware"]
        command += ["--dtype", "bfloat16", "--max-model-len", "1024"]
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            until(lambda: healthy(address, server, folder / "vllm.log"), "vLLM serves", 300)
            with ThreadPoolExecutor(4) as pool:
                statuses = list(
                    pool.map(
                        lambda number: ask(
                            address, TENANTS[number % 2], number, stream=number % 4 < 2
                        ),
                        range(20),
                    )
                )
            assert statuses == [200] * 20
            assert ask(address, "leaves", 20, stream=True, max_tokens=900) == 200
            assert ask(address, "wrong", 21, model="none") == 404
            until(lambda: counted(running) == (20, 22), "all is told", 60)
        finally:
            server.terminate()
            server.wait(60)
        assert running.stop() == 0
    yield Reader(data).requests()


def counted(running: Exporter) -> tuple[float | None, ...]:
    """Records that came from vLLM's spans, and from the middleware's."""
    return tuple(running.value("records_total", source=f"otlp:{way}") for way in ("grpc", "http"))


def healthy(address: Address, server: subprocess.Popen[bytes], log: Path) -> bool:
    assert server.poll() is None, log.read_text(errors="replace")[-3000:]
    connection = http.client.HTTPConnection(address.host, address.port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_every_request_meets_its_tenant(rows: pd.DataFrame) -> None:
    engine = rows[rows["role"] == "engine"]
    assert len(engine) == 20
    assert set(engine["joined"]) == {"parent"}
    assert engine["tenant"].value_counts().to_dict() == dict.fromkeys(TENANTS, 10)
    assert (engine["request_id"].str.partition("-")[0] == engine["tenant"]).all()
    streams = engine["client_ttft_seconds"].notna()
    assert streams.sum() == 10
    # The first chunk leaves the server just after the engine's first token.
    late = (engine["client_ttft_seconds"] - engine["ttft_seconds"])[streams]
    assert late.between(-0.05, 0.5).all()


def test_what_vllm_never_traces_is_told_by_the_middleware(rows: pd.DataFrame) -> None:
    alone = rows[rows["role"] == "gateway"].set_index("tenant")
    assert alone.loc["leaves", "outcome"] == "aborted"
    assert (alone.loc["wrong", "outcome"], alone.loc["wrong", "status"]) == ("error", 404)
    assert alone["queue_seconds"].isna().all()
    assert len(rows) == 22
