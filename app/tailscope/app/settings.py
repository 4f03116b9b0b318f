"""What the command tells the pages. It goes through the environment, as Streamlit starts them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_DATA = "TAILSCOPE_DATA"
_NOTICE = "TAILSCOPE_NOTICE"
_PROMETHEUS = "TAILSCOPE_PROMETHEUS"
_HEADERS = "TAILSCOPE_PROMETHEUS_HEADERS"
_ROLES = "TAILSCOPE_ROLES"
_RUNBOOKS = "TAILSCOPE_RUNBOOKS"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the pages.

    Attributes:
        data: Directories of the stores; none where only Prometheus is read.
        notice: Text at the top of each page; empty for none.
        prometheus: Address of a server with Prometheus' HTTP interface; empty for none.
        headers: File with HTTP headers for it, one ``Name: value`` a line; None for none.
        roles: File that says who may see what; None where everybody sees everything.
        runbooks: Address of the folder with the runbooks.
    """

    data: tuple[Path, ...]
    notice: str = ""
    prometheus: str = ""
    headers: Path | None = None
    roles: Path | None = None
    runbooks: str = "docs/runbooks"

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read them in a page."""
        data = environment.get(_DATA, "data").split(os.pathsep)
        return cls(
            tuple(Path(path) for path in data if path),
            environment.get(_NOTICE, ""),
            environment.get(_PROMETHEUS, ""),
            _path(environment.get(_HEADERS, "")),
            _path(environment.get(_ROLES, "")),
            environment.get(_RUNBOOKS, "docs/runbooks"),
        )

    def environment(self) -> dict[str, str]:
        """Variables for the process that shows the pages."""
        return {
            _DATA: os.pathsep.join(str(path.absolute()) for path in self.data),
            _NOTICE: self.notice,
            _PROMETHEUS: self.prometheus,
            _HEADERS: "" if self.headers is None else str(self.headers.absolute()),
            _ROLES: "" if self.roles is None else str(self.roles.absolute()),
            _RUNBOOKS: self.runbooks,
        }


def _path(text: str) -> Path | None:
    return Path(text) if text else None
