"""Records as they are where less is known: the same requests with columns and clocks spoiled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

STAGES = ("frontend_seconds", "queue_seconds", "prefill_seconds", "decode_seconds")


def first_token_only(frame: pd.DataFrame) -> pd.DataFrame:
    """Only the time to the first token and the total are known."""
    return frame.assign(**dict.fromkeys(STAGES))


def total_only(frame: pd.DataFrame) -> pd.DataFrame:
    """Only the total is known."""
    return first_token_only(frame).assign(ttft_seconds=None)


def tenants_missing(frame: pd.DataFrame) -> pd.DataFrame:
    """A fifth of the rows do not say whose they are."""
    lost = np.random.default_rng(1).random(len(frame)) < 0.2
    return frame.assign(tenant=frame["tenant"].mask(lost))


def skewed(frame: pd.DataFrame) -> pd.DataFrame:
    """Each tenant's clock is off, by -80 to 400 ms."""
    names = sorted(frame["tenant"].unique())
    offset = dict(zip(names, np.linspace(-0.08, 0.4, len(names)), strict=True))
    shift = (frame["tenant"].map(offset) * 1e9).astype("int64")
    return frame.assign(arrived_ns=frame["arrived_ns"] + shift, ended_ns=frame["ended_ns"] + shift)


def shuffled(frame: pd.DataFrame) -> pd.DataFrame:
    """Nothing is lost but the order of the rows."""
    return frame.sample(frac=1.0, random_state=3)


WAYS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "ttft": first_token_only,
    "total": total_only,
    "untold": tenants_missing,
    "skew": skewed,
    "order": shuffled,
}
