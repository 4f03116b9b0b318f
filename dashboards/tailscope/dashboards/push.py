"""Brings boards into a Grafana, or says what that would do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tailscope.dashboards.board import Board
from tailscope.dashboards.grafana import Grafana
from tailscope.errors import UsageError

_NEW: Final = "new"
_SAME: Final = "as it should be"
_OTHER: Final = "differs"
_DONE: Final = {_NEW: "saved", _SAME: _SAME, _OTHER: "replaced"}


def push(
    grafana: Grafana, boards: Iterable[Board], folder: str, *, overwrite: bool, dry_run: bool
) -> None:
    """Save the boards into a folder, and say for each what became of it.

    Args:
        grafana: Where to.
        boards: What.
        folder: Title of the folder; it is made if it is missing. Empty is the top.
        overwrite: Replace a board that is there with another content.
        dry_run: Change nothing.

    Raises:
        UsageError: If Grafana refuses, or has a board that would have to be overwritten.
    """
    place = grafana.folder(folder, create=not dry_run) if folder else None
    for board in boards:
        wanted = board.json()
        found = grafana.board(board.uid)
        state = _NEW if found is None else _SAME if found == wanted else _OTHER
        if dry_run:
            print(f"{board.uid}: {state}{_would(state, overwrite)}")
            continue
        if state == _OTHER and not overwrite:
            raise UsageError(
                f"{board.uid}: Grafana has this board with another content; give --overwrite to "
                "replace it"
            )
        if found != wanted:
            grafana.save(wanted, place, overwrite=overwrite)
        print(f"{board.uid}: {_DONE[state]}")


def _would(state: str, overwrite: bool) -> str:
    if state == _NEW:
        return ", would be saved"
    if state == _OTHER:
        return ", would be replaced" if overwrite else ", would be refused without --overwrite"
    return ""
