"""Whose request it was: an ordered list of places where the tenant's name is; the first hit wins.

A rule is written ``KIND:KEY``. Where a source has no such place, the rule is passed over.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailscope.errors import UsageError
from tailscope.records.record import MAX_TEXT, RequestRecord

KINDS = {
    "span": "attribute of the span",
    "resource": "attribute of the resource",
    "tracestate": "key of the W3C trace state, which vLLM passes on",
    "header": "request header that the span's producer was told to record",
    "request-id": "regular expression; its first group is searched in the request id",
    "adapter": "LoRA adapter",
    "litellm": "LiteLLM's team, key, org, user or end-user",
    "label": "custom label of SGLang",
}
"""Where a tenant may be, by the word before the colon."""

TENANT_ATTRIBUTES = ("tailscope.tenant", "tenant.id", "tenant", "enduser.id")
"""Attributes of a span, or of its resource, that usually name the tenant."""

DEFAULT_RULES = (
    *(f"span:{name}" for name in TENANT_ATTRIBUTES[:-1]),
    *("litellm:team", "litellm:key", "label:tenant"),
    f"span:{TENANT_ATTRIBUTES[-1]}",
    *(f"resource:{name}" for name in TENANT_ATTRIBUTES),
)
"""What a request says of itself, then what its whole process says."""

_WITHOUT_KEY = {"adapter"}
_LITELLM = ("team", "key", "org", "user", "end-user")
_MIN_KEY = 16


@dataclass(frozen=True, slots=True)
class TenantRule:
    """One place.

    Attributes:
        kind: One of ``KINDS``.
        key: Its name there.
        pattern: Compiled, for a request id.
    """

    kind: str
    key: str
    pattern: re.Pattern[str] | None = None

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.kind}:{self.key}" if self.key else self.kind

    def of_record(self, request_id: str | None, adapter: str | None) -> str | None:
        """The tenant that lies in a column of the record."""
        if self.kind == "adapter":
            return adapter
        if self.pattern is not None and request_id is not None:
            hit = self.pattern.search(request_id)
            return hit[1] or None if hit else None
        return None


def parse_rules(flag: str, texts: Iterable[str]) -> tuple[TenantRule, ...]:
    """Read rules, best first.

    Raises:
        UsageError: If one is none.
    """
    return tuple(_rule(flag, text) for text in texts)


def _rule(flag: str, text: str) -> TenantRule:
    kind, _, key = text.partition(":")
    if kind not in KINDS or bool(key) == (kind in _WITHOUT_KEY):
        known = ", ".join(name if name in _WITHOUT_KEY else f"{name}:..." for name in KINDS)
        raise UsageError(f"{flag} {text}: write one of {known}")
    if kind == "litellm" and key not in _LITELLM:
        raise UsageError(f"{flag} {text}: LiteLLM has {', '.join(_LITELLM)}")
    if kind == "header":
        key = key.lower()
    pattern = None
    if kind == "request-id":
        try:
            pattern = re.compile(key)
        except re.error as error:
            raise UsageError(f"{flag} {text}: no regular expression: {error}") from None
        if pattern.groups != 1:
            raise UsageError(
                f"{flag} {text}: put the tenant's part in one group, as in request-id:^([a-z]+)-"
            )
    return TenantRule(kind, key, pattern)


def of_attributes(names: Sequence[str]) -> tuple[TenantRule, ...]:
    """Rules for attributes of the span, or else of its resource."""
    return tuple(TenantRule(kind, name) for kind in ("span", "resource") for name in names)


def tenant_of(
    rules: Sequence[TenantRule],
    look: Callable[[TenantRule], str | None],
    request_id: str | None,
    adapter: str | None,
) -> str | None:
    """Find the tenant.

    Args:
        rules: Best first.
        look: Returns what the source has at a rule's place.
        request_id: The client's id.
        adapter: LoRA adapter.
    """
    for rule in rules:
        found = rule.of_record(request_id, adapter) or look(rule)
        if found and len(found) <= MAX_TEXT:
            return found
    return None


class Pseudonyms:
    """Turns names into keyed hashes: the same name becomes the same one, and none leads back.

    Args:
        key: Secret of 16 bytes or more.
        rules: If the tenant lies in the request id or the adapter, these become pseudonyms too.
    """

    def __init__(self, key: bytes, rules: Sequence[TenantRule] = ()) -> None:
        self._key = key
        kinds = {rule.kind for rule in rules}
        self._ids = "request-id" in kinds
        self._adapters = "adapter" in kinds

    def name(self, text: str) -> str:
        """The pseudonym of a name: ``t-`` and 16 hexadecimal digits of its HMAC-SHA-256."""
        digest = hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"t-{digest.hexdigest()[:16]}"

    def veil(self, record: RequestRecord) -> None:
        """Replace the names in a record."""
        if record.tenant is not None:
            record.tenant = self.name(record.tenant)
        if self._ids and record.request_id is not None:
            record.request_id = self.name(record.request_id)
        if self._adapters and record.adapter is not None:
            record.adapter = self.name(record.adapter)


def read_pseudonyms(flag: str, path: str | None, rules: Sequence[TenantRule]) -> Pseudonyms | None:
    """Read the key of a file; None without one.

    Raises:
        UsageError: If there is no such file, or the key is short.
    """
    if not path:
        return None
    try:
        key = Path(path).read_bytes().strip()
    except OSError as error:
        raise UsageError(f"{flag} {path}: cannot be read: {error.strerror}") from None
    if len(key) < _MIN_KEY:
        raise UsageError(
            f"{flag} {path}: {len(key)} bytes; a key has {_MIN_KEY} or more: "
            f"`head -c 32 /dev/urandom | base64 > {path}`"
        )
    return Pseudonyms(key, rules)
