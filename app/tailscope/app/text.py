"""Texts of the pages in the reader's language, and names from clients made harmless for Markdown.

The texts lie in ``texts.toml``: a key, then English, then Chinese. What the triage says is English;
``translated`` knows its sentences by their pattern, and leaves as it is what it does not know.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

LANGUAGES: Mapping[str, str] = {"en": "English", "zh-CN": "简体中文"}
DEFAULT = "en"
PARAMETER = "lang"
"""Name of the language in the address of a page."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&])")
_SLOT = re.compile(r"\{(\w+)\}")
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
def sentences() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Patterns of what the triage says, and the Chinese for each."""
    given = tomllib.loads((_FOLDER / "sentences.toml").read_text(encoding="utf-8"))
    return tuple((_pattern(english), chinese) for english, chinese in given["sentence"].items())


def _pattern(english: str) -> re.Pattern[str]:
    parts = _SLOT.split(english)
    text = "".join(
        f"(?P<{part}>.+?)" if number % 2 else re.escape(part) for number, part in enumerate(parts)
    )
    return re.compile(text)


def say(key: str, /, **values: object) -> str:
    """The text of a key in the reader's language, with its slots filled.

    Raises:
        KeyError: If the catalogue has no such key.
    """
    text = catalogue()[key][language() != DEFAULT]
    return text.format(**values) if values else text


def translated(text: str) -> str:
    """A sentence, or several, of the triage in the reader's language, as far as they are known."""
    return text if language() == DEFAULT or not text else in_chinese(text)


def in_chinese(text: str) -> str:
    """The Chinese of one or more of the triage's sentences; what is unknown stays as it is."""
    parts = re.split(r"(?<=[.;:]) (?=[A-Z0-9<])", text)
    # The shortest run of parts that is a known sentence: a longer one would swallow the next.
    for count in range(1, len(parts) + 1):
        head = _one(" ".join(parts[:count]))
        if head is not None:
            rest = " ".join(parts[count:])
            return head + (in_chinese(rest) if rest else "")
    if len(parts) == 1:
        return text
    return f"{parts[0]} {in_chinese(' '.join(parts[1:]))}"


def _one(text: str) -> str | None:
    for pattern, chinese in sentences():
        if hit := pattern.fullmatch(text):
            slots = {name: in_chinese(value) for name, value in hit.groupdict().items()}
            return chinese.format(**slots)
    return None
