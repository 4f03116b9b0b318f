"""Writes the reference pages from the code: ``python -m tailscope.document``."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tailscope.catalogue import METRICS, PREFIX, gateway, gpu, inference, requests, scrape
from tailscope.catalogue.coverage import How, coverage
from tailscope.catalogue.engines import engines
from tailscope.catalogue.model import Metric
from tailscope.catalogue.upstream import Engine
from tailscope.cli import COMMANDS, parser_for
from tailscope.generated import reconcile
from tailscope.records.record import COLUMNS, OUTCOMES, RequestRecord

_GROUPS = (
    ("GPU", "What the hardware does while requests are served; docs/gpu.md says how.", gpu.METRICS),
    ("Engine", "What the engine says, in one vocabulary.", inference.METRICS),
    (
        "Gateway",
        "What a gateway in front of engines says: its requests are also those of an engine.",
        gateway.METRICS,
    ),
    (
        "Requests",
        "Made from the request records, with one bucket layout for every engine.",
        requests.METRICS,
    ),
    ("The exporter itself", "Its sources, its records and its store.", scrape.METRICS),
)


_ENGINES_TEXT = """\
`yes`: from a family of the engine. `passed on`: from a family of another engine, where that one
runs inside and its families stand on the page. `derived`: computed, because the engine does not
give it. `no`: it cannot be known. Integrals and samples of a gauge are there wherever the gauge is.
Where several sources are named, the first one that is there counts.
[docs/engines](../engines/README.md) says what each engine needs."""
_MADE = "Made from the code by `make build`; do not edit."
_KINDS = {str: "text", int: "whole number", float: "number"}


def pages() -> dict[str, str]:
    """Return every page as Markdown by its file name."""
    return {
        "engines.md": engine_table(),
        "metrics.md": metrics(),
        "record.md": record(),
        "settings.md": settings(),
    }


def metrics() -> str:
    """Return the page of the metrics."""
    out = [
        "# Metrics",
        "",
        _MADE,
        "",
        f"{len(METRICS)} metrics. Histograms without bounds of ours keep the engine's own bounds: "
        "never sum those of two engines.",
    ]
    for title, text, metrics in _GROUPS:
        out += ["", f"## {title}", "", text, ""]
        out += ["| metric | type | labels | meaning |", "|---|---|---|---|"]
        out += [_row(metric) for metric in metrics]
    return "\n".join(out) + "\n"


def _row(metric: Metric) -> str:
    labels = ", ".join(metric.labels) or "none"
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


def engine_table() -> str:
    """Return the page of the engines: what each gives, and from where."""
    known = engines()
    names = [
        metric
        for metric in METRICS.values()
        if not (metric.integral_of or metric.distribution_of)
        and any(coverage(engine, metric).how is not How.NO for engine in known.values())
    ]
    out = ["# Engines", "", _MADE, "", *_ENGINES_TEXT.splitlines(), ""]
    out += ["| engine | name in labels | ports | paths | its metrics are switched on |"]
    out += ["|---|---|---|---|---|"]
    out += [_engine_row(engine) for engine in known.values()]
    for kind in ("engine", "gateway"):
        out += _matrix(kind, [name for name in names if name.name.startswith(f"{PREFIX}{kind}_")])
    for engine in known.values():
        out += _engine(engine, names)
    return "\n".join(out) + "\n"


def _matrix(kind: str, metrics: Sequence[Metric]) -> list[str]:
    """Return the table of those engines that give at least one of the metrics."""
    shown: dict[str, list[How]] = {}
    for engine in engines().values():
        row = [coverage(engine, one).how for one in metrics]
        if any(how is not How.NO for how in row):
            shown[engine.title] = row
    out = ["", f"## What each {kind} gives", ""]
    out += [f"| metric | {' | '.join(shown)} |"]
    out += ["|---|" + "---|" * len(shown)]
    for metric, cells in zip(metrics, zip(*shown.values(), strict=True), strict=True):
        out.append(f"| `{metric.name.removeprefix(PREFIX)}` | {' | '.join(cells)} |")
    return out


def _engine_row(engine: Engine) -> str:
    ports = ", ".join(map(str, engine.ports))
    paths = ", ".join(f"`{path}`" for path in engine.paths)
    return f"| {engine.title} | `{engine.name}` | {ports} | {paths} | {engine.switch_on} |"


def _engine(engine: Engine, metrics: Sequence[Metric]) -> list[str]:
    out = ["", f"## {engine.title}", "", "| metric | how | from |", "|---|---|---|"]
    for metric in metrics:
        found = coverage(engine, metric)
        if found.how is not How.NO:
            name = metric.name.removeprefix(PREFIX)
            sources = " or ".join(f"`{source}`" for source in found.sources)
            out.append(f"| `{name}` | {found.how} | {sources} |")
    out += ["", "Left out:", "", "| families (regular expression) | why |", "|---|---|"]
    for ignored in engine.ignored:
        pattern = ignored.pattern.pattern.replace("|", "\\|")
        out.append(f"| `{pattern}` | {ignored.reason} |")
    for other in engine.passes_on:
        out += ["", f"The families of {other.title} on its page are read as they are there."]
    return out


def record() -> str:
    """Return the page of the request record."""
    text = inspect.getdoc(RequestRecord) or ""
    meanings = dict(re.findall(r"^    (\w+): (.*)$", text, re.MULTILINE))
    out = ["# The request record", "", _MADE, "", "| column | type | meaning |", "|---|---|---|"]
    for name, kind in COLUMNS.items():
        meaning = meanings[name].replace("``OUTCOMES``", ", ".join(OUTCOMES))
        out.append(f"| `{name}` | {_KINDS[kind]} | {meaning.replace('``', '`')} |")
    return "\n".join(out) + "\n"


def settings() -> str:
    """Return the page of the settings of every command."""
    out = ["# Settings", "", _MADE]
    for name, command in COMMANDS.items():
        parser = parser_for(name)
        out += ["", f"## tailscope {name}", "", f"{parser.description}", ""]
        out += ["```sh", command.example, "```", ""]
        out += ["| flag | variable | meaning |", "|---|---|---|"]
        for action in parser._actions:
            if not isinstance(action, argparse._HelpAction):
                out.append(_flag(parser, action))
    return "\n".join(out) + "\n"


def _flag(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    flag = action.option_strings[-1] if action.option_strings else ""
    name = f"`{flag or action.metavar or action.dest}`"
    variable = f"`TAILSCOPE_{flag.lstrip('-').replace('-', '_').upper()}`" if flag else ""
    text = (action.help or "") % {"default": action.default, "prog": parser.prog}
    if action.choices:
        text += f": {', '.join(map(str, action.choices))}"
    return f"| {name} | {variable} | {text.replace('|', chr(92) + '|')} |"


def main(argv: list[str] | None = None) -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description="Write the reference pages.")
    parser.add_argument("--output", type=Path, default=Path("docs"), help="folder (default docs)")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    arguments = parser.parse_args(argv)
    target = arguments.output / "reference"
    return reconcile(target, pages(), check=arguments.check, command="make build")


if __name__ == "__main__":
    sys.exit(main())
