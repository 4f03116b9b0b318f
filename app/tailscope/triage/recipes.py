"""How a change is written down for the engine or the gateway at hand.

Texts are settings to copy, as the projects document them: vLLM and SGLang by flag or environment
variable, TensorRT-LLM by key, LiteLLM and Envoy for what a gateway does. Where an engine has no
such setting, it has no text, and the gateway has to do it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailscope.triage.phrase import tell, who

GATEWAYS = ("litellm", "envoy", "gateway")
"""Recipes that do not depend on the engine."""

Recipe = dict[str, str]


def at_hand(recipe: Mapping[str, str], engines: set[str]) -> Recipe:
    """Recipes for the engines of the records, and for gateways; all if the engines are unknown."""
    return {
        name: text
        for name, text in recipe.items()
        if name in GATEWAYS or name in engines or not engines
    }


def batch(requests: int) -> Recipe:
    """Requests in the batch at most."""
    return {
        "vllm": f"--max-num-seqs {requests}",
        "sglang": f"--max-running-requests {requests}",
        "trtllm": f"max_batch_size: {requests}",
    }


def step_tokens(tokens: int) -> Recipe:
    """Tokens of one step at most."""
    return {
        "vllm": f"--max-num-batched-tokens {tokens}",
        "sglang": f"--chunked-prefill-size {tokens}",
        "trtllm": f"max_num_tokens: {tokens}",
    }


def short_first() -> Recipe:
    """Short prompts first."""
    return {
        "vllm": '--scheduling-policy priority  # and send "priority": prompt tokens / 100',
        "sglang": "--enable-priority-scheduling --schedule-low-priority-values-first  "
        '# and send "priority": prompt tokens / 100',
    }


def lanes(requests: int, tokens: int) -> Recipe:
    """A lane for long prompts."""
    return {
        "gateway": tell(
            "requests of more than {tokens} prompt tokens: at most {n} at a time",
            tokens=tokens,
            n=requests,
        ),
        "litellm": f"max_parallel_requests: {requests}  # on the key that long prompts use",
    }


def tenant_cap(tenant: str, requests: int) -> Recipe:
    """Requests of one tenant at most."""
    return {"litellm": f"max_parallel_requests: {requests}  # on the key or team of {tenant}"}


def separate(tenant: str) -> Recipe:
    """An instance of its own for one tenant."""
    return {"gateway": tell("route {who} to an upstream of its own", who=who(tenant))}


def cache() -> Recipe:
    """The prefix cache at work again."""
    return {
        "vllm": "--enable-prefix-caching",
        "gateway": tell("keep the beginning of the prompt fixed; route by a hash of it"),
    }


def queue_timeout(seconds: float) -> Recipe:
    """Seconds in the queue at most."""
    return {
        "sglang": f"SGLANG_REQ_WAITING_TIMEOUT={seconds:.1f}",
        "litellm": f"stream_timeout: {seconds:.1f}  # until the first token",
        "gateway": tell(
            "answer 429 with Retry-After if no first token came within {time}",
            time=f"{seconds:.1f} s",
        ),
    }


def generation_timeout(seconds: float) -> Recipe:
    """Seconds of generation at most."""
    return {
        "sglang": f"SGLANG_REQ_RUNNING_TIMEOUT={seconds:.1f}",
        "litellm": f"timeout: {seconds:.1f}",
        "envoy": f"timeout: {seconds:.1f}s  # of the route; it holds for the whole request",
    }


def output_cap(tokens: int) -> Recipe:
    """Tokens of an answer at most."""
    return {
        "vllm": f"--override-generation-config '{{\"max_new_tokens\": {tokens}}}'",
        "gateway": tell("refuse or lower max_tokens above {n}", n=tokens),
    }


def input_cap(tokens: int) -> Recipe:
    """Tokens of a prompt at most."""
    return {
        "gateway": tell("refuse prompts of more than {n} tokens, or send them elsewhere", n=tokens)
    }


def no_retries() -> Recipe:
    """One attempt."""
    return {
        "litellm": "num_retries: 0",
        "envoy": "retry_policy: {retry_on: reset, num_retries: 1}",
        "gateway": tell(
            "retry only what failed before its first token, after a growing random pause"
        ),
    }


def replica() -> Recipe:
    """One engine more."""
    return {
        "gateway": tell("add an upstream of the same model; balance by least requests"),
        "litellm": "routing_strategy: least-busy  # with a second entry of the model",
    }


def hedging(seconds: float) -> Recipe:
    """A second try beside the first."""
    return {
        "envoy": f"retry_policy: {{retry_on: reset, num_retries: 1, per_try_timeout: "
        f"{seconds:.1f}s}}, hedge_policy: {{hedge_on_per_try_timeout: true}}",
    }
