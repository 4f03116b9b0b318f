"""How a change is written down for the engine or the gateway at hand.

Texts are settings to copy, as the projects document them: vLLM, SGLang and llama.cpp by flag or
environment variable, TensorRT-LLM by key, LiteLLM and Envoy for what a gateway does. Where an
engine has no such setting, it has no text, and the gateway has to do it. Where a setting does not
quite do what was played, a remark behind it says so.
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
        "llamacpp": f"--parallel {requests}  # they share --ctx-size",
    }


def step_tokens(tokens: int) -> Recipe:
    """Tokens of one step at most."""
    return {
        "vllm": f"--max-num-batched-tokens {tokens}",
        "sglang": f"--chunked-prefill-size {tokens}",
        "trtllm": f"max_num_tokens: {tokens}  # with enable_chunked_prefill: true",
        "llamacpp": f"--batch-size {tokens}",
    }


def short_first(milliseconds: float) -> Recipe:
    """Short prompts first.

    Args:
        milliseconds: Of waiting that outweigh a token of the prompt.
    """
    send = f'# and send "priority": arrival in ms + {milliseconds:.2g} * prompt tokens'
    return {
        "vllm": f"--scheduling-policy priority  {send}",
        # Its requests take places of running ones from a difference of 10 on, unless told.
        "sglang": "--enable-priority-scheduling --schedule-low-priority-values-first "
        f"--priority-scheduling-preemption-threshold 1000000000  {send}",
    }


def lanes(requests: int, tokens: int) -> Recipe:
    """A lane for long prompts."""
    return {
        "gateway": tell(
            "requests of more than {tokens} prompt tokens: at most {n} at a time, the rest wait",
            tokens=tokens,
            n=requests,
        ),
        "litellm": f"max_parallel_requests: {requests}  "
        "# on the key that long prompts use; answers 429 to more, and the client has to wait",
    }


def tenant_cap(tenant: str, requests: int) -> Recipe:
    """Requests of one tenant at most."""
    return {
        "gateway": tell(
            "requests of {who}: at most {n} at a time, the rest wait", who=who(tenant), n=requests
        ),
        "litellm": f"max_parallel_requests: {requests}  "
        f"# on the key or team of {tenant}; answers 429 to more, and the client has to wait",
    }


def separate(tenant: str) -> Recipe:
    """An instance of its own for one tenant."""
    return {"gateway": tell("route {who} to an upstream of its own", who=who(tenant))}


def cache() -> Recipe:
    """The prefix cache at work again."""
    return {
        "vllm": "--enable-prefix-caching  # the default of V1",
        "sglang": "without --disable-radix-cache",
        "trtllm": "kv_cache_config: {enable_block_reuse: true}",
        "gateway": tell("keep the beginning of the prompt fixed; route by a hash of it"),
    }


def queue_timeout(seconds: float, prefill: float) -> Recipe:
    """Seconds in the queue at most.

    Args:
        seconds: In the queue.
        prefill: Seconds from there to the first token, which is what a gateway sees.
    """
    first = seconds + prefill
    return {
        "sglang": f"SGLANG_REQ_WAITING_TIMEOUT={seconds:.1f}",
        "litellm": f"stream_timeout: {first:.1f}  # until the first token, prefill included",
        "gateway": tell(
            "answer 429 with Retry-After if no first token came within {time}",
            time=f"{first:.1f} s",
        ),
    }


def generation_timeout(seconds: float, before: float) -> Recipe:
    """Seconds of generation at most.

    Args:
        seconds: From the first token on.
        before: Seconds before it, which the timeout of a gateway counts, too.
    """
    whole = seconds + before
    return {
        "sglang": f"SGLANG_REQ_RUNNING_TIMEOUT={seconds:.1f}",
        "litellm": f"timeout: {whole:.1f}  # of the whole call: queue and prefill come on top",
        "envoy": f"timeout: {whole:.1f}s  # of the route: queue and prefill come on top",
    }


def output_cap(tokens: int) -> Recipe:
    """Tokens of an answer at most."""
    return {
        "vllm": f"--override-generation-config '{{\"max_new_tokens\": {tokens}}}'",
        "llamacpp": f"--predict {tokens}",
        "gateway": tell("refuse or lower max_tokens above {n}", n=tokens),
    }


def input_cap(tokens: int) -> Recipe:
    """Tokens of a prompt at most."""
    return {
        "trtllm": f"max_input_len: {tokens}",
        "gateway": tell("refuse prompts of more than {n} tokens, or send them elsewhere", n=tokens),
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
        "gateway": tell(
            "without a first token after {time}: send it to a second upstream as well, pass on "
            "what answers first",
            time=f"{seconds:.1f} s",
        ),
        "envoy": f"retry_policy: {{retry_on: reset, num_retries: 1, per_try_timeout: "
        f"{seconds:.1f}s}}, hedge_policy: {{hedge_on_per_try_timeout: true}}  "
        "# counts to the response headers: some engines send these before the first token",
    }
