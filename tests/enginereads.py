"""Pages of every engine, read."""

from __future__ import annotations

import re

from tailscope.catalogue.engines import engines
from tailscope.exporter.normalise import Normaliser
from tailscope.exporter.reading import Key, Reading
from tests.captures import FOLDER

SERVER = "10.0.0.1:8000"


def text_of(engine: str, version: str) -> str:
    return (FOLDER / engine / f"{version}.prom").read_text(encoding="utf-8")


def read(engine: str, text: str) -> Reading:
    return Normaliser(engines()[engine], SERVER).read(text)


def key(engine: str, metric: str, model: str = "", *more: str, rank: str = "") -> Key:
    family = metric if metric.startswith("gateway_") else f"engine_{metric}"
    return Key(f"tailscope_{family}", (engine, SERVER, model, rank, *more))


def names(reading: Reading) -> set[str]:
    found = {*reading.numbers, *reading.histograms}
    return {one.metric.removeprefix("tailscope_").removeprefix("engine_") for one in found}


def changed(text: str, values: dict[str, float]) -> str:
    for family, value in values.items():
        text, times = re.subn(rf"^({family}) .*$", rf"\1 {value}", text, flags=re.M)
        assert times == 1
    return text
