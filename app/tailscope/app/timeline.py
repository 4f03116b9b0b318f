"""The timeline of one request: its stages, and what ran beside it on the same server."""

from __future__ import annotations

import altair as alt
import pandas as pd

from tailscope.app.access import single
from tailscope.app.palette import GREY, OTHERS, STAGE_OPACITY, UNKNOWN, TenantColours
from tailscope.app.text import say
from tailscope.app.text import tenant as named_so
from tailscope.triage.neighbours import Neighbourhood
from tailscope.triage.stages import STAGES, WHOLE, intervals, named

MAX_ROWS = 40
"""Neighbours that are drawn: those that held a place in the batch the longest."""

LABELS = 84
"""Pixels to the left of the plot, the same in every chart under each other: so their axes agree."""

_ROW = 15
_EDGE = 0.12


def bars(around: Neighbourhood, tenants: list[str]) -> pd.DataFrame:
    """The stages of the request and its neighbours as bars, in seconds after its arrival."""
    origin = int(around.request["arrived_ns"].iloc[0])
    frame = pd.concat([around.request, around.others.head(MAX_ROWS)], ignore_index=True)
    tenant = named(frame, "tenant")
    rows = pd.DataFrame(
        {
            "tenant": tenant.where(tenant.isin([*tenants, UNKNOWN]), OTHERS),
            "name": tenant.map(named_so),
            # A free row sets the request apart from those beside it.
            "rank": [0, *range(2, len(frame) + 1)],
            "request": frame["request_id"].fillna(frame["span_id"]).fillna(say("chart.no_id")),
            "input_tokens": frame["input_tokens"].where(single(frame)),
            "output_tokens": frame["output_tokens"].where(single(frame)),
        }
    )
    found = intervals(frame, origin).merge(rows, left_on="row", right_index=True)
    return found.assign(seconds=found["end"] - found["start"])


def extent(data: pd.DataFrame) -> float:
    """Seconds from the arrival of the request to its end, for the axis."""
    return max(float(data.loc[data["rank"] == 0, "end"].max()), 0.001)


def edges(length: float) -> tuple[float, float]:
    """Where the time axis of a request of that length begins and ends, in seconds."""
    return -_EDGE * length, (1 + _EDGE) * length


def time_axis(length: float, title: str | None) -> alt.X:
    """The time axis that all charts of one request share."""
    return alt.X(
        "start:Q",
        title=title,
        scale=alt.Scale(domain=list(edges(length)), nice=False),
        axis=alt.Axis(tickCount=10),
    )


def gantt(data: pd.DataFrame, colours: TenantColours) -> alt.LayerChart | alt.FacetChart:
    """Draw the bars: the request on top, coloured by tenant, shaded by stage."""
    length = extent(data)
    low, high = edges(length)
    # A bar that reaches beyond the axis ends at its edge.
    seen = data[(data["end"] > low) & (data["start"] < high)].assign(
        start=data["start"].clip(lower=low), end=data["end"].clip(upper=high)
    )
    rows = int(seen["rank"].max()) + 1
    known = [stage for stage in (*STAGES, WHOLE) if stage in set(seen["stage"])]
    stages = [_stage(stage) for stage in known]
    domain, scale = colours.scale(sorted(set(seen["tenant"])))
    seen = seen.assign(stage=seen["stage"].map(_stage), tenant=seen["tenant"].map(named_so))
    chart = (
        alt.Chart(seen)
        .mark_bar(height={"band": 0.86})
        .encode(
            x=time_axis(length, say("chart.after_arrival")),
            x2=alt.X2("end:Q"),
            y=alt.Y(
                "rank:O",
                title=None,
                scale=alt.Scale(domain=list(range(rows))),
                axis=alt.Axis(
                    labelExpr=f"datum.value == 0 ? '{say('chart.this_request')}' : ''",
                    labelFontWeight="bold",
                    labelOverlap=False,
                    ticks=False,
                    domain=False,
                    minExtent=LABELS,
                    maxExtent=LABELS,
                ),
            ),
            color=alt.Color(
                "tenant:N",
                scale=alt.Scale(domain=domain, range=scale),
                legend=alt.Legend(
                    title="", orient="top", columns=5, labelLimit=150, symbolOpacity=1
                ),
            ),
            opacity=alt.Opacity(
                "stage:O",
                sort=stages,
                scale=alt.Scale(
                    type="ordinal",
                    domain=stages,
                    range=[STAGE_OPACITY[stage] for stage in known],
                ),
                legend=alt.Legend(
                    title="",
                    orient="bottom",
                    symbolType="square",
                    symbolFillColor=GREY,
                    symbolStrokeWidth=0,
                ),
            ),
            tooltip=[
                alt.Tooltip("request:N", title=say("chart.request")),
                alt.Tooltip("name:N", title=say("chart.tenant")),
                alt.Tooltip("stage:N", title=say("chart.stage")),
                alt.Tooltip("seconds:Q", title=say("chart.in_stage"), format=",.3f"),
                alt.Tooltip("input_tokens:Q", title=say("chart.tokens_in"), format=","),
                alt.Tooltip("output_tokens:Q", title=say("chart.tokens_out"), format=","),
            ],
        )
    )
    marks = alt.Chart(pd.DataFrame({"at": [0.0, length]})).mark_rule(strokeDash=[4, 3], color=GREY)
    return alt.layer(chart, marks.encode(x=alt.X("at:Q"))).properties(height=_ROW * rows + 20)


def _stage(name: str) -> str:
    return say("stage.whole" if name == WHOLE else f"stage.{name}")
