"""What a server wants to see of those who read it.

Apart from the reading itself, whose library takes 4 MiB: settings name it, and may read nobody.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tailscope.exporter.health import SourceError


@dataclass(frozen=True, slots=True)
class Access:
    """What a server wants of those who read it.

    Attributes:
        token_file: File that holds a bearer token; read at each request, for tokens are renewed.
        token_env: Variable that holds one.
        ca_file: Certificates of the authorities that its own must be signed by.
    """

    token_file: Path | None = None
    token_env: str = ""
    ca_file: Path | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers that give access.

        Raises:
            SourceError: If there is no token where one should be. The token is never told.
        """
        token = self._token()
        if token is None:
            return {}
        if not (token and token.isascii() and token.isprintable()) or " " in token:
            where = self.token_file or f"the variable {self.token_env}"
            raise SourceError("token", f"{where} holds no bearer token: one word is expected")
        return {"Authorization": f"Bearer {token}"}

    def _token(self) -> str | None:
        if self.token_file is not None:
            try:
                return self.token_file.read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or "no text"
                raise SourceError("token", f"{self.token_file} cannot be read: {why}") from None
        return os.environ.get(self.token_env, "").strip() if self.token_env else None


OPEN = Access()
"""A server that anybody may read."""
