"""NVIDIA NIM for LLMs: vLLM's names without a prefix, whatever runs inside.

Newer ones give vLLM's own families beside a few of theirs; those are read as vLLM's.
"""

from __future__ import annotations

from tailscope.catalogue.declare import PYTHON, ignore, to
from tailscope.catalogue.engines import vllm
from tailscope.catalogue.upstream import Engine, Lookup, Mark

UPSTREAM = (
    to("requests_running", "num_requests_running"),
    to("requests_waiting", "num_requests_waiting"),
    to("kv_cache_usage_ratio", "kv_cache_usage_perc", "gpu_cache_usage_perc"),
    to("prompt_tokens_total", "prompt_tokens"),
    to("generation_tokens_total", "generation_tokens"),
    # request_finish has the reasons; the two others only tell good from bad.
    to("requests_finished_total", "request_finish", labels={"finished_reason": "reason"}),
    to("requests_finished_total", "request_success", labels={"finished_reason": "reason"}),
    to("preemptions_total", "num_preemptions"),
    to("time_to_first_token_seconds", "time_to_first_token_seconds"),
    # As vLLM's of that name: it counts gaps between outputs, not requests.
    to(
        "inter_token_latency_seconds",
        "inter_token_latency_seconds",
        "time_per_output_token_seconds",
    ),
    to("request_seconds", "e2e_request_latency_seconds"),
    to("queue_seconds", "request_queue_time_seconds"),
    to("prefill_seconds", "request_prefill_time_seconds"),
    to("decode_seconds", "request_decode_time_seconds"),
    to("inference_seconds", "request_inference_time_seconds"),
    to("request_input_tokens", "request_prompt_tokens"),
    to("request_output_tokens", "request_generation_tokens"),
)

IGNORED = (
    PYTHON,
    ignore(r"http[_.].*", "the web server; knows no stages"),
    ignore(r"num_request_max", "the limit that it was started with"),
    ignore(r"request_failure(_total)?", "request_finish has the reasons"),
    ignore(r"gpu_(total_energy|utilization|memory|power|temperature).*", "the GPU source measures"),
    ignore(r"(system|go|promhttp)[_.].*", "the machine and the program, not the engine"),
)

ENGINE = Engine(
    name="nim",
    title="NVIDIA NIM",
    ports=(8000,),
    paths=("/v1/metrics", "/metrics"),
    prefixes=("",),
    recognise=(
        Mark("num_request_max"),
        # TensorRT-LLM has that name without a prefix too, and says what type of server it is.
        Mark("num_requests_running", lacks=("engine_type",)),
        Mark("gpu_cache_usage_perc"),
    ),
    layer=1,
    upstream=UPSTREAM,
    ignored=IGNORED,
    model_labels=("model_name",),
    model_at=(Lookup("/v1/models", ("data", 0, "id")),),
    passes_on=(vllm.ENGINE,),
    switch_on="they are on; see that the port is that of its API",
)
