"""The texts of the pages: all in one catalogue, in both languages."""

from __future__ import annotations

import ast
import copy
import dataclasses
import pickle
import re
import string
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from tailscope.app import text
from tailscope.triage import cohort, company
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.phrase import Phrase, row, several, tell
from tailscope.triage.quality import notes
from tailscope.triage.sentence import headline, slowness
from tests import recorded
from tests.simulated.scenario import scenario

APP = Path(__file__).parents[1] / "app" / "tailscope" / "app"
TRIAGE = APP.parent / "triage"
CHINESE = re.compile("[\u4e00-\u9fff]")
OTHERS = {
    *("command", "diagnose", "terminal", "settings", "roles", "headers", "prometheus", "text"),
    *("audience", "questions"),
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
    said = ast.parse((APP / "text.py").read_text(encoding="utf-8"))
    for tree in (said, *(tree for _, tree in trees())):
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


# What the triage says


def told() -> Iterator[tuple[str, ast.Call]]:
    """Every call in the triage that says something, with the module it stands in."""
    for path in (*sorted(TRIAGE.glob("*.py")), APP / "prometheus.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Name) and called.id in ("tell", "several"):
                assert isinstance(node, ast.Call)
                yield path.name, node


def templates(call: ast.Call) -> list[str]:
    assert isinstance(call.func, ast.Name)
    given = call.args[:1] if call.func.id == "tell" else call.args[1:3]
    return [ast.literal_eval(one) for one in given]


def test_every_sentence_of_the_triage_has_its_chinese_and_every_one_is_said() -> None:
    said = {template for _, call in told() for template in templates(call)}
    assert said == set(text.sentences())
    for english, chinese in text.sentences().items():
        assert slots(english) == slots(chinese), english
        bare = re.sub(r"\{\w+\}|Kaplan|power brake", "", chinese)
        assert not TWO_WORDS.search(bare), english


def test_the_triage_puts_no_sentence_together_by_itself() -> None:
    """English in an f-string could not be told in another language."""
    silent = {"recipes.py", "report.py", "namedreport.py", "words.py", "slow.py", "diagnosis.py"}
    found = []
    for path in sorted(TRIAGE.glob("*.py")):
        if path.name in silent:
            continue  # settings, data for machines, what is said while something is computed
        tree = ast.parse(path.read_text(encoding="utf-8"))
        excused = raised(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr) and node not in excused:
                whole = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "x"
                    for part in node.values
                )
                if TWO_WORDS.search(whole):
                    found.append(f"{path.name}:{node.lineno}: {whole}")
    assert found == []


def spoken_of(found: object) -> Iterator[str]:
    """Every text in a value, however deep, that has a run of words and is no phrase."""
    if isinstance(found, str):
        if TWO_WORDS.search(found) and not isinstance(found, Phrase):
            yield found
    elif isinstance(found, Mapping):
        for one in found.values():
            yield from spoken_of(one)
    elif isinstance(found, tuple | list):
        for one in found:
            yield from spoken_of(one)
    elif dataclasses.is_dataclass(found) and not isinstance(found, type):
        for field in dataclasses.fields(found):
            if field.name not in ("config", "cause", "title"):
                yield from spoken_of(getattr(found, field.name))


def test_what_is_said_of_recordings_is_said_in_chinese() -> None:
    """The whole of the verdicts, findings and fixes: no run of English words is left."""
    flood = scenario("flood", 11, removals=False).frame
    for frame in (recorded.frame(), pd.concat([recorded.frame().iloc[:0], flood])):
        diagnosis = Diagnosis(frame)
        found = diagnosis.finding
        said: list[str] = [headline(found), *slowness(found), *notes(found), diagnosis.verdict]
        said += [one.spared for one in diagnosis.suspects]
        said += [text_ for one in diagnosis.tried for text_ in (one.fix.change, one.fix.payers)]
        assert diagnosis.cause is not None
        said += [one.fact for one in diagnosis.cause.evidence]
        assert len(said) > 10
        assert not list(spoken_of([said, diagnosis.suspects, diagnosis.tried]))
        for sentence in filter(None, said):
            chinese = text.in_chinese(sentence)
            assert CHINESE.search(chinese), sentence
            assert not TWO_WORDS.search(chinese), chinese


def test_a_phrase_is_its_english_and_survives_a_copy() -> None:
    one = tell("{who} did {n}", who=tell("tenant {name}", name="a"), n=3)
    both = row([one, "", tell("So did {names}.", names="b")])
    assert both == "tenant a did 3 So did b."
    for copied in (copy.deepcopy(both), pickle.loads(pickle.dumps(both))):
        assert copied == both
        assert text.in_chinese(copied) == text.in_chinese(both)
    assert text.in_chinese(both).endswith("b 也是如此。")
    assert text.in_chinese("a name") == "a name"


def test_a_number_of_things_has_its_form() -> None:
    assert several(1, "{n} line", "{n} lines") == "1 line"
    assert several(2000, "{n} line", "{n} lines") == "2,000 lines"
