"""Pages of vLLM, read."""

from __future__ import annotations

from tailscope.catalogue.engines import engines
from tailscope.exporter.normalise import Normaliser
from tailscope.exporter.reading import Key, Reading
from tests.fake_engine import CAPTURES

VLLM = engines()["vllm"]
SERVER = "10.0.0.1:8000"
SCRAPES = sorted(CAPTURES.glob("*.prom"))


def normaliser() -> Normaliser:
    return Normaliser(VLLM, SERVER)


def read(text: str) -> Reading:
    return normaliser().read(text)


def key(metric: str, *more: str, rank: str = "", model: str = "tiny-llama") -> Key:
    return Key(f"tailscope_engine_{metric}", ("vllm", SERVER, model, rank, *more))
