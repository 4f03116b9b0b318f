"""Who may see what, on pages and in what leaves the app."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from tailscope.app import (
    access,
    export,
)
from tailscope.app.access import masked
from tailscope.app.pages import PAGES
from tailscope.app.roles import Roles, Viewer
from tailscope.app.source import Question, Source
from tailscope.errors import UsageError
from tailscope.triage.identity import keys
from tailscope.triage.scope import Scope
from tests import recorded
from tests.openpage import Open, open_page, sent, table, words
from tests.shop import diagnosis, shop

__all__ = ["diagnosis", "open_page", "shop"]


def test_roles_say_who_sees_what(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('operators = ["Ann@example.com"]\n[tenants]\n"bob@example.com" = "acme"\n')
    roles = Roles.read(file)
    assert roles.viewer(["ann@EXAMPLE.com"]) == Viewer()
    assert roles.viewer(["bob@example.com"]) == Viewer("acme")
    assert roles.viewer(["eve@example.com"]) is None
    for wrong, said in (
        ("operators = 3", "`operators` is a list"),
        ("operator = []", "operator is no key of it"),
        ("claim = 3", "claim = 3: it is a name"),
        ('[tenants]\n"eve@example.com" = "other tenants"', "stands for requests of others"),
    ):
        file.write_text(wrong)
        with pytest.raises(UsageError, match=said):
            Roles.read(file)


def test_another_claim_may_say_who_somebody_is(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text(
        'claim = "groups"\noperators = ["sre"]\n[tenants]\nteam-a = "acme"\nteam-b = "bee"\n'
    )
    roles = Roles.read(file)
    assert roles.viewer(["team-a", "staff"]) == Viewer("acme")
    assert roles.viewer(["team-a", "SRE"]) == Viewer()
    assert roles.viewer(["team-a", "team-b"]) is None  # whose numbers would these be
    assert roles.viewer([]) is None


def test_an_address_that_is_not_verified_is_nobody() -> None:
    claims = {"is_logged_in": True, "email": "ann@example.com", "groups": ["a", "b"]}
    assert access.login({}) is None
    assert access.login({**claims, "is_logged_in": False}) is None
    assert access.login(claims) == access.Login("ann@example.com", ("ann@example.com",))
    unsure = access.login({**claims, "email_verified": False})
    assert unsure is not None and unsure.values == ()
    grouped = access.login(claims, "groups")
    assert grouped is not None and grouped.values == ("a", "b")


def test_a_tenant_sees_itself_and_others(shop: Path) -> None:
    source = Source(shop, viewer=Viewer("acme"))
    loaded = source.window(None)
    assert set(loaded.frame["tenant"]) == {"acme", "other tenants"}
    hidden = loaded.frame["tenant"] != "acme"
    assert loaded.frame.loc[hidden, ["span_id", "request_id", "trace_id"]].isna().all(axis=None)
    assert loaded.frame.loc[~hidden, "request_id"].notna().all()
    assert len(loaded.frame) == 278
    verdict = loaded.diagnosis(Question(Scope())).verdict
    assert "initech" not in verdict
    assert masked(loaded.frame, Viewer()) is loaded.frame


def test_with_roles_nobody_sees_anything_before_the_login(
    open_page: Open, shop: Path, tmp_path: Path
) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('operators = ["ann@example.com"]\n')
    test = open_page(shop, settings_of={"roles": file})
    assert "Please log in" in words(test)
    assert not test.metric
    assert "278" not in words(test)


OTHER_NAMES = (b"globex", b"umbrella", b"initech")
"""Names of other tenants than acme; they are in the ids of their requests, too."""


@pytest.fixture
def as_acme(
    open_page: Open, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AppTest]:
    """Open a page as somebody who may see the tenant acme alone."""
    file = tmp_path / "roles.toml"
    file.write_text('[tenants]\n"bob@example.com" = "acme"\n')
    bob = access.Login("bob@example.com", ("bob@example.com",))
    monkeypatch.setattr(access, "signed_in", lambda claim: bob)

    def run(page: str, **address: str) -> AppTest:
        return open_page(shop, page=page, settings_of={"roles": file}, **address)

    return run


@pytest.mark.parametrize("page", PAGES)
def test_no_page_tells_a_tenant_of_another(
    as_acme: Callable[..., AppTest],
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    page: str,
) -> None:
    saved: list[bytes] = []
    monkeypatch.setattr(st, "download_button", lambda label, data, **_: saved.append(data))
    frame = Source(shop).window(None).frame
    theirs = str(keys(frame[frame["tenant"] == "initech"]).iloc[0]).partition("-")[0]
    middle = str(int(frame["arrived_ns"].median()) // 10**9)
    address = {
        "window": "all",
        "live": "false",
        "request": theirs,
        "offline": "other tenants",
        "changed": middle,
        "force": "true",
        "slo": "2",
    }
    test = as_acme(page, **address)
    if page == "tenants":
        test.toggle(key="report").set_value(True).run()
        assert not test.exception
        assert any(b"verdict" in one for one in saved)
    whole = b"".join([*sent(test.main), *sent(test.sidebar), *saved])
    assert len(whole) > 2_000
    for name in (*OTHER_NAMES, str(shop).encode()):
        assert name not in whole, name
    if page in ("overview", "request"):
        assert f"No request {theirs}, in this time window" in words(test)


@pytest.mark.parametrize("page", ["overview", "offline", "capacity", "health"])
def test_an_address_does_not_tell_whether_another_tenant_is_there(
    as_acme: Callable[..., AppTest], page: str
) -> None:
    said = [
        words(
            as_acme(
                page,
                window="all",
                live="false",
                tenant=name,
                offline=name,
                grow=name,
                request=f"tail-0216-{name}",
            )
        ).replace(name, "NAME")
        for name in ("umbrella", "nobodyxy")
    ]
    assert said[0] == said[1]


def test_errors_tell_a_tenant_nothing_of_the_machine(
    as_acme: Callable[..., AppTest], shop: Path, tmp_path: Path
) -> None:
    (shop / "requests" / "0000000009-0000000009.parquet").write_bytes(b"no parquet file")
    try:
        test = as_acme("overview", window="24h")
    finally:
        (shop / "requests" / "0000000009-0000000009.parquet").unlink()
    assert [one.value for one in test.error] == [
        "The data cannot be read now. The log of the app tells its operators why."
    ]


def test_a_tenant_sees_others_only_on_engines_that_it_uses() -> None:
    frame = recorded.frame()
    far = frame.assign(server="10.0.0.9:1", model="globex-lora", tenant="globex")
    both = pd.concat([frame, far], ignore_index=True)
    seen = masked(both, Viewer("acme"))
    assert len(seen) == len(frame)
    assert "globex-lora" not in set(seen["model"])
    assert set(seen["tenant"]) == {"acme", "other tenants"}
    assert masked(both, Viewer("nobody")).empty


def test_what_leaves_the_app_names_nobody_with_few_requests() -> None:
    rows = pd.DataFrame({"tenant": ["a", "b"], "requests": [5, 4]})
    assert list(export.anonymous(rows, rows["requests"])["tenant"]) == ["a"]
    tenants = pd.Series(["acme"] * 9 + ["bee"] * 5)
    few = export.rare(tenants, np.arange(14) >= 5)  # acme's first lie before the window
    shape = export.nameless({"acme": 1, "said": "tenant acme did; acmes not", "x": ["bee"]}, few)
    assert export.harmless('=HYPERLINK("http://x")') == '\'=HYPERLINK("http://x")'
    assert export.harmless(-1.0) == -1.0
    assert shape == {"hidden": 1, "said": "tenant hidden did; acmes not", "x": ["bee"]}


def test_what_is_shared_names_nobody_with_few_requests(open_page: Open, tmp_path: Path) -> None:
    rows = recorded.shifted(recorded.records(), ago=60)
    for row in [row for row in rows if row.role == "gateway"][:3]:
        row.tenant, row.request_id = "rare-co", "rare-co-1"
    store = recorded.store(tmp_path / "s", rows)
    open_ = open_page(store, window="all")
    assert "rare-co" in list(table(open_, "slot_share")["tenant"])
    shared = open_page(store, window="all", share="true")
    assert "rare-co" not in list(table(shared, "slot_share")["tenant"])
    assert "rare-co" not in words(shared)
    assert "rare-co" not in str([item.value.to_dict() for item in shared.dataframe])
    assert "acme" in list(table(shared, "slot_share")["tenant"])
