"""The README's commands are run as they stand there, and the docs say what the code does."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailscope.catalogue.engines import engines
from tailscope.cli import COMMANDS, parser_for
from tailscope.document import pages
from tailscope.exporter.config import parse
from tailscope.records.jsonl import parse_line
from tailscope.records.translation import Translator
from tests.process import free, until
from tests.tools import ROOT

_PATIENCE = 120.0
_README = (ROOT / "README.md").read_text(encoding="utf-8")


def _commands() -> list[str]:
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", _README, re.DOTALL | re.MULTILINE)
    return sorted({line.strip() for block in blocks for line in block.splitlines() if line.strip()})


def _pages() -> list[Path]:
    return [
        Path("README.md"),
        Path("CONTRIBUTING.md"),
        *(path.relative_to(ROOT) for path in ROOT.glob("docs/**/*.md")),
    ]


def _settings(**more: str) -> dict[str, str]:
    """An environment whose ports are free, whatever the machine runs."""
    names = ("TAILSCOPE_LISTEN", "TAILSCOPE_OTLP_GRPC", "TAILSCOPE_OTLP_HTTP")
    bin_folder = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "TAILSCOPE_PORT": str(free().port),
        **{name: str(free()) for name in names},
        **more,
    }


@contextmanager
def _running(command: str, folder: Path, env: dict[str, str], until: str) -> Iterator[str]:
    """Run a command of the README until it says ``until``; end it as Ctrl-C does."""
    process = subprocess.Popen(
        shlex.split(command),
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = ""
    try:
        for line in process.stdout:
            said += line
            if re.search(until, line):
                break
        else:
            pytest.fail(f"{command} ended:\n{said}")
        yield said
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=_PATIENCE)


def _get(url: str) -> str:
    """Ask a URL until it answers."""

    def page() -> str:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    return until(page, f"{url} answers", _PATIENCE)


def _typed() -> dict[str, str]:
    """The environment of somebody who types a command: not that of a ``make`` with variables."""
    of_make = ("MAKE", "MFLAGS", "ARGS", "ENGINE")
    return {name: value for name, value in os.environ.items() if not name.startswith(of_make)}


def _make_run(folder: Path) -> None:
    with _running("make run", ROOT, _typed(), "Ctrl-C") as said:
        metrics = re.search(r"metrics +(\S+)", said)
        app = re.search(r"triage app +(\S+)", said)
        assert metrics and app, said
        assert "tailscope_build_info" in _get(metrics[1])
        assert "<title>" in _get(app[1])


def _make_run_engine(folder: Path) -> None:
    listen, app = free(), free()
    flags = f"--listen {listen} --app {app} --otlp-grpc {free()} --otlp-http {free()}"
    arguments = f"ARGS={flags} --data {folder / 'data'}"
    command = shlex.join(["make", "run", "ENGINE=http://127.0.0.1:8000", arguments])
    with _running(command, ROOT, _typed(), "Ctrl-C"):
        page = _get(f"{listen.url}/metrics")
        assert 'tailscope_source_state{source="engine:127.0.0.1:8000"' in page
        assert "<title>" in _get(app.url)


def _pip_install(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    # It fetches the build system, over a network that may be slow.
    env = {**os.environ, "PIP_RETRIES": "10", "PIP_DEFAULT_TIMEOUT": "60"}
    subprocess.run([*pip, "--target", str(folder), str(ROOT)], env=env, check=True)
    names = {path.name for path in (folder / "tailscope").iterdir()}
    assert {"alerts", "app", "catalogue", "dashboards", "exporter", "records", "triage"} <= names
    assert (folder / "tailscope" / "demo" / "recording" / "otlp.jsonl.gz").is_file()
    assert not (folder / "tailscope" / "__init__.py").exists()


def _exporter(command: str, folder: Path) -> None:
    env = _settings()
    with _running(command, folder, env, "metrics at"):
        page = _get(f"http://{env['TAILSCOPE_LISTEN']}/metrics")
    assert 'tailscope_source_state{source="engine:127.0.0.1:8000"' in page
    assert (folder / "data" / "requests").is_dir()


def _app(command: str, folder: Path) -> None:
    env = _settings()
    with _running(command, folder, env, r"127\.0\.0\.1|localhost"):
        assert "<title>" in _get(f"http://127.0.0.1:{env['TAILSCOPE_PORT']}")


def _diagnose(command: str, folder: Path) -> None:
    records = ROOT / "tests" / "captures" / "run11_records.jsonl.gz"
    for one in (f"tailscope import --data data {shlex.quote(str(records))}", command):
        done = subprocess.run(
            shlex.split(one), cwd=folder, env=_settings(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("command", _commands())
def test_a_command_of_the_readme_runs(command: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    if command == "make test":
        wanted = subprocess.run(
            ["make", "--dry-run", "test"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert "pytest" in wanted.stdout  # this very run is the rest of the proof
    elif command == "make run":
        _make_run(tmp_path)
    elif command.startswith("make run ENGINE="):
        _make_run_engine(tmp_path)
    elif command.startswith("pip install"):
        _pip_install(tmp_path)
    elif command.startswith("tailscope exporter"):
        _exporter(command, tmp_path)
    elif command.startswith("tailscope app"):
        _app(command, tmp_path)
    elif command.startswith("tailscope diagnose"):
        _diagnose(command, tmp_path)
    else:
        pytest.fail(f"the README has a command that no test runs: {command}")


_RECORDS = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")


def test_the_record_of_the_docs_is_one() -> None:
    lines = re.findall(r'^ *(\{.*"arrived_ns": .*\})$', _RECORDS, re.MULTILINE)
    assert lines
    for line in lines:
        record, clamped = parse_line(line.encode())
        assert (record.tenant, record.role, clamped) == ("acme", "gateway", 0)


def test_the_access_logs_of_the_docs_are_recognised() -> None:
    nginx = {"msec": "1796000002.000", "request_time": "1.5", "status": "200"}
    for name in re.findall(r'"(\w+)":"\$\1"', _RECORDS):
        nginx.setdefault(name, "x")
    envoy = {"start_time": "2026-11-30T00:53:20.500Z", "duration": "1500"}
    for name, value in re.findall(r'^    (\w+): "(%.*%)"$', _RECORDS, re.MULTILINE):
        envoy.setdefault(name, "200" if value == "%RESPONSE_CODE%" else "x")
    for row, source, tenant in ((nginx, "nginx", "http_x_tenant_id"), (envoy, "envoy", "tenant")):
        assert row[tenant] == "x"
        found = Translator().record(row)
        assert found is not None
        record = found[0]
        assert (record.source, record.tenant, record.outcome) == (source, "x", "ok")
        assert (record.request_id, record.total_seconds) == ("x", 1.5)


def test_the_settings_of_the_docs_are_settings(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(requests: .*?)```", _RECORDS, re.DOTALL)
    (tmp_path / "tailscope.yaml").write_text(block)
    parser = parser_for("exporter")
    config = parse(parser.parse_args(["--config", str(tmp_path / "tailscope.yaml")]))
    assert [one.name for one in config.formats] == ["edge", "mine"]
    (file,) = config.requests
    assert file.format == config.formats[0]


@pytest.mark.parametrize("name", sorted(pages()))
def test_reference_pages_are_as_the_code_makes_them(name: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8") == pages()[name]


@pytest.mark.parametrize("name", sorted(engines()))
def test_every_engine_has_a_page(name: str) -> None:
    assert (ROOT / "docs" / "engines" / f"{name}.md").is_file()
    assert f"]({name}.md)" in (ROOT / "docs" / "engines" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", _pages(), ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", (ROOT / page).read_text(encoding="utf-8"))
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def test_every_library_has_its_reason() -> None:
    text = (ROOT / "docs" / "libraries.md").read_text(encoding="utf-8").lower()
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = re.findall(r'^  "([A-Za-z][\w-]*)[>=]', project, re.MULTILINE)
    runtime = names[: names.index("uvicorn") + 1]
    assert len(runtime) > 8
    assert not [name for name in runtime if name.lower() not in text]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailscope.cli", name, "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert COMMANDS[name].example.split("--")[0].strip() in " ".join(done.stdout.split())
