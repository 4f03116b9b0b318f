"""A worker of NVIDIA Dynamo: its engine's own families, passed on, and a few of its runtime.

Recorded from Dynamo 1.6.1. The page is there when ``DYN_SYSTEM_PORT`` is set. The engine's own
port, if it has one, tells the same once more: read one of the two.
"""

from __future__ import annotations

from tailscope.catalogue.declare import ignore, to
from tailscope.catalogue.engines import sglang, trtllm, vllm
from tailscope.catalogue.upstream import Engine, Mark

UPSTREAM = (
    # 0 to 1, whatever the name says. kvstats_: until 0.6.
    to("kv_cache_usage_ratio", "gpu_cache_usage_percent", "kvstats_gpu_cache_usage_percent"),
)

IGNORED = (
    ignore(
        r"dynamo_component_(?!.*gpu_cache_usage_percent).*",
        "the runtime's own counts; the engine's families say more exactly",
    ),
    ignore(
        r"dynamo_(work_handler|request|engine|rejection|tokio|transport|request_plane|event_plane"
        r"|router|kvindexer)_.*",
        "the runtime's own health",
    ),
    ignore(r"kvbm_.*", "blocks that the block manager moves between its tiers"),
)

ENGINE = Engine(
    name="dynamo_worker",
    title="NVIDIA Dynamo worker",
    ports=(8081, 9090),
    prefixes=("dynamo_component_",),
    recognise=(Mark("uptime_seconds"), Mark("requests"), Mark("inflight_requests")),
    layer=1,
    upstream=UPSTREAM,
    ignored=IGNORED,
    model_labels=("model", "model_name"),
    rank_label="dp_rank",
    passes_on=(vllm.ENGINE, sglang.ENGINE, trtllm.ENGINE),
    switch_on="set DYN_SYSTEM_PORT=8081 (before 0.7 DYN_SYSTEM_ENABLED=true as well)",
)
