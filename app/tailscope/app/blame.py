"""Drawings of who slowed whom: the matrix, the estimates of each suspect, the loads over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from tailscope.app.charts import Drawing, time_axis
from tailscope.app.pair import Pair
from tailscope.app.palette import GREY, OTHERS, TenantColours
from tailscope.app.text import say, tenant
from tailscope.triage.diagnosis import Matrix
from tailscope.triage.stages import floats, named
from tailscope.triage.verdict import Suspect

MOST = 40
"""Tenants of one side of the matrix; the others are summed as one."""

SELECTION = "cell"

LINKS = 3
"""Cells that have a link beside the drawing, for those who do not click."""

BINS = 60
_LINES = 8


def cells(found: Matrix) -> pd.DataFrame:
    """The matrix as rows: ``victim``, ``worker`` and ``seconds``; the largest tenants of each side.

    What nobody worked for has an empty worker.
    """
    seconds = found.seconds
    tenants = np.array(found.tenants, dtype=object)
    weight = seconds.sum(axis=1) + seconds[:, :-1].sum(axis=0)
    order = np.argsort(-weight, kind="stable")
    kept = order[:MOST] if len(order) <= MOST else order[: MOST - 1]
    group = np.full(len(tenants), len(kept), dtype=np.int64)
    group[kept] = np.arange(len(kept))
    names = [*(str(tenants[at]) for at in kept), *([OTHERS] if len(kept) < len(tenants) else [])]
    summed = np.zeros((len(names), len(names) + 1))
    columns = np.append(group, len(names))
    np.add.at(summed, (group[:, None], columns[None, :]), seconds)
    return pd.DataFrame(
        {
            "victim": np.repeat(names, len(names) + 1),
            "worker": np.tile([*names, ""], len(names)),
            "seconds": summed.ravel(),
        }
    )


_INK = "luminance(scale('color', datum.seconds)) > 0.3 ? '#17202A' : '#FFFFFF'"
"""Colour of a number: what stands out from its cell, on light and dark pages."""


def matrix(data: pd.DataFrame) -> Drawing:
    """Draw the matrix: victims in rows, those whose work held the engine in columns."""
    nobody = say("tenants.nobody")
    shown = data.assign(
        victim=data["victim"].map(tenant),
        worker=data["worker"].map(tenant).replace("", nobody),
        key=data["worker"],
    )
    victims = list(dict.fromkeys(shown["victim"]))
    base = alt.Chart(shown).encode(
        x=alt.X(
            "worker:N",
            sort=[*victims, nobody],
            title=say("tenants.worker"),
            axis=alt.Axis(labelAngle=-40, labelLimit=140, orient="top"),
        ),
        y=alt.Y("victim:N", sort=victims, title=say("tenants.victim")),
    )
    top = float(shown["seconds"].max()) or 1.0
    cells_ = base.mark_rect(stroke=GREY, strokeOpacity=0.25, cursor="pointer").encode(
        color=alt.Color(
            "seconds:Q",
            scale=alt.Scale(domain=[0, top]),
            legend=alt.Legend(title=say("chart.seconds"), orient="right", gradientLength=110),
        ),
        tooltip=[
            alt.Tooltip("victim:N", title=say("tenants.victim")),
            alt.Tooltip("worker:N", title=say("tenants.worker")),
            alt.Tooltip("seconds:Q", title=say("chart.seconds"), format=",.1f"),
        ],
    )
    click = alt.selection_point(name=SELECTION, fields=["victim", "key"], toggle=False)
    layers: list[alt.Chart] = [cells_.add_params(click)]
    if len(victims) <= 12:
        marks = shown[shown["seconds"] >= 0.01 * top]
        layers.append(
            alt.Chart(marks)
            .mark_text(fontSize=12, color=alt.expr(_INK))
            .encode(x=base.encoding.x, y=base.encoding.y, text=alt.Text("seconds:Q", format=",.0f"))
        )
    return alt.layer(*layers).properties(height=alt.Step(_row(len(victims))))


def _row(victims: int) -> int:
    """Pixels of a row: enough for the legend beside few of them, and for one screen of many."""
    return int(np.clip(200 / max(victims, 1), 18, 44))


def clicked(event: Any) -> Pair | None:
    """The cell that was clicked in the browser; None if none was.

    Args:
        event: The chart's state.
    """
    chosen = (event.get("selection") or {}).get(SELECTION) or []
    if not chosen or OTHERS in (chosen[0]["victim"], chosen[0]["key"]):
        return None
    return Pair(str(chosen[0]["victim"]), str(chosen[0]["key"]))


def largest(data: pd.DataFrame) -> list[Pair]:
    """The cells in which one tenant's work cost another one most."""
    between = data[(data["victim"] != data["worker"]) & data["worker"].ne("")]
    between = between[between["victim"].ne(OTHERS) & between["worker"].ne(OTHERS)]
    top = between[between["seconds"] > 0].nlargest(LINKS, "seconds")
    return [Pair(*cell) for cell in zip(top["victim"], top["worker"], strict=True)]


