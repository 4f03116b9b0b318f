"""Fixes: one card for each change that was played, with what it gives and who pays."""

from __future__ import annotations

import re

import pandas as pd
import streamlit as st

from tailscope.app import verdicts
from tailscope.app.context import Context
from tailscope.app.empty import missing
from tailscope.app.text import plain, say, translated
from tailscope.triage.diagnosis import Diagnosis, Graded
from tailscope.triage.fixes import Quantiles
from tailscope.triage.words import percent, seconds

_NUMBER = re.compile(r"_\d+$")
"""What some names of fixes end with: the value of the setting."""

LANGUAGES = {"vllm": "bash", "sglang": "bash", "gateway": "text"}
"""How the settings of each are shown."""


def draw(context: Context) -> None:
    """Draw the page."""
    with context.loaded.lock:
        diagnosis = context.diagnosis
        with st.spinner(say("fixes.playing")):
            tried = diagnosis.tried
        with st.container(border=True):
            verdicts.show(diagnosis)
            st.markdown(_state(diagnosis, tried))
            verdicts.runbook(context, diagnosis)
            verdicts.method("replay", "grade")
        for number, one in enumerate(fix for fix in tried if fix.fix.helps):
            _card(context, one, number)
        _not_helping([one for one in tried if not one.fix.helps])
        if not tried:
            missing("fixes.why_none")


def _state(diagnosis: Diagnosis, tried: tuple[Graded, ...]) -> str:
    studies = diagnosis.attribution.studies
    near = studies[0].fidelity if studies else None
    if not studies:
        return say("overview.none_slow")
    if near is None:
        return say("fixes.no_replay")
    told = {"loss": percent(near.loss), "ratio": f"{near.ratio:.2f}"}
    if not near.passed:
        return say("fixes.too_far", **told)
    helping = sum(one.fix.helps for one in tried)
    return say("fixes.near", helping=helping, tried=len(tried), **told)


def _card(context: Context, one: Graded, number: int) -> None:
    fix = one.fix
    with st.container(border=True):
        st.header(plain(translated(fix.change)))
        st.markdown(say(f"why.{_NUMBER.sub('', fix.name)}"))
        left, right = st.columns(2)
        with left:
            st.markdown(f"**{say('fixes.victims')}**")
            _predicted(fix.before, fix.after)
        with right:
            st.markdown(f"**{say('fixes.payers', who=plain(translated(fix.payers)))}**")
            if fix.payers_before is None:
                st.caption(say("fixes.nobody_pays"))
            elif fix.payers_after is None:
                st.caption(say("fixes.gone"))
            else:
                _predicted(fix.payers_before, fix.payers_after)
        if fix.lost:
            st.markdown(f":material/warning: {say('fixes.lost', count=f'{fix.lost:,}')}")
        st.caption(say("fixes.grade", grade=one.grade, server=plain(one.server)))
        if not one.config:
            st.caption(say("fixes.no_config"))
        for name, text in one.config.items():
            st.markdown(say("fixes.config", name=plain(name)))
            st.code(translated(text), language=LANGUAGES.get(name, "bash"), wrap_lines=True)
        context.link("comparison", say("fixes.check"), ":material/compare_arrows:")


def _predicted(before: Quantiles, after: Quantiles) -> None:
    with st.grid(3, min_column_width=100, gap="small"):
        for name in ("p50", "p95", "p99"):
            was, is_ = getattr(before, name), getattr(after, name)
            st.metric(
                name,
                seconds(is_),
                say("fixes.from", was=seconds(was), change=_change(was, is_)),
                delta_color="off",
                delta_arrow="off",
            )


def _change(was: float, is_: float) -> str:
    if was <= 0:
        return ""
    return f"{is_ / was - 1:+.0%}".replace("%", " %")


def _not_helping(rest: list[Graded]) -> None:
    if not rest:
        return
    with st.expander(say("fixes.rest", count=len(rest))):
        st.dataframe(
            pd.DataFrame(
                [
                    {
                        "change": translated(one.fix.change),
                        "before": one.fix.before.p99,
                        "after": one.fix.after.p99,
                    }
                    for one in rest
                ]
            ),
            column_config={
                "change": st.column_config.TextColumn(say("column.change"), width="large"),
                "before": st.column_config.NumberColumn(say("column.p99_now"), format="%.2f s"),
                "after": st.column_config.NumberColumn(say("column.p99_with"), format="%.2f s"),
            },
            hide_index=True,
            alt=say("fixes.rest_alt"),
        )
