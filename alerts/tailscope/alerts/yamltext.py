"""YAML that people read: no aliases, and expressions of several lines as several lines."""

from __future__ import annotations

from typing import Any

import yaml


class Text(str):
    """Text that is written as it is, line by line."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _literal(dumper: yaml.SafeDumper, text: Text) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=style)


_Dumper.add_representer(Text, _literal)


def dump(value: Any) -> str:
    """Return the value as YAML, its keys in the order in which they are."""
    found: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=100_000)
    return found
