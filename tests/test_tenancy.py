"""Tenant rules and pseudonyms."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tailscope.errors import UsageError
from tailscope.records.reader import Reader
from tailscope.records.record import RequestRecord
from tailscope.records.tenancy import (
    DEFAULT_RULES,
    Pseudonyms,
    TenantRule,
    parse_rules,
    tenant_of,
)
from tailscope.records.tenantflags import configure_tenants, parse_tenants
from tests.otlp import NOW_NS, PROTOBUF, message, span
from tests.process import exporter, run, until
from tests.test_privacy import Told

KEY = b"0123456789abcdef-key"


def flags(*arguments: str) -> tuple[tuple[TenantRule, ...], Pseudonyms | None]:
    parser = argparse.ArgumentParser()
    configure_tenants(parser)
    return parse_tenants(parser.parse_args(arguments))


@pytest.mark.parametrize(
    "text",
    ["span", "span:", "adapter:x", "colour:x", "litellm:boss", "request-id:(", "request-id:a", ""],
)
def test_what_is_no_rule_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--tenant-rule"):
        flags("--tenant-rule", text)


def test_rules_and_their_order() -> None:
    assert [rule.text for rule in flags()[0]] == list(DEFAULT_RULES)
    rules, _ = flags("--tenant-rule", "adapter", "--tenant-rule", "header:X-Team")
    assert [rule.text for rule in rules] == ["adapter", "header:x-team"]
    rules, _ = flags("--tenant-attribute", "a", "--tenant-attribute", "b")
    assert [rule.text for rule in rules] == ["span:a", "span:b", "resource:a", "resource:b"]
    with pytest.raises(UsageError, match="write --tenant-rule span:a"):
        flags("--tenant-attribute", "a", "--tenant-rule", "adapter")


def test_the_first_hit_wins() -> None:
    rules = parse_rules("", ["span:a", "request-id:^(\\w+)-", "adapter", "span:b"])

    def tenant(request_id: str | None, adapter: str | None, **spans: str) -> str | None:
        return tenant_of(rules, lambda rule: spans.get(rule.key), request_id, adapter)

    assert tenant("acme-1", "lora", a="x") == "x"
    assert tenant("acme-1", "lora", b="y") == "acme"
    assert tenant("acme", "lora", b="y") == "lora"
    assert tenant(None, None, b="y") == "y"
    assert tenant(None, "l" * 300, b="y") == "y", "a text as long as that is no name"
    assert tenant(None, None) is None


def test_pseudonyms_are_stable_and_keyed() -> None:
    one = Pseudonyms(KEY)
    assert one.name("acme") == Pseudonyms(KEY).name("acme")
    assert len({one.name("acme"), one.name("Acme"), Pseudonyms(KEY + b"x").name("acme")}) == 3
    assert one.name("acme").startswith("t-")
    assert len(one.name("acme")) == 18
    record = RequestRecord("x", "gateway", NOW_NS, tenant="acme", request_id="acme-1")
    record.adapter = "acme"
    one.veil(record)
    assert (record.request_id, record.adapter) == ("acme-1", "acme")
    hidden = RequestRecord("x", "gateway", NOW_NS, request_id="acme-1", adapter="acme")
    Pseudonyms(KEY, parse_rules("", ["request-id:^(a)", "adapter"])).veil(hidden)
    assert hidden.tenant is None
    assert "acme" not in repr(hidden)
    assert hidden.adapter == one.name("acme")


def test_a_key_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        flags("--tenant-hash-key-file", str(tmp_path / "none"))
    (tmp_path / "short").write_text("short\n")
    with pytest.raises(UsageError, match=r"5 bytes; a key has 16 or more: .*urandom"):
        flags("--tenant-hash-key-file", str(tmp_path / "short"))


def test_no_name_is_stored_or_published(tmp_path: Path) -> None:
    """By spans, a followed file and an import; all of them come to the same pseudonym."""
    (tmp_path / "key").write_bytes(KEY + b"\n")
    rows = tmp_path / "rows.jsonl"
    rows.write_text(f'{{"arrived_ns": {NOW_NS}, "tenant": "canarykey", "request_id": "f"}}\n')
    own = ("--data", str(tmp_path / "data"), "--tenant-hash-key-file", str(tmp_path / "key"))
    with exporter(
        tmp_path / "log", *own, "--engine", "http://127.0.0.1:1", "--requests", str(rows)
    ) as running:
        told = Told(running, tmp_path / "data")
        body = message([span(1, tenant="canarykey")]).SerializeToString()
        assert told.post(body, PROTOBUF) == 200
        name = Pseudonyms(KEY).name("canarykey")

        def counted() -> bool:
            return sum(running.values("requests_total", tenant=name)) == 2

        until(counted, "both are counted under the pseudonym")
        assert "canarykey" not in running.get()
        assert running.stop() == 0
        assert "canarykey" not in running.log
    imported = run("import", *own, str(rows))
    assert imported.returncode == 0, imported.stderr
    frame = Reader(tmp_path / "data").requests()
    assert set(frame["tenant"]) == {name}
    assert len(frame) == 2, "what is imported once more is the same row"
    for path in (tmp_path / "data").rglob("*"):
        assert not path.is_file() or b"canarykey" not in path.read_bytes()
