"""LiteLLM's spans, of its first and its second OpenTelemetry integration.

The first writes who called as ``metadata.user_api_key_*``, the second as ``litellm.*``. Seen in
LiteLLM 1.110.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from tailscope.catalogue.spans.genai import (
    ATTRIBUTES,
    FINISH_REASON,
    MARKS,
    NO_REQUEST,
    OUTCOMES,
)
from tailscope.catalogue.spans.model import SpanKind

KIND = SpanKind(
    source="litellm",
    role="gateway",
    marks=(
        MARKS,
        (
            *("litellm.call_id", "litellm.team.id", "litellm.team.alias", "litellm.api_key.hash"),
            *("metadata.user_api_key_alias", "metadata.user_api_key_team_alias"),
            *("metadata.user_api_key_team_id", "metadata.user_api_key_hash"),
        ),
    ),
    attributes=MappingProxyType({**ATTRIBUTES, "gen_ai.response.id": "request_id"}),
    without=NO_REQUEST,
    patterns=MappingProxyType(
        {
            "finish_reason": FINISH_REASON,
            # The response's id is the engine's, in a frame that names the endpoint.
            "request_id": (re.compile(r"(?:chatcmpl-|cmpl-)?(.+)"),),
        }
    ),
    outcomes=OUTCOMES,
    places=MappingProxyType(
        {
            "litellm:team": (
                *("litellm.team.alias", "metadata.user_api_key_team_alias"),
                *("litellm.team.id", "metadata.user_api_key_team_id"),
            ),
            "litellm:key": (
                *("litellm.metadata.user_api_key_alias", "litellm.api_key.alias"),
                "metadata.user_api_key_alias",
            ),
            "litellm:org": (
                *("litellm.metadata.user_api_key_org_id", "metadata.user_api_key_org_id"),
            ),
            "litellm:user": (
                *("litellm.metadata.user_api_key_user_id", "metadata.user_api_key_user_id"),
            ),
            "litellm:end-user": (
                *("litellm.end_user.id", "litellm.metadata.user_api_key_end_user_id"),
                "metadata.user_api_key_end_user_id",
            ),
        }
    ),
)
