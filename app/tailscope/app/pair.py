"""The slow requests of one tenant that another one's work made slow: a cell of the matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import streamlit as st

from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.stages import Flags
from tailscope.triage.study import Study
from tailscope.triage.work import Ints

LEAST = 0.2
"""Part of its excess that a request must owe, to count: the least ledger share of an accusation."""

NOBODY = "nobody"
"""In the address, the column of what no tenant's work accounts for."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Who waited, and whose work held the engine meanwhile.

    Attributes:
        victim: Tenant of the requests.
        worker: Tenant whose work it was; empty for nobody's.
    """

    VICTIM: ClassVar[str] = "victim"
    WORKER: ClassVar[str] = "worker"

    victim: str
    worker: str

    @classmethod
    def asked(cls) -> Pair | None:
        """What the address of the page names; None if nothing."""
        victim, worker = (st.query_params.get(name) for name in (cls.VICTIM, cls.WORKER))
        return cls(victim, "" if worker == NOBODY else worker) if victim and worker else None

    @property
    def address(self) -> dict[str, str]:
        """Parameters of an address that name it."""
        return {self.VICTIM: self.victim, self.WORKER: self.worker or NOBODY}

    def inside(self, diagnosis: Diagnosis) -> Flags:
        """Which requests of a diagnosis are slow, the victim's, and owe enough to the worker."""
        found = np.zeros(len(diagnosis.frame), dtype=np.bool_)
        for one in diagnosis.best.studies:
            found[self._rows(one)] = True
        return found & diagnosis.reckoning.slow

    def _rows(self, one: Study) -> Ints:
        book, work = one.book, one.work
        if self.victim not in work.tenants:
            return np.zeros(0, dtype=np.int64)
        mine = work.tenant[book.rows] == work.tenants.index(self.victim)
        owed = book.owed.sum(axis=2)
        if not self.worker:
            held = book.engine + book.unexplained
        elif self.worker in book.tenants:
            held = owed[:, book.tenants.index(self.worker)]
        else:
            return np.zeros(0, dtype=np.int64)
        enough = held >= LEAST * np.maximum(book.excess, 1e-9)
        found: Ints = work.rows[book.rows[mine & enough]]
        return found
