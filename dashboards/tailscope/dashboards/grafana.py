"""Grafana's HTTP API, as far as it takes to bring boards into it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tailscope.dashboards.service import Login, Service
from tailscope.errors import UsageError

_FLAG: Final = "--grafana-url"
_CONFLICT: Final = 412
"""Grafana's answer to a board that is there already; its status tells in which way."""
_SAME_TITLE: Final = "name-exists"
_KEPT_BY_GRAFANA: Final = ("id", "version")
_SHOWN: Final = 200
"""Bytes of an answer that is not in Grafana's form, for a message."""
_NOT_GRAFANA: Final = "the answer is not one of Grafana's; give its address, with its sub-path"


@dataclass(frozen=True, slots=True)
class Saved:
    """A board that Grafana has.

    Attributes:
        board: What it is, without what Grafana adds to it.
        folder: The uid of its folder; empty is the top.
    """

    board: dict[str, Any]
    folder: str


class Grafana:
    """A Grafana that boards are pushed to."""

    def __init__(self, url: str, login: Login) -> None:
        self._service = Service(_FLAG, url, login)

    def board(self, uid: str) -> Saved | None:
        """Return the board that Grafana has under a uid.

        Raises:
            UsageError: If Grafana does not answer as it should.
        """
        found = self._ask("GET", f"/api/dashboards/uid/{uid}", missing=True)
        if found is None:
            return None
        with self._understood():
            board = {k: v for k, v in found["dashboard"].items() if k not in _KEPT_BY_GRAFANA}
            return Saved(board, found.get("meta", {}).get("folderUid") or "")

    def folder(self, title: str, *, create: bool = True) -> str | None:
        """Return the uid of the folder of that title; make it if it is not there.

        Raises:
            UsageError: As ``board``.
        """
        folders = self._ask("GET", "/api/folders?limit=1000")
        with self._understood():
            known = {str(each["title"]): str(each["uid"]) for each in folders}
        if title in known or not create:
            return known.get(title)
        made = self._ask("POST", "/api/folders", {"title": title})
        with self._understood():
            return str(made["uid"])

    def save(self, board: dict[str, Any], folder: str, *, overwrite: bool) -> None:
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
        answer = self._service.ask(method, path, json=body)
        try:
            found = json.loads(answer.data)
        except ValueError:
            found = {"message": _line(answer.data)} if answer.status >= 300 else None
        if missing and answer.status == 404:
            return None
        if answer.status >= 300:
            raise self._refusal(path, answer.status, found, answer.headers.get("Location", ""))
        if found is None:
            raise self._service.trouble(_NOT_GRAFANA)
        return found

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """What is read here has the shape that Grafana's answers have, or is none of them."""
        try:
            yield
        except (KeyError, TypeError, AttributeError) as error:
            raise self._service.trouble(_NOT_GRAFANA) from error

    def _refusal(self, path: str, status: int, found: Any, location: str) -> UsageError:
        told = found if isinstance(found, dict) else {}
        said = f": {told['message']}" if told.get("message") else ""
        if status in (401, 403):
            return self._locked_out(status, said)
        if status == _CONFLICT and told.get("status") == _SAME_TITLE:
            return UsageError(
                "Grafana has another board of the same title in this folder; rename or delete it"
            )
        if status == _CONFLICT:
            return UsageError(
                "Grafana has this board with another content; give --overwrite to replace it"
            )
        if location:
            said = f", and points to {location}; give the address of Grafana itself"
        return self._service.trouble(f"{path} answers {status}{said}")

    def _locked_out(self, status: int, said: str) -> UsageError:
        login = self._service.login
        flag = "--grafana-token" if login.token or not login.user else "--grafana-user"
        how = "Grafana refuses it" if login.headers() else "it is missing, and Grafana asks for it"
        return UsageError(
            f"{flag}: {how} ({status}){said}; give the token of a service account that may edit, "
            "or --grafana-user and --grafana-password"
        )


def _line(data: bytes) -> str:
    return " ".join(data[:_SHOWN].decode(errors="replace").split())
