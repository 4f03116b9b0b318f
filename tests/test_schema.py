"""The boards against Grafana's own types of four versions, and through its own SDK; manifests
against those of Kubernetes and of the Prometheus operator."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests import boards
from tests.tools import ROOT

TYPES = ROOT / ".tools" / "schema" / "node_modules"
VERSIONS = ("grafana-10", "grafana-11", "grafana-12", "grafana-13")
SHAPES = {"stat": "Stat", "timeseries": "TimeSeries", "heatmap": "Heatmap", "table": "Table"}

OPERATOR = "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1"

JSON = """
// A string enum takes no literal of JSON: take its values in its place.
type Json<T> = T extends string ? `${T}` : T extends (infer U)[] ? Json<U>[]
  : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
"""

ready = pytest.mark.skipif(
    shutil.which("node") is None or not TYPES.is_dir(),
    reason="Grafana's types are not here: `make test-schema` fetches them (needs npm)",
)


DASHBOARD = ("raw/dashboard/x/dashboard_types.gen", "raw/dashboard/x/types.gen")
"""Where the type of a board is, before version 13 and since."""
COMMON = ("common/common.gen",)
OF_PROMETHEUS = {"expr", "step", "tagKeys", "textFormat", "titleFormat"}
"""Of annotations; like the queries, they belong to the data source, which has no types here."""


def _declaration(version: str, *names: str) -> str:
    """Where a type is declared, as an import names it."""
    dist = TYPES / version / "dist"
    for name in names:
        for found in sorted(dist.glob(f"**/{name}.d.ts")):
            return str(found).removesuffix(".d.ts")
    raise AssertionError(f"{version} has none of {names}")


def _panel_types(version: str, shape: str) -> str:
    return _declaration(version, f"raw/composable/*/panelcfg/x/{SHAPES[shape]}PanelCfg_types.gen")


def _typed(version: str, path: Path) -> str:
    """A program that is right if the board is what the version's types say."""
    board = boards.load(path)
    own = list(boards.panels(board))
    for panel in own:
        # The package has no type of a Prometheus query; the SDK below has one.
        panel["targets"] = []
    for note in board["annotations"]["list"]:
        for key in OF_PROMETHEUS & set(note):
            del note[key]
    shapes = sorted({panel["type"] for panel in own})
    lines = [
        JSON,
        f'import type * as D from "{_declaration(version, *DASHBOARD)}";',
        f'import type * as C from "{_declaration(version, *COMMON)}";',
        *(f'import type * as {each} from "{_panel_types(version, each)}";' for each in shapes),
        f"export const board: Json<D.Dashboard> = {json.dumps(board)};",
    ]
    for number, panel in enumerate(own):
        shape, custom = panel["type"], panel["fieldConfig"]["defaults"].get("custom")
        # What is left out takes the panel's own default, of which each version has more.
        options = json.dumps(panel["options"])
        lines.append(f"export const o{number}: Partial<Json<{shape}.Options>> = {options};")
        if custom:
            owner = "C.TableFieldOptions" if shape == "table" else f"{shape}.FieldConfig"
            lines.append(f"export const c{number}: Partial<Json<{owner}>> = {json.dumps(custom)};")
    return "\n".join(lines)


def _check(directory: Path, version: str) -> str:
    """What the TypeScript compiler says of the programs in a folder."""
    package = TYPES / version
    types = json.loads((package / "package.json").read_text(encoding="utf-8"))["types"]
    options = {
        "noEmit": True,
        "strict": True,
        "skipLibCheck": True,
        "target": "es2022",
        "module": "esnext",
        "moduleResolution": "bundler",
        "types": [],
        # The declarations name their own package, which is here under its version.
        "paths": {"@grafana/schema": [str(package / types)]},
    }
    settings = directory / "tsconfig.json"
    settings.write_text(json.dumps({"compilerOptions": options, "include": ["*.ts"]}))
    ran = subprocess.run(
        ["node", TYPES / "typescript/bin/tsc", "--project", settings],
        capture_output=True,
        text=True,
        cwd=directory,
    )
    return ran.stdout + ran.stderr


