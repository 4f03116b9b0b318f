"""Triage: is it slow, in which stage, and who loads it; in the order in which one asks."""

from __future__ import annotations

from tailscope.dashboards.board import Board
from tailscope.dashboards.boards.triage import (
    decode,
    engine,
    prefill,
    queue,
    servers,
    slow,
    stages,
    tenants,
    trust,
)
from tailscope.dashboards.variables import FIRST_TOKEN_SLO

BOARD = Board(
    uid="tailscope-triage",
    title="Tailscope / 1 Triage",
    description="Start here when requests are slow. Read from the top: is it slow, which stage, "
    "which server, why that stage, whose load.",
    rows=(
        slow.ROW,
        stages.ROW,
        servers.ROW,
        queue.ROW,
        prefill.ROW,
        decode.ROW,
        tenants.ROW,
        engine.ROW,
        trust.ROW,
    ),
    variables=(FIRST_TOKEN_SLO,),
)
