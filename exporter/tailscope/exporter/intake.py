"""Where records come in, whatever brought them: kept first, then counted.

A record is accepted when it is on the disk. Only then is it counted, and only then does the one who
sent it hear that it was taken.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tailscope.catalogue import METRICS, PREFIX
from tailscope.exporter.exposition import Line, series
from tailscope.exporter.matcher import Matcher
from tailscope.records.errors import StoreError, StoreUnfit
from tailscope.records.record import RequestRecord
from tailscope.records.tenancy import Pseudonyms

if TYPE_CHECKING:  # the store needs Arrow, and an exporter without one does without it
    from tailscope.records.store import Store

_COMMIT_SECONDS = 10.0
_INFERRED = {(True, False): "server", (False, True): "model", (True, True): "server,model"}

Place = Callable[[], tuple[str | None, str | None]]
"""Server and model of the one engine beside the exporter; None where that is not clear."""


class Intake:
    """Accepts records.

    Args:
        store: Where they are kept; None to count them only.
        matcher: Where they are counted.
        place: Tells server and model for records that do not know their own.
        pseudonyms: Hides the tenants' names; None to keep them.
        on_gateway: Called when the first gateway's record has been kept.
    """

    def __init__(
        self,
        store: Store | None,
        matcher: Matcher,
        place: Place,
        pseudonyms: Pseudonyms | None = None,
        on_gateway: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._matcher = matcher
        self._place = place
        self._pseudonyms = pseudonyms
        self._on_gateway = on_gateway
        self._lock = threading.Lock()
        self._accepted: Counter[str] = Counter()
        self._rejected: Counter[tuple[str, str]] = Counter()
        self._clamped: Counter[str] = Counter()

    def accept(
        self,
        source: str,
        records: Sequence[RequestRecord],
        rejected: Counter[str] | None = None,
        clamped: int = 0,
        *,
        fuller: Sequence[RequestRecord] = (),
    ) -> Counter[str]:
        """Keep and count records; returns when they are on the disk.

        Args:
            source: Value of the ``source`` label.
            records: What was read.
            rejected: What could not be read, by reason.
            clamped: Negative stage times that were set to 0.
            fuller: Records that were accepted before, of which more is known now.

        Returns:
            What was rejected, by reason: ``rejected``, and records that the store cannot hold.

        Raises:
            StoreFull: If the disk is too slow: try again later.
            StoreError: If the disk refuses.
        """
        rows = [*records, *fuller]
        self._infer(rows)
        if self._pseudonyms is not None:
            for row in rows:
                self._pseudonyms.veil(row)
        left_out = Counter(rejected)
        try:
            self._keep(rows)
        except StoreUnfit:
            left_out["unfit"] += len(records)
            records = fuller = ()
        with self._lock:
            self._accepted[source] += len(records)
            self._clamped[source] += clamped
            for reason, count in left_out.items():
                self._rejected[source, reason] += count
        self._matcher.add(records, fuller)
        if self._on_gateway is not None and any(one.role == "gateway" for one in records):
            self._on_gateway()
            self._on_gateway = None
        return left_out

    def _keep(self, records: Sequence[RequestRecord]) -> None:
        if self._store is None or not records:
            return
        try:
            self._store.submit(records).result(_COMMIT_SECONDS)
        except TimeoutError:
            # They may be kept yet, and once more when the sender repeats them; a reader of the
            # store counts them once.
            raise StoreError(f"the disk took longer than {_COMMIT_SECONDS:g} s") from None

    def _infer(self, records: Sequence[RequestRecord]) -> None:
        """Fill in the engine beside us, and mark what was filled in."""
        server, model = self._place()
        for record in records:
            if record.role != "engine":
                continue
            of_server = server is not None and record.server != server
            of_model = model is not None and record.model is None
            if of_server:
                record.server = server
            if of_model:
                record.model = model
            if of_server or of_model:
                told = _INFERRED[of_server, of_model]
                record.inferred = f"{record.inferred},{told}" if record.inferred else told

    def lines(self) -> dict[str, list[Line]]:
        """Return the counts of records by source."""
        accepted = METRICS[f"{PREFIX}records_total"]
        rejected = METRICS[f"{PREFIX}records_rejected_total"]
        clamped = METRICS[f"{PREFIX}records_clamped_total"]
        with self._lock:
            return {
                accepted.name: [
                    Line(series(accepted.name, accepted.labels, (source,)), count)
                    for source, count in self._accepted.items()
                ],
                rejected.name: [
                    Line(series(rejected.name, rejected.labels, key), count)
                    for key, count in self._rejected.items()
                ],
                clamped.name: [
                    Line(series(clamped.name, clamped.labels, (source,)), count)
                    for source, count in self._clamped.items()
                ],
            }
