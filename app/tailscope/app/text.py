"""Texts of the pages in the reader's language, and names from clients made harmless for Markdown.

The texts lie in ``texts.toml``: a key, then English, then Chinese. What the triage says is English,
and its Chinese lies by its templates in ``sentences.toml``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from tailscope.triage.phrase import OTHERS, UNKNOWN, Phrase

LANGUAGES: Mapping[str, str] = {"en": "English", "zh-CN": "简体中文"}
DEFAULT = "en"
PARAMETER = "lang"
"""Name of the language in the address of a page."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&])")
_SLOT = re.compile(r"(\{\w+\})")
_SEAM = re.compile("[\u4e00-\u9fff][A-Za-z0-9<]|[A-Za-z0-9%][\u4e00-\u9fff]")
_NO_TENANT: Mapping[str, str] = {UNKNOWN: "unknown", OTHERS: "others"}
_FOLDER = Path(__file__).parent


def plain(text: str) -> str:
    """Escape a text, so that Markdown shows it as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def preferred() -> str:
    """The language that the browser asks for."""
    return "zh-CN" if str(st.context.locale or "").lower().startswith("zh") else DEFAULT


def language() -> str:
    """The language of the page that is being drawn; English outside of a page."""
    if get_script_run_ctx(suppress_warning=True) is None:
        return DEFAULT
    chosen = st.session_state.get(PARAMETER) or st.query_params.get(PARAMETER) or preferred()
    return chosen if chosen in LANGUAGES else DEFAULT


@cache
def catalogue() -> Mapping[str, tuple[str, str]]:
    """Every text by its key, ``section.name``: English and Chinese."""
    found = {}
    for path in sorted(_FOLDER.glob("texts*.toml")):
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
        for section, texts in sections.items():
            for name, (english, chinese) in texts.items():
                found[f"{section}.{name}"] = (english, chinese)
    return found


@cache
def sentences() -> Mapping[str, str]:
    """What the triage says: the Chinese of each template."""
    return _written()["sentence"]


@cache
def _written() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads((_FOLDER / "sentences.toml").read_text(encoding="utf-8"))


def say(key: str, /, **values: object) -> str:
    """The text of a key in the reader's language, with its slots filled.

    Raises:
        KeyError: If the catalogue has no such key.
    """
    chinese = language() != DEFAULT
    text = catalogue()[key][chinese]
    if not values:
        return text
    if chinese:
        return _spaced(text, {name: in_chinese(value) for name, value in values.items()})
    return text.format(**values)


def tenant(name: str) -> str:
    """What stands for the name of a tenant in tables and charts."""
    if name in _NO_TENANT:
        return say(f"tenant.{_NO_TENANT[name]}")
    return name


def translated(text: str) -> str:
    """What the triage says, in the reader's language; other texts are left as they are."""
    return text if language() == DEFAULT else in_chinese(text)


def in_chinese(text: object) -> str:
    """The Chinese of a phrase of the triage; names, numbers and other texts stay as they are."""
    if not isinstance(text, Phrase):
        return str(text)
    if text.parts:
        glue = _written()["glue"].get(text.glue, text.glue)
        return glue.join(map(in_chinese, text.parts))
    template = sentences().get(text.template, text.template)
    return _spaced(template, {name: in_chinese(value) for name, value in text.values.items()})


def _spaced(template: str, values: Mapping[str, str]) -> str:
    """Fill the slots; a blank sets Latin letters and digits apart from the Chinese beside them."""
    found = ""
    for part in _SLOT.split(template):
        more = values[part[1:-1]] if _SLOT.fullmatch(part) else part
        seam = f"{found[-1:]}{more[:1]}"
        found += f" {more}" if _SEAM.fullmatch(seam) else more
    return found