def estimates(quick: Sequence[Suspect], checked: Sequence[Suspect]) -> pd.DataFrame:
    """What each tenant's absence would have saved, by every estimate that there is.

    Args:
        quick: Suspects by the order of admission.
        checked: The same after a replay, where one passed.

    Returns:
        ``tenant``, ``held`` (its part of the ledger), ``saved`` (the best estimate), and ``low``
        and ``high`` (the span of all estimates), in percent of the others' slow seconds.
    """
    early = {one.name: one.removal_share for one in quick if one.kind == "tenant"}
    found = []
    for one in checked:
        if one.kind != "tenant":
            continue
        shares = [
            max(share, 0.0)
            for share in (one.removal_share, early.get(one.name))
            if share is not None
        ]
        found.append(
            {
                "tenant": one.name,
                "held": 100 * one.ledger_share,
                "saved": 100 * max(one.removal_share, 0.0),
                "low": 100 * min(shares),
                "high": 100 * max(shares),
            }
        )
    return pd.DataFrame(found, columns=["tenant", "held", "saved", "low", "high"])


def removal(data: pd.DataFrame, colours: TenantColours) -> Drawing:
    """Draw the estimates: a bar for the ledger, a dot for the removal, a line for its band."""
    order = list(data["tenant"])
    domain, scale = colours.scale(order)
    order, data = domain, data.assign(tenant=data["tenant"].map(tenant))
    y = alt.Y("tenant:N", sort=order, title=None)
    title = say("tenants.share")
    axis = alt.X("held:Q", title=title, scale=alt.Scale(domainMin=0), axis=alt.Axis(tickCount=8))
    tooltip = [
        alt.Tooltip("tenant:N", title=say("column.tenant")),
        alt.Tooltip("held:Q", title=say("column.held"), format=".0f"),
        alt.Tooltip("saved:Q", title=say("column.without"), format=".0f"),
        alt.Tooltip("low:Q", title=say("tenants.low"), format=".0f"),
        alt.Tooltip("high:Q", title=say("tenants.high"), format=".0f"),
    ]
    base = alt.Chart(data)
    bars = base.mark_bar(height={"band": 0.55}, opacity=0.55).encode(
        x=axis,
        y=y,
        color=alt.Color("tenant:N", scale=alt.Scale(domain=domain, range=scale), legend=None),
        tooltip=tooltip,
    )
    band = base.mark_rule(strokeWidth=3, color=GREY).encode(
        x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y
    )
    dots = base.mark_point(size=90, filled=True, color=GREY, opacity=1).encode(
        x=alt.X("saved:Q"), y=y, tooltip=tooltip
    )
    return alt.layer(bars, band, dots).properties(height=max(34 * len(data), 60) + 40)


def loads(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Tokens a second that arrived, by tenant: ``time``, ``tenant`` and ``rate``.

    Args:
        frame: Requests of the window.
        names: Tenants that have a line, the largest first.
    """
    tokens = np.nan_to_num(floats(frame, "input_tokens")) + np.nan_to_num(
        floats(frame, "output_tokens")
    )
    arrived = frame["arrived_ns"].to_numpy(dtype=np.int64)
    if not len(arrived) or not tokens.any():
        return pd.DataFrame(columns=["time", "tenant", "rate"])
    edges = np.linspace(arrived.min(), max(arrived.max(), arrived.min() + 10**9), BINS + 1)
    width = (edges[1] - edges[0]) / 1e9
    whose = named(frame, "tenant")
    times = pd.to_datetime(edges[:-1].astype(np.int64), utc=True)
    parts = []
    for name in names[:_LINES]:
        mine = whose.eq(name).to_numpy(dtype=np.bool_)
        summed = np.histogram(arrived[mine], edges, weights=tokens[mine])[0] / width
        parts.append(pd.DataFrame({"time": times, "tenant": name, "rate": summed}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def load_lines(
    data: pd.DataFrame, colours: TenantColours, stretch: tuple[int, int] | None
) -> Drawing:
    """Draw the loads, with the stretch in which the first suspect's load stands out, if any."""
    domain, scale = colours.scale(list(dict.fromkeys(data["tenant"])))
    data = data.assign(tenant=data["tenant"].map(tenant))
    lines = (
        alt.Chart(data)
        .mark_line(interpolate="step-after", strokeWidth=1.8)
        .encode(
            x=time_axis(),
            y=alt.Y("rate:Q", title=say("chart.tokens_per_second")),
            color=alt.Color(
                "tenant:N",
                scale=alt.Scale(domain=domain, range=scale),
                legend=alt.Legend(title="", orient="top", columns=4, symbolOpacity=1),
            ),
            tooltip=[
                alt.Tooltip("tenant:N", title=say("column.tenant")),
                alt.Tooltip("rate:Q", title=say("chart.tokens_per_second"), format=",.0f"),
                alt.Tooltip(
                    "time:T", title=say("chart.arrived"), format="%H:%M:%S", formatType="utc"
                ),
            ],
        )
    )
    layers: list[alt.Chart] = [lines]
    if stretch is not None:
        begin, end = (pd.to_datetime(at, utc=True) for at in stretch)
        span = pd.DataFrame({"time": [begin], "until": [end]})
        area = alt.Chart(span).mark_rect(color=GREY, opacity=0.22)
        layers.insert(0, area.encode(x=alt.X("time:T"), x2=alt.X2("until:T")))
    return alt.layer(*layers).properties(height=260)
