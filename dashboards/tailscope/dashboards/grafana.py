"""Grafana's HTTP API, as far as it takes to bring boards into it."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Final

import urllib3

from tailscope.errors import UsageError

_SECONDS: Final = 30.0
_CONFLICT: Final = 412
"""Grafana's answer to a board that is there already, with another content or of another folder."""
_KEPT_BY_GRAFANA: Final = ("id", "version")


@dataclass(frozen=True, slots=True)
class Login:
    """How to be let in: a service account's token, or a user and a password."""

    token: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)

    def headers(self) -> dict[str, str]:
        """Return the header that says who asks; none for an open Grafana."""
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user:
            pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}


class Grafana:
    """A Grafana that boards are pushed to."""

    def __init__(self, url: str, login: Login) -> None:
        self._url = url.rstrip("/")
        self._pool = urllib3.PoolManager(
            headers={**login.headers(), "Accept": "application/json"},
            timeout=_SECONDS,
            retries=False,
        )

    def board(self, uid: str) -> dict[str, Any] | None:
        """Return the board that Grafana has under a uid, without what Grafana adds to it.

        Raises:
            UsageError: If Grafana does not answer as it should.
        """
        found = self._ask("GET", f"/api/dashboards/uid/{uid}", missing=True)
        if found is None:
            return None
        board = found["dashboard"]
        return {key: value for key, value in board.items() if key not in _KEPT_BY_GRAFANA}

    def folder(self, title: str, *, create: bool = True) -> str | None:
        """Return the uid of the folder of that title; make it if it is not there.

        Raises:
            UsageError: As ``board``.
        """
        folders = self._ask("GET", "/api/folders?limit=1000") or []
        for each in folders:
            if each["title"] == title:
                return str(each["uid"])
        if not create:
            return None
        return str(self._ask("POST", "/api/folders", {"title": title})["uid"])

    def save(self, board: dict[str, Any], folder: str | None, *, overwrite: bool) -> None:
        """Save a board into a folder, by its uid; the top folder has none.

        Raises:
            UsageError: As ``board``, and if Grafana has another one and is not to overwrite it.
        """
        body = {
            "dashboard": {**board, "id": None},
            "overwrite": overwrite,
            "message": "tailscope dashboards push",
            **({"folderUid": folder} if folder else {}),
        }
        self._ask("POST", "/api/dashboards/db", body)

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, missing: bool = False
    ) -> Any:
        try:
            answer = self._pool.request(method, self._url + path, json=body)
        except urllib3.exceptions.HTTPError as error:
            raise UsageError(f"--grafana-url {self._url}: {error}; is Grafana there?") from error
        if missing and answer.status == 404:
            return None
        if answer.status >= 300:
            raise UsageError(self._refusal(answer.status, answer.data, path))
        try:
            return json.loads(answer.data)
        except ValueError as error:
            raise UsageError(
                f"--grafana-url {self._url}: the answer is no JSON; give the address of Grafana "
                "itself, with its sub-path"
            ) from error

    def _refusal(self, status: int, data: bytes, path: str) -> str:
        if status in (401, 403):
            return (
                f"--grafana-token: Grafana refuses it ({status}); give the token of a service "
                "account that may edit, or --grafana-user and --grafana-password"
            )
        if status == _CONFLICT:
            return "Grafana has this board with another content; give --overwrite to replace it"
        try:
            said = json.loads(data).get("message", "")
        except (ValueError, AttributeError):
            said = data[:200].decode(errors="replace")
        return f"--grafana-url {self._url}: {path} answers {status}: {said}"
