"""Why a scrape cannot be used."""

from __future__ import annotations

from typing import ClassVar


class ScrapeError(ValueError):
    """A scrape cannot be used.

    Attributes:
        reason: Short, bounded word for a metric label.
    """

    reason: ClassVar[str]


class NotPrometheus(ScrapeError):
    """The text is no Prometheus exposition."""

    reason = "not_prometheus"


class TooManySeries(ScrapeError):
    """The text has more lines than an engine ever has."""

    reason = "too_many_series"


class SeveralServers(ScrapeError):
    """Scrapes come from more than one server in turn, so that their counters mean nothing."""

    reason = "several_servers"
