"""The texts of the pages: all in one catalogue, in both languages."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from tailscope.app import text
from tailscope.triage import cohort, company
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.quality import notes
from tailscope.triage.sentence import headline, slowness
from tests import recorded
from tests.simulated.scenario import scenario

APP = Path(__file__).parents[1] / "app" / "tailscope" / "app"
OTHERS = {
    *("command", "diagnose", "terminal", "settings", "roles", "headers", "prometheus", "text"),
    "questions",
}
"""Modules that speak to a terminal or not at all; the errors of a start are English."""

FILES = [path for path in sorted(APP.rglob("*.py")) if path.stem not in OTHERS]
ONE_WORD = re.compile(r"[A-Za-z]{3,}")
SHOWN = {"title", "label", "help", "placeholder", "alt", "body", "caption", "tip"}
TWO_WORDS = re.compile(r"[A-Za-z]{2,}[,:]? [A-Za-z]{2,}")
FREE = {"Tailscope", "GPU", "DRAM", "Tensor", "SM", "", "other tenants"}
"""Names that are the same in every language; the last one stands in the place of a tenant's."""


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in FILES:
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def slots(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def docstrings(tree: ast.Module) -> set[ast.expr]:
    found: set[ast.expr] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else []:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                found.add(child.value)
    return found


def raised(tree: ast.Module) -> set[ast.AST]:
    """What stands in an error, or is given to ``st.code``: for developers and shells."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        shell = isinstance(called, ast.Name) and called.id in ("_command", "missing", "TypeVar")
        if shell or isinstance(node, ast.Raise):
            found |= set(ast.walk(node))
    return found


CALLS = {
    *("markdown", "caption", "subheader", "header", "info", "error", "warning", "button"),
    *("toggle", "selectbox", "text_input", "metric", "expander", "popover", "spinner"),
    *("TextColumn", "NumberColumn", "ProgressColumn", "DatetimeColumn"),
}


def spoken(node: ast.AST) -> Iterator[tuple[ast.Constant, re.Pattern[str]]]:
    """Texts of a node, each with what makes it one that people read."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node, TWO_WORDS
    shown: list[ast.expr] = []
    if isinstance(node, ast.keyword) and node.arg in SHOWN:
        shown = [node.value]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        shown = node.args[:1] if node.func.attr in CALLS else []
    for one in shown:
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one, ONE_WORD


def test_no_text_stands_outside_of_the_catalogue() -> None:
    outside = []
    for path, tree in trees():
        excused = docstrings(tree) | raised(tree)
        for node in ast.walk(tree):
            for said, least in spoken(node):
                value = said.value
                if said not in excused and value not in FREE and least.search(str(value)):
                    outside.append(f"{path.name}:{said.lineno}: {value!r}")
    assert outside == []


def used() -> tuple[set[str], set[str]]:
    """Keys that are asked for, and the beginnings of those that are put together."""
    whole, begun = set(), set()
    for _, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                whole.add(node.value)
            elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                begun.add(str(node.values[0].value))
    return whole, {one for one in begun if re.fullmatch(r"[a-z]+\.[a-z_]*", one)}


def test_every_text_that_is_asked_for_is_there_and_every_one_is_asked_for() -> None:
    catalogue = set(text.catalogue())
    whole, begun = used()
    sections = {key.partition(".")[0] for key in catalogue}
    asked = {
        key
        for key in whole - begun
        if re.fullmatch(r"[a-z]+\.\w+", key) and key.split(".")[0] in sections
    }
    assert asked - catalogue == set()
    pages = {f"{page}.{name}" for page in sections for name in ("title", "help")}
    unused = {
        key for key in catalogue - asked - pages if not any(key.startswith(one) for one in begun)
    }
    assert unused == set()


def test_every_dimension_of_the_triage_has_a_name() -> None:
    for dimension in (*cohort.TEXTS, *cohort.NUMBERS, *company.DIMENSIONS):
        assert f"dimension.{dimension}" in text.catalogue()


def test_both_languages_have_the_same_slots() -> None:
    for key, (english, chinese) in text.catalogue().items():
        assert english and chinese, key
        assert slots(english) == slots(chinese), key


def test_patterns_keep_their_slots() -> None:
    for pattern, chinese in text.sentences():
        assert slots(chinese) <= set(pattern.groupindex)


def test_what_is_said_of_recordings_is_said_in_chinese() -> None:
    """The whole of the verdicts: no run of English words is left."""
    flood = scenario("flood", 11, removals=False).frame
    for frame in (recorded.frame(), pd.concat([recorded.frame().iloc[:0], flood])):
        diagnosis = Diagnosis(frame)
        found = diagnosis.finding
        said = [headline(found), *slowness(found), *notes(found), diagnosis.verdict]
        said += [one.spared for one in diagnosis.suspects]
        for sentence in filter(None, said):
            assert not TWO_WORDS.search(text.in_chinese(sentence)), text.in_chinese(sentence)


def test_an_unknown_sentence_stays_as_it_is() -> None:
    assert text.in_chinese("Something new was said.") == "Something new was said."
    assert text.in_chinese("Something new was said. No tenant stands out.").endswith(
        "没有租户突出。"
    )
