"""Brings boards into a Grafana, or says what that would do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tailscope.dashboards.board import Board
from tailscope.dashboards.grafana import Grafana, Saved
from tailscope.errors import UsageError

_NEW: Final = "new"
_SAME: Final = "as it should be"
_OTHER: Final = "differs"
_ELSEWHERE: Final = "as it should be, but in another folder"
_DONE: Final = {_NEW: "saved", _OTHER: "replaced", _ELSEWHERE: "moved"}
"""What becomes of a board, by what was found."""


def push(
    grafana: Grafana, boards: Iterable[Board], folder: str, *, overwrite: bool, dry_run: bool
) -> None:
    """Save the boards into a folder, and say for each what became of it.

    Args:
        grafana: Where to.
        boards: What.
        folder: Title of the folder; it is made if it is missing. Empty is the top.
        overwrite: Replace a board that is there with another content, or in another folder.
        dry_run: Change nothing.

    Raises:
        UsageError: If Grafana refuses, or has a board that would have to be overwritten.
    """
    place = grafana.folder(folder, create=not dry_run) if folder else ""
    for board in boards:
        wanted = board.json()
        state = _state(grafana.board(board.uid), wanted, place)
        saves = state == _NEW or (overwrite and state in _DONE)
        if dry_run:
            print(f"{board.uid}: {state}{_would(state, saves=saves)}")
            continue
        if state == _OTHER and not overwrite:
            raise UsageError(
                f"{board.uid}: Grafana has this board with another content; give --overwrite to "
                "replace it"
            )
        if saves:
            grafana.save(wanted, place or "", overwrite=overwrite)
        print(f"{board.uid}: {_DONE[state] if saves else state}")


def _state(found: Saved | None, wanted: dict[str, Any], place: str | None) -> str:
    if found is None:
        return _NEW
    if found.board != wanted:
        return _OTHER
    return _SAME if found.folder == place else _ELSEWHERE


def _would(state: str, *, saves: bool) -> str:
    if saves:
        return f", would be {_DONE[state]}"
    return ", would be refused without --overwrite" if state == _OTHER else ""
