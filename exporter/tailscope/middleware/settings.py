"""Settings of the middleware, all from the environment, for servers take only its name."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

log = logging.getLogger("tailscope.middleware")

ENDPOINT = "http://127.0.0.1:4318/v1/traces"
PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"),
    *("/v1/embeddings", "/generate", "/chat/completions", "/completions", "/responses"),
)
TENANT_HEADERS = ("x-tenant-id", "x-tenant")
SESSION_HEADERS = ("idempotency-key", "x-session-id")
ATTEMPT_HEADERS = ("x-stainless-retry-count", "x-envoy-attempt-count", "x-retry-attempt")
ZERO_BASED = ("x-stainless-retry-count",)
"""Headers that count the retries before, not the attempts."""

_SECRET = ("authorization", "api-key", "apikey", "cookie", "token", "secret")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings.

    Attributes:
        endpoint: URL of the exporter's OTLP over HTTP.
        tenant_headers: Headers that name the tenant, best first, in lower case.
        session_headers: Headers with a key that the attempts of one call share.
        attempt_headers: Headers with the number of the attempt.
        paths: Paths whose requests are recorded; those that begin with one of them are, too, if a
            ``*`` ends it.
        buffer: Records that wait for the exporter at most.
        interval: Seconds from one batch to the next.
    """

    endpoint: str = ENDPOINT
    tenant_headers: tuple[str, ...] = TENANT_HEADERS
    session_headers: tuple[str, ...] = SESSION_HEADERS
    attempt_headers: tuple[str, ...] = ATTEMPT_HEADERS
    paths: tuple[str, ...] = PATHS
    buffer: int = 20_000
    interval: float = 1.0


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings. One that is of no use is told in the log, and its default holds."""
    usual = Settings()
    return Settings(
        endpoint=_endpoint(environment.get("TAILSCOPE_MIDDLEWARE_ENDPOINT"), usual.endpoint),
        tenant_headers=_headers(environment, "TAILSCOPE_TENANT_HEADER", usual.tenant_headers),
        session_headers=_headers(environment, "TAILSCOPE_SESSION_HEADER", usual.session_headers),
        attempt_headers=_headers(environment, "TAILSCOPE_ATTEMPT_HEADER", usual.attempt_headers),
        paths=_list(environment.get("TAILSCOPE_MIDDLEWARE_PATHS")) or usual.paths,
        buffer=int(_number(environment, "TAILSCOPE_MIDDLEWARE_BUFFER", usual.buffer)),
        interval=_number(environment, "TAILSCOPE_MIDDLEWARE_INTERVAL_SECONDS", usual.interval),
    )


def _list(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _headers(environment: Mapping[str, str], name: str, usual: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(map(str.lower, _list(environment.get(name)))) or usual
    for header in found:
        if any(word in header for word in _SECRET):
            log.warning("%s: %s holds a secret, not a name; it is not read", name, header)
    return tuple(header for header in found if not any(word in header for word in _SECRET))


def _number(environment: Mapping[str, str], name: str, usual: float) -> float:
    text = environment.get(name)
    if not text:
        return usual
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if 0 < number < 1e7:
        return number
    log.warning("%s=%s: give a number above 0; %g is taken", name, text, usual)
    return usual


def _endpoint(text: str | None, usual: str) -> str:
    if not text:
        return usual
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        log.warning("TAILSCOPE_MIDDLEWARE_ENDPOINT is no URL such as %s, which is taken", usual)
        return usual
    return text if parts.path.strip("/") else f"{text.rstrip('/')}/v1/traces"
