"""What the command tells the pages. It goes through the environment, as Streamlit starts them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_DATA = "TAILSCOPE_DATA"
_NOTICE = "TAILSCOPE_NOTICE"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the pages.

    Attributes:
        data: Directory of the store.
        notice: Text at the top of each page; empty for none.
    """

    data: Path
    notice: str = ""

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read them in a page."""
        return cls(Path(environment.get(_DATA, "data")), environment.get(_NOTICE, ""))

    def environment(self) -> dict[str, str]:
        """Variables for the process that shows the pages."""
        return {_DATA: str(self.data.absolute()), _NOTICE: self.notice}
