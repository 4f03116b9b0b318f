"""The shape of the code: who imports whom, what an install needs, how long a module is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.process import ROOT, environment

ROOTS = ("exporter", "dashboards", "app", "alerts")

ARROWS: dict[str, set[str]] = {
    "catalogue": set(),
    "records": set(),
    "triage": {"records"},
    "exporter": {"catalogue", "records"},
    "dashboards": {"catalogue"},
    "alerts": {"catalogue"},
    "app": {"catalogue", "records", "triage", "alerts"},
    "launch": set(),
    "demo": {"catalogue", "records", "launch"},
    # It runs in other people's servers, with nothing of ours and nothing but Python.
    "middleware": set(),
    # The one module that knows all commands loads each by its name, when it is called.
    "cli": set(),
    "document": {"catalogue", "records", "cli"},
}
"""Who may import whom. Nobody may import the exporter or the app."""

SHARED = {"errors": set[str](), "address": {"errors"}, "generated": {"errors"}}
"""Single modules without a portion of their own, that everybody may import, and what they may."""

FREE_OF = {
    "catalogue": {"errors", "address", "generated"},
    "records": {"address", "generated"},
    "triage": {"errors", "address", "generated"},
    "exporter": {"generated"},
    "middleware": {"errors", "address", "generated"},
}
"""Shared modules that a portion does without all the same."""

EXTRAS = {
    "exporter": (),
    "alerts": (),
    "dashboards": ("dashboards",),
    "app": ("app",),
}
"""Extras that the code under a root may need."""

READERS = {
    "exporter/tailscope/records/reader.py",
    "exporter/tailscope/records/joining.py",
    "exporter/tailscope/records/lone.py",
    "exporter/tailscope/records/clocks.py",
}
"""The store's readers: only the app reads, so they need what it needs."""

FILES = [path for root in ROOTS for path in sorted((ROOT / root / "tailscope").rglob("*.py"))]
LONGEST = 400


def name_of(path: Path) -> str:
    """``exporter/tailscope/records/store.py``."""
    return str(path.relative_to(ROOT))


def portion(path: Path) -> str:
    """``records``, or the name of a module that belongs to none."""
    return path.relative_to(ROOT).with_suffix("").parts[2]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def owners_of() -> dict[str, set[str]]:
    """Distributions that bring a top-level package."""
    return {name: set(map(canonical, owners)) for name, owners in packages_distributions().items()}


@cache
def imports(path: Path) -> frozenset[str]:
    """Every module that a file imports, wherever in it."""
    return frozenset(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: imports are absolute"
            assert node.module is not None
            if node.module == "tailscope":
                yield from (f"tailscope.{alias.name}" for alias in node.names)
            else:
                yield node.module


def test_files_were_found() -> None:
    assert len(FILES) > 60
    assert {portion(path) for path in FILES} == {*ARROWS, *SHARED}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_arrows(path: Path) -> None:
    own = portion(path)
    allowed = {own, *SHARED.get(own, {*ARROWS.get(own, set()), *SHARED} - FREE_OF.get(own, set()))}
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("tailscope.")}
    assert ours <= allowed
    assert "tailscope" not in imports(path)


def test_tailscope_is_a_namespace() -> None:
    """One such file would hide the portions under the other roots at run time."""
    assert not list(ROOT.glob("*/tailscope/__init__.py"))
    assert not (ROOT / "tailscope").exists()


def test_every_portion_says_that_it_is_typed() -> None:
    portions = {
        path.parents[len(path.relative_to(ROOT).parts) - 4]
        for path in FILES
        if len(path.relative_to(ROOT).parts) > 3
    }
    assert len(portions) == len(ARROWS) - 2
    for folder in portions:
        assert (folder / "py.typed").is_file(), name_of(folder)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_module_is_long(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(tree(path))


# What an install needs


def foreign(path: Path) -> set[str]:
    """Top-level packages of others that a file imports."""
    names = {name.split(".")[0] for name in imports(path)}
    return {name for name in names if name != "tailscope" and name not in sys.stdlib_module_names}


def declared(*extras: str) -> set[str]:
    """Distributions that an install with some extras brings along."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return {canonical(re.split(r"[<>=~!;\[ ]", requirement)[0]) for requirement in wanted}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("own", ["catalogue", "middleware"])
def test_these_need_python_alone(own: str) -> None:
    needed = {
        name: foreign(path) for path in FILES if portion(path) == own for name in [name_of(path)]
    }
    assert {name for name, packages in needed.items() if packages} == set()


@pytest.mark.parametrize("root", ROOTS)
def test_what_is_imported_is_declared(root: str) -> None:
    for path in FILES:
        if path.is_relative_to(ROOT / root):
            allowed = declared(*EXTRAS[root], *(["app"] if name_of(path) in READERS else []))
            for package in foreign(path):
                assert owners_of()[package] & allowed, f"{name_of(path)} needs {package}"


def test_a_plain_install_is_enough_for_all_but_dashboards_and_app() -> None:
    """Every module under exporter/ and alerts/, with none of the extras' packages to be had."""
    extra = declared("dashboards", "app") - declared()
    absent = {name for name, owners in owners_of().items() if owners & extra}
    assert {"pandas", "numpy", "duckdb", "streamlit", "grafanalib"} <= absent
    modules = [
        ".".join(path.relative_to(ROOT / root).with_suffix("").parts).removesuffix(".__init__")
        for root in ("exporter", "alerts")
        for path in FILES
        if path.is_relative_to(ROOT / root) and name_of(path) not in READERS
    ]
    assert "tailscope.exporter.sidecar" in modules
    program = (
        "import importlib, sys\n"
        f"for name in {sorted(absent)!r}: sys.modules[name] = None\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_exporter_does_without_arrow_and_grpc_until_they_are_wanted() -> None:
    program = (
        "import sys, tailscope.exporter.command, tailscope.exporter.sidecar\n"
        "print(*sorted({'pyarrow', 'grpc', 'numpy', 'pandas', 'streamlit'} & sys.modules.keys()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True
    )
    assert (done.stdout.split(), done.stderr) == ([], "")


@pytest.mark.parametrize("path", [path for path in FILES if portion(path) == "triage"], ids=name_of)
def test_triage_reads_and_draws_nothing(path: Path) -> None:
    names = {name.split(".")[0] for name in imports(path)}
    assert not names & {
        *("streamlit", "altair", "duckdb", "urllib", "urllib3", "requests", "http", "socket"),
        *("subprocess", "pathlib", "os", "io", "shutil", "tempfile", "threading", "asyncio"),
    }
    calls = {
        node.func.id
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"open", "print", "input"}


def test_streamlit_is_in_the_app_alone_and_grafanalib_in_the_dashboards() -> None:
    for package, owner in (("streamlit", "app"), ("grafanalib", "dashboards")):
        assert {portion(path) for path in FILES if package in foreign(path)} == {owner}
