"""The boards, one module or package each, found by themselves: each defines ``BOARD``."""

from __future__ import annotations

import importlib
import pkgutil

from tailscope.dashboards.board import Board


def boards() -> tuple[Board, ...]:
    """Return every board, in the order of their titles, which are numbered.

    Raises:
        ValueError: If two boards have the same uid or the same title.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found: tuple[Board, ...] = tuple(
        importlib.import_module(f"{__name__}.{name}").BOARD for name in names
    )
    for what in ("uid", "title"):
        values = [getattr(board, what) for board in found]
        if len(set(values)) < len(values):
            raise ValueError(f"two boards have the same {what}: {sorted(values)}")
    return tuple(sorted(found, key=lambda board: board.title))
