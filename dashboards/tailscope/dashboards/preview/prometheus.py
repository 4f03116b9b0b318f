"""Asks a Prometheus over HTTP."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from tailscope.dashboards.service import Service

_FLAG: Final = "--prometheus"


class QueryError(Exception):
    """Prometheus refused an expression; the text is its own."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One series: its labels, and its values by Unix time, without NaN."""

    labels: dict[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        """The latest value."""
        return self.points[-1][1]


class Prometheus:
    """A server, asked for one moment or for a range of time."""

    def __init__(self, url: str) -> None:
        self._service = Service(_FLAG, url)

    def at(self, expr: str, moment: float) -> list[Curve]:
        """The series that an expression has at one moment.

        Raises:
            QueryError: If Prometheus refuses the expression.
            UsageError: If it does not answer.
        """
        found = self._ask("query", query=expr, time=moment)
        return _curves((one["metric"], [one["value"]]) for one in found)

    def over(self, expr: str, start: float, end: float, step: float) -> list[Curve]:
        """The series that an expression has over a range of time; errors as ``at``."""
        found = self._ask("query_range", query=expr, start=start, end=end, step=step)
        return _curves((one["metric"], one["values"]) for one in found)

    def _ask(self, path: str, **fields: object) -> list[Any]:
        answer = self._service.ask(
            "POST",
            f"/api/v1/{path}",
            fields={k: str(v) for k, v in fields.items()},
            encode_multipart=False,
        )
        try:
            body = json.loads(answer.data)
            if body["status"] == "success":
                result: list[Any] = body["data"]["result"]
                return result
        except (ValueError, KeyError, TypeError) as error:
            raise self._service.trouble(
                f"the answer ({answer.status}) is not one of Prometheus'; give its address"
            ) from error
        raise QueryError(body.get("error", f"status {answer.status}"))


def _curves(series: Any) -> list[Curve]:
    found = []
    for labels, values in series:
        points = tuple((float(at), float(value)) for at, value in values)
        finite = tuple((at, value) for at, value in points if math.isfinite(value))
        if finite:
            found.append(Curve(labels, finite))
    return found
