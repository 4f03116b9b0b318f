"""The ``tailscope`` command. Knows all commands, and loads one only when it is called.

A command is a module with ``configure(parser)``, which adds its flags, and ``run(arguments)``,
which returns the exit status. Each flag can also be given as a variable ``TAILSCOPE_<FLAG>`` or as
a key of the YAML file named by ``--config``.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import version
from typing import NamedTuple

import configargparse

from tailscope.errors import UsageError


class Command(NamedTuple):
    """One command: where it is, what it does, what it needs."""

    module: str
    help: str
    example: str
    extra: str = ""


COMMANDS: dict[str, Command] = {
    "exporter": Command(
        "tailscope.exporter.command",
        "run the sidecar beside an inference server",
        "tailscope exporter --engine http://127.0.0.1:8000 --data data",
    ),
    "run": Command(
        "tailscope.launch.command",
        "run the exporter and the triage app together",
        "tailscope run --engine http://127.0.0.1:8000 --data data",
        "app",
    ),
    "demo": Command(
        "tailscope.demo.command",
        "show the whole stack on a bundled recording of a real vLLM",
        "tailscope demo",
        "app",
    ),
    "app": Command(
        "tailscope.app.command",
        "open the triage app on a store",
        "tailscope app --data data",
        "app",
    ),
    "diagnose": Command(
        "tailscope.app.diagnose",
        "say in the terminal why the slowest requests are slow",
        "tailscope diagnose --data data --since 1h",
        "app",
    ),
    "import": Command(
        "tailscope.records.command",
        "put request records from files into a store",
        "tailscope import --data data requests.jsonl.gz",
    ),
    "dashboards": Command(
        "tailscope.dashboards.command",
        "write the Grafana dashboards, push or preview them",
        "tailscope dashboards build --output dashboards/json",
        "dashboards",
    ),
    "alerts": Command(
        "tailscope.alerts.command",
        "write the alert rules for Prometheus, its operator and Grafana",
        "tailscope alerts build --output alerts",
    ),
}


class _Parser(configargparse.ArgumentParser):  # type: ignore[misc]
    """Names a key of the settings file that is no setting."""

    def get_command_line_key_for_unknown_config_file_setting(self, key: str) -> str:
        names = sorted(
            option.removeprefix("--")
            for action in self._actions
            for option in action.option_strings
            if option.startswith("--")
        )
        self.error(
            f"the settings file has {key!r}, which is no setting; there are {', '.join(names)}"
        )
        return key


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [
        "usage: tailscope COMMAND ...",
        "",
        "Finds out why the slowest requests of an LLM inference server are slow, and whose load "
        "made them slow.",
        "",
        "commands:",
        *(f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()),
        "",
        "`tailscope COMMAND --help` shows the flags and an example.",
    ]
    return "\n".join(lines)


def parser_for(name: str) -> configargparse.ArgumentParser:
    """Return the parser of a command with all its flags.

    Raises:
        ModuleNotFoundError: If the command's extra is not installed.
    """
    command = COMMANDS[name]
    parser = _Parser(
        prog=f"tailscope {name}",
        description=command.help[0].upper() + command.help[1:] + ".",
        epilog=f"example: {command.example}",
        auto_env_var_prefix="TAILSCOPE_",
        config_file_parser_class=configargparse.YAMLConfigFileParser,
        add_env_var_help=False,
        add_config_file_help=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        env_var="TAILSCOPE_CONFIG",  # a file's own flag gets no variable by itself
        is_config_file=True,
        metavar="FILE",
        help="YAML file with these settings",
    )
    importlib.import_module(command.module).configure(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0 it ran, 2 it could not start as asked."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"tailscope {version('tailscope')}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        print(f"tailscope: no command {name!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    command = COMMANDS[name]
    try:
        parser = parser_for(name)
    except ModuleNotFoundError as error:
        if not command.extra or (error.name or "").startswith("tailscope"):
            raise
        print(
            f"tailscope {name} needs {error.name}, which is not installed: "
            f"pip install 'tailscope[{command.extra}]'",
            file=sys.stderr,
        )
        return 2
    try:
        status: int = importlib.import_module(command.module).run(parser.parse_args(arguments[1:]))
    except UsageError as error:
        print(f"tailscope {name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


if __name__ == "__main__":
    sys.exit(main())