def _unmeant(said: str) -> list[str]:
    """What the compiler finds but in the program that is meant to be wrong."""
    places = [line for line in said.splitlines() if line and not line.startswith(" ")]
    return [place for place in places if not place.startswith("wrong.ts")]


@pytest.mark.schema
@ready
@pytest.mark.parametrize("version", VERSIONS)
def test_the_boards_have_the_types_of_grafana_and_what_is_wrong_is_found(
    version: str, tmp_path: Path
) -> None:
    """In one run of the compiler, which mostly reads declarations."""
    for path in boards.BOARDS:
        (tmp_path / f"{path.stem}.ts").write_text(_typed(version, path), encoding="utf-8")
    wrong = _typed(version, ROOT / "dashboards" / "json" / "tailscope-exporter.json")
    wrong = wrong.replace('"cellHeight": "sm"', '"cellHeight": "tiny"')
    wrong = wrong.replace('"lineWidth": 1', '"lineWith": 1')
    (tmp_path / "wrong.ts").write_text(wrong, encoding="utf-8")
    said = _check(tmp_path, version)
    assert _unmeant(said) == []
    assert "'\"tiny\"' is not assignable" in said
    assert "lineWith" in said


MANIFESTS = {
    "deploy/kubernetes/vllm.yaml": "kubernetes-models/apps/v1",
    "deploy/kubernetes/service.yaml": "kubernetes-models/v1",
    "deploy/kubernetes/podmonitor.yaml": OPERATOR,
    "alerts/operator/tailscope.yaml": OPERATOR,
}
"""Where the type of each is, by its file."""


def _manifest(name: str) -> tuple[str, Any]:
    """A program that is right if a manifest is what its kind says, and the manifest."""
    found = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    kind = found["kind"]
    return (
        f'import type {{ I{kind} }} from "{TYPES / MANIFESTS[name] / kind}";\n'
        f"export const it: I{kind} = "
    ), found


@pytest.mark.schema
@ready
def test_the_manifests_have_the_types_of_kubernetes(tmp_path: Path) -> None:
    for number, name in enumerate(MANIFESTS):
        typed, found = _manifest(name)
        (tmp_path / f"m{number}.ts").write_text(typed + json.dumps(found), encoding="utf-8")
    typed, found = _manifest("deploy/kubernetes/vllm.yaml")
    found["spec"]["template"]["spec"]["containers"][1]["portz"] = []
    (tmp_path / "wrong.ts").write_text(typed + json.dumps(found), encoding="utf-8")
    said = _check(tmp_path, VERSIONS[-1])
    assert _unmeant(said) == []
    assert "'\"portz\"' does not exist" in said


# What the SDK does not know of what the boards say, and why it is right to say it.
LOST = {
    "expr": "of annotations: Prometheus' own",
    "step": "of annotations: Prometheus' own",
    "tagKeys": "of annotations: Prometheus' own",
    "textFormat": "of annotations: Prometheus' own",
    "titleFormat": "of annotations: Prometheus' own",
}


@pytest.mark.parametrize("path", boards.BOARDS, ids=lambda path: path.stem)
def test_the_boards_come_through_grafanas_sdk_unchanged(path: Path) -> None:
    board = boards.load(path)
    through = json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder, sort_keys=True))
    assert sorted(_lost(board, through)) == []


def _lost(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Places where the board says something that is not there, or is another, afterwards."""
    if isinstance(before, dict):
        for key, value in before.items():
            if key in LOST and where.endswith("annotations.list"):
                continue
            if not isinstance(after, dict) or key not in after:
                if value is not None:
                    yield f"{where}.{key}"
            else:
                yield from _lost(value, after[key], f"{where}.{key}")
    elif isinstance(before, list):
        if not isinstance(after, list) or len(after) != len(before):
            yield where
        else:
            for one, other in zip(before, after, strict=True):
                yield from _lost(one, other, where)
    elif before != after:
        yield f"{where}: {before!r} became {after!r}"
