"""What ``deploy/`` says is true of Tailscope: flags, ports, paths, versions, and no root."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailscope.cli import parser_for
from tailscope.exporter.config import parse
from tests.tools import ROOT, tool

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
UNIT = (DEPLOY / "tailscope-exporter.service").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
POD = yaml.safe_load((DEPLOY / "kubernetes" / "vllm.yaml").read_text(encoding="utf-8"))["spec"][
    "template"
]["spec"]
CONTAINERS = {container["name"]: container for container in POD["containers"]}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PORTS = {"metrics": 9836, "gRPC": 4317, "HTTP": 4318, "app": 8501}


def _stages() -> dict[str, list[tuple[str, str]]]:
    """Instructions of each stage of the Dockerfile, those of the stages under it first."""
    stages: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in DOCKERFILE.replace("\\\n", " ").splitlines():
        if not line or line.startswith("#"):
            continue
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            base, _, name = rest.split()
            stages[name] = list(stages.get(base, []))
        elif name:
            stages[name].append((word, rest))
    return stages


STAGES = _stages()


def _last(stage: str, word: str) -> str:
    return next(rest for found, rest in reversed(STAGES[stage]) if found == word)


def _commands() -> Iterator[tuple[str, list[str]]]:
    """Every command line of ``tailscope``, and where it stands."""
    for stage in ("exporter", "app"):
        yield f"Dockerfile {stage}", yaml.safe_load(_last(stage, "CMD"))
        service = SERVICES[stage]
        if "command" in service:
            yield f"compose {stage}", service["command"]
    for name in ("tailscope", "tailscope-app"):
        yield f"pod {name}", CONTAINERS[name]["args"]
    yield "unit", shlex.split(re.findall(r"^ExecStart=\S+/tailscope (.+)$", UNIT, re.M)[0])


@pytest.mark.parametrize(("where", "words"), list(_commands()), ids=lambda value: str(value)[:20])
def test_every_command_line_is_one_of_ours(where: str, words: list[str]) -> None:
    filled = [word.replace("$(POD_IP)", "10.0.0.7") for word in words]
    found = parser_for(filled[0]).parse_args(filled[1:])
    if filled[0] == "exporter":
        assert parse(found).listen.port == PORTS["metrics"]


def test_every_variable_is_one_of_ours() -> None:
    known = {
        name
        for command in ("exporter", "app")
        for action in parser_for(command)._actions
        if (name := getattr(action, "env_var", None) or _variable(action.option_strings))
    }
    text = "".join(path.read_text() for path in DEPLOY.rglob("*") if path.is_file())
    used = set(re.findall(r"\bTAILSCOPE_[A-Z_]+", text))
    assert used and used <= known


def _variable(flags: list[str]) -> str:
    return "TAILSCOPE_" + flags[-1].lstrip("-").replace("-", "_").upper() if flags else ""


def test_the_images_listen_where_they_say_and_run_as_nobody() -> None:
    exposed = {
        stage: set(map(int, _last(stage, "EXPOSE").split())) for stage in ("exporter", "app")
    }
    assert exposed == {
        "exporter": {PORTS["metrics"], PORTS["gRPC"], PORTS["HTTP"]},
        "app": {PORTS["app"]},
    }
    for stage in exposed:
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", _last(stage, "USER"))
        health = yaml.safe_load(_last(stage, "HEALTHCHECK").split("CMD", 1)[1])
        assert f":{min(exposed[stage], key=lambda port: port < 8000)}/" in health[2]
    assert ":latest" not in DOCKERFILE
    assert re.search(r"^ARG PYTHON=3\.\d+\.\d+-slim", DOCKERFILE, re.M)


def test_an_image_gets_what_its_install_needs_and_no_more() -> None:
    let_in = (DEPLOY / "Dockerfile.dockerignore").read_text().split("\n")
    named = [line[1:] for line in let_in if line.startswith("!")]
    copied = [
        path for word, rest in STAGES["source"] if word == "COPY" for path in rest.split()[:-1]
    ]
    assert sorted(copied) == sorted(named)
    assert all((ROOT / path).exists() for path in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert any(package == path or package.startswith(f"{path}/") for path in copied), package
    installs = {stage: _last(f"{stage}-install", "RUN") for stage in ("exporter", "app")}
    assert all("--constraint constraints.txt" in install for install in installs.values())
    assert "[app]" in installs["app"] and "[" not in installs["exporter"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_is_pinned_careful_and_on_loopback(name: str) -> None:
    service = SERVICES[name]
    assert re.search(r":v?\d+\.\d+\.\d+$", service["image"])
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["ports"], name
    for published in service["ports"]:
        address, host, inner = published.split(":")
        assert (address, host) == ("127.0.0.1", inner)
    for mount in service["volumes"]:
        source = mount.split(":")[0]
        if source.startswith("."):
            assert (DEPLOY / source).exists(), mount
            assert mount.endswith(":ro"), mount
        else:
            assert source in COMPOSE["volumes"], mount


def test_our_images_have_our_version() -> None:
    kustomization = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
    renamed = {image["name"]: image["newTag"] for image in kustomization["images"]}
    for name in ("tailscope-exporter", "tailscope-app"):
        stage = name.removeprefix("tailscope-")
        assert SERVICES[stage]["image"] == f"{name}:{VERSION}"
        assert SERVICES[stage]["build"]["target"] in STAGES
        assert renamed[name] == VERSION
    assert CONTAINERS["tailscope"]["image"] == SERVICES["exporter"]["image"]
    assert CONTAINERS["tailscope-app"]["image"] == SERVICES["app"]["image"]
    for resource in kustomization["resources"]:
        assert (DEPLOY / "kubernetes" / resource).is_file()


def test_prometheus_takes_its_file_and_finds_the_rules(tmp_path: Path) -> None:
    mounts = dict(mount.split(":")[:2] for mount in SERVICES["prometheus"]["volumes"])
    rules = next(inner for outer, inner in mounts.items() if outer.endswith("alerts/rules"))
    text = (DEPLOY / "prometheus.yml").read_text()
    assert f"- {rules}/*.yml" in text
    (tmp_path / "prometheus.yml").write_text(text.replace(rules, str(ROOT / "alerts" / "rules")))
    ran = subprocess.run(
        [tool("promtool"), "check", "config", tmp_path / "prometheus.yml"],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0 and "SUCCESS" in ran.stdout, ran.stdout + ran.stderr
    assert f"exporter:{PORTS['metrics']}" in text


def test_grafana_is_told_what_its_provisioning_asks_for() -> None:
    provisioning = ROOT / "dashboards" / "provisioning"
    text = "".join(path.read_text() for path in provisioning.rglob("*.yaml"))
    asked = set(re.findall(r"(?<!\$)\$\{(\w+)\}", text))
    assert asked and asked <= set(SERVICES["grafana"]["environment"])
    inner = [mount.split(":")[1] for mount in SERVICES["grafana"]["volumes"]]
    boards = yaml.safe_load((provisioning / "dashboards" / "tailscope.yaml").read_text())
    assert boards["providers"][0]["options"]["path"] in inner


def test_the_sidecars_of_the_pod_may_little_and_are_scraped() -> None:
    for name in ("tailscope", "tailscope-app"):
        may = CONTAINERS[name]["securityContext"]
        assert may["runAsNonRoot"] and may["readOnlyRootFilesystem"]
        assert not may["allowPrivilegeEscalation"] and may["capabilities"] == {"drop": ["ALL"]}
        assert f"{may['runAsUser']}:{may['runAsGroup']}" == _last("exporter", "USER")
        assert CONTAINERS[name]["resources"]["limits"]["memory"]
    volumes = {volume["name"] for volume in POD["volumes"]}
    for container in CONTAINERS.values():
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
    port = {port["name"]: port["containerPort"] for port in CONTAINERS["tailscope"]["ports"]}
    assert port == {"tailscope": PORTS["metrics"]}
    spans = f"--otlp-traces-endpoint=http://127.0.0.1:{PORTS['gRPC']}"
    assert spans in CONTAINERS["vllm"]["args"]
    monitor = yaml.safe_load((DEPLOY / "kubernetes" / "podmonitor.yaml").read_text())["spec"]
    assert monitor["podMetricsEndpoints"][0]["port"] in port
    service = yaml.safe_load((DEPLOY / "kubernetes" / "service.yaml").read_text())["spec"]
    assert monitor["selector"]["matchLabels"] == service["selector"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_takes_the_unit_and_finds_it_careful(tmp_path: Path) -> None:
    # The program is where the unit says only on a machine where it was installed.
    unit = tmp_path / "tailscope-exporter.service"
    unit.write_text(UNIT.replace("/opt/tailscope/bin/tailscope", "/bin/true"))
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", unit],
        capture_output=True,
        text=True,
    )
    assert rated.returncode == 0, rated.stdout[-300:] + rated.stderr
