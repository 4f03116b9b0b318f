"""GPU: what the hardware does beside the engine, and what holds it back."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from tailscope.catalogue.promql import age, compare, difference, ratio, total
from tailscope.dashboards.board import Board, Row
from tailscope.dashboards.panels import stat, table, timeseries
from tailscope.dashboards.query import NOW, RANGE, SCOPE, Series
from tailscope.dashboards.style import ANY, Unit
from tailscope.dashboards.variables import GPU

_CHOSEN: Final = MappingProxyType({**SCOPE, "gpu": "~$gpu"})
_NOW: Final = replace(NOW, where=_CHOSEN)
_RANGE: Final = replace(RANGE, where=_CHOSEN)
_GPU: Final = ("instance", "gpu")
_NAME: Final = "{{instance}} {{gpu}}"
_SENSOR: Final = (*_GPU, "sensor")
_SM: Final = {"domain": "sm"}
_SPEED: Final = ratio(
    _NOW.gauge("gpu_clock_hertz", _GPU, _SM), _NOW.gauge("gpu_clock_max_hertz", _GPU, _SM)
)
_LINKS: Final = ("pcie", "nvlink")
_WAYS: Final = (("sent", "tx"), ("received", "rx"))

REGIME: Final = Row(
    100,
    "What limits it: compute, memory bandwidth, or neither?",
    (
        timeseries(
            101,
            "SM active (mean)",
            "Share of the cycles in which the multiprocessors had work. High here and low on the "
            "right is compute-bound, as in prefill. Low while requests wait: the engine stalls.",
            Unit.RATIO,
            Series(_NAME, _NOW.time_mean("gpu_sm_active_ratio", _GPU)),
            top=1,
        ),
        timeseries(
            102,
            "Memory bandwidth active (mean)",
            "Share of the cycles in which memory moved data. High here with low SM activity is "
            "bandwidth-bound, as in decode: a larger batch or quantised weights help, a clock "
            "does not.",
            Unit.RATIO,
            Series(_NAME, _NOW.time_mean("gpu_dram_active_ratio", _GPU)),
            top=1,
        ),
        timeseries(
            103,
            "Tensor cores active (mean)",
            "Share of the cycles in which the tensor cores worked: the useful part of SM activity. "
            "Low while SM activity is high: kernels that do not use them, or small batches.",
            Unit.RATIO,
            Series(_NAME, _NOW.time_mean("gpu_tensor_active_ratio", _GPU)),
            top=1,
        ),
        timeseries(
            104,
            "Time per output token, and SM clock over its maximum",
            "If the clock falls and the time per token rises with it, the GPU is the cause: see "
            "the next row for the reason. If only the time rises, look at board 4.",
            Unit.SECONDS,
            Series("mean", NOW.mean("request_time_per_output_token_seconds", ())),
            Series(
                f"clock {_NAME}",
                _SPEED,
            ),
            right={"^clock .*": Unit.RATIO},
            width=12,
        ),
        timeseries(
            105,
            "Apart: highest less lowest SM activity of one machine",
            "How unevenly the GPUs of one machine work. Large while the engine spans them: one of "
            "them is slow and the others wait for it; compare clocks and temperatures.",
            Unit.RATIO,
            Series(
                "{{instance}}",
                difference(
                    f"max by (instance) ({_NOW.time_mean('gpu_sm_active_ratio', _GPU)})",
                    f"min by (instance) ({_NOW.time_mean('gpu_sm_active_ratio', _GPU)})",
                ),
            ),
            top=1,
            width=12,
        ),
    ),
)

THROTTLE: Final = Row(
    200,
    "Is it held back?",
    (
        timeseries(
            201,
            "Time held back, by reason",
            "Share of the time for which clocks were held down. Power caps are usual under load; "
            "thermal reasons and the power brake are not: check cooling and power first.",
            Unit.RATIO,
            Series(
                f"{_NAME} {{{{reason}}}}",
                _NOW.rate("gpu_throttled_seconds_total", (*_GPU, "reason")),
            ),
        ),
        timeseries(
            202,
            "SM clock over its maximum",
            "1 is full speed. Steadily low without a reason on the left: somebody has set an "
            "application clock; reset it.",
            Unit.RATIO,
            Series(
                _NAME,
                _SPEED,
            ),
            top=1,
        ),
        timeseries(
            203,
            "Power over its limit",
            "Near 1 the clock is held down to stay within the limit. Raise the limit if the rack "
            "allows it; else expect longer prefills.",
            Unit.RATIO,
            Series(
                _NAME,
                ratio(
                    _NOW.gauge("gpu_power_watts", _GPU), _NOW.gauge("gpu_power_limit_watts", _GPU)
                ),
            ),
        ),
        timeseries(
            204,
            "Degrees left to the slowdown",
            "Temperature at which the hardware slows down, less the present one. Under 5 the next "
            "long prefill throttles: improve the airflow, or move load away.",
            Unit.CELSIUS,
            Series(
                f"{_NAME} {{{{sensor}}}}",
                difference(
                    _NOW.gauge("gpu_slowdown_temperature_celsius", _SENSOR),
                    _NOW.gauge("gpu_temperature_celsius", _SENSOR),
                ),
            ),
            lowest=None,
            width=12,
        ),
        timeseries(
            205,
            "Temperature",
            "By sensor. Memory is often the hotter one and has its own limit; a GPU that is hotter "
            "than its neighbours sits badly in the air stream.",
            Unit.CELSIUS,
            Series(f"{_NAME} {{{{sensor}}}}", _NOW.gauge("gpu_temperature_celsius", _SENSOR)),
            width=12,
        ),
    ),
)

HEALTH: Final = Row(
    300,
    "Is it well?",
    (
        stat(
            301,
            "GPUs that were lost",
            "GPUs that were seen and cannot be read any more. Above 0: the machine has to be "
            "drained; see the XID events on the right.",
            Unit.COUNT,
            Series("lost", total(compare(_NOW.vector("gpu_up"), "== bool", 0))),
            state=True,
            limits=ANY,
            height=6,
        ),
        stat(
            302,
            "Rows that wait for a reset",
            "GPUs with memory rows to be replaced at the next reset. Above 0: plan a reset; until "
            "then errors may come back.",
            Unit.COUNT,
            Series("pending", total(_NOW.gauge("gpu_remap_pending", _GPU))),
            state=True,
            limits=ANY,
            height=6,
        ),
        table(
            303,
            "XID events in the time range",
            "What the driver reported, by code and by the action that it asks for. restart_app is "
            "a program's fault; reset_gpu and restart_node mean that the GPU has to be drained.",
            ("instance", "gpu", "xid", "action"),
            (
                Series(
                    "Events",
                    compare(
                        _RANGE.increase("gpu_xid_errors_total", (*_GPU, "xid", "action")), ">", 0
                    ),
                ),
                Unit.COUNT,
            ),
            width=16,
            height=6,
        ),
        timeseries(
            304,
            "Memory errors",
            "Corrected ones cost nothing but announce the others. Uncorrected ones end programs: "
            "reset the GPU, and replace it if they come back.",
            Unit.PER_SECOND,
            Series(f"{_NAME} {{{{type}}}}", _NOW.rate("gpu_ecc_errors_total", (*_GPU, "type"))),
        ),
        timeseries(
            305,
            "Replaced memory rows",
            "Rows that were replaced for good. A number that grows is a GPU that ages: plan its "
            "replacement.",
            Unit.COUNT,
            Series(f"{_NAME} {{{{type}}}}", _NOW.gauge("gpu_remapped_rows", (*_GPU, "type"))),
        ),
        timeseries(
            306,
            "PCIe packets sent again",
            "A link that loses packets. Steadily above 0: reseat the card or its riser; it slows "
            "every copy from and to the host.",
            Unit.PER_SECOND,
            Series(_NAME, _NOW.rate("gpu_pcie_replays_total", _GPU)),
        ),
    ),
)

MEMORY: Final = Row(
    400,
    "Memory and links",
    (
        timeseries(
            401,
            "Memory in use",
            "Share of the memory. Engines take most of it at the start, so it says little of the "
            "load: for that see the key-value cache on board 4. A step up is a second program.",
            Unit.RATIO,
            Series(
                _NAME,
                ratio(
                    _NOW.gauge("gpu_memory_used_bytes", _GPU),
                    _NOW.gauge("gpu_memory_total_bytes", _GPU),
                ),
            ),
            top=1,
        ),
        *(
            timeseries(
                402 + number,
                f"{name} traffic",
                f"Bytes over {name}, sent and received, from the counters where the hardware has "
                "them. Near what the link can do, transfers between GPUs or to the host are the "
                "limit: place the engine's ranks closer together.",
                Unit.BYTES_PER_SECOND,
                *(
                    Series(f"{word} {_NAME}", _NOW.rate(f"gpu_{link}_{way}_bytes_total", _GPU))
                    for word, way in _WAYS
                ),
            )
            for number, (name, link) in enumerate(zip(("PCIe", "NVLink"), _LINKS, strict=True))
        ),
        *(
            timeseries(
                404 + number,
                f"{name} traffic, from rates",
                f"The same where the hardware tells only a rate of {name}. A rate read once a "
                "second misses bursts: prefer the counters where both are there.",
                Unit.BYTES_PER_SECOND,
                *(
                    Series(
                        f"{word} {_NAME}", _NOW.gauge(f"gpu_{link}_{way}_bytes_per_second", _GPU)
                    )
                    for word, way in _WAYS
                ),
                width=12,
            )
            for number, (name, link) in enumerate(zip(("PCIe", "NVLink"), _LINKS, strict=True))
        ),
    ),
)

FACTS: Final = Row(
    500,
    "Which GPUs, and who reads them",
    (
        table(
            501,
            "GPUs",
            "What the machines hold. Different drivers under one model explain different speeds: "
            "bring them to one version.",
            ("instance", "gpu", "model_name", "driver", "mig", "pci_bus_id"),
            (
                Series(
                    "",
                    _NOW.gauge("gpu_info", (*_GPU, "model_name", "driver", "mig", "pci_bus_id")),
                ),
                Unit.COUNT,
            ),
            width=16,
            height=5,
        ),
        table(
            502,
            "Where the readings come from",
            "Activity from GPM or DCGM, health from NVML or DCGM. A GPU without a line for "
            "activity is too old for GPM: run dcgm-exporter beside it and name it with --dcgm-url.",
            ("instance", "gpu", "readings", "source"),
            (
                Series("", _NOW.gauge("gpu_source_info", (*_GPU, "readings", "source"))),
                Unit.COUNT,
            ),
            width=8,
            height=5,
        ),
        timeseries(
            503,
            "Since the last XID event",
            "Time since the driver last reported anything of the GPU. Small right after a slow "
            "spell: the GPU had a part in it.",
            Unit.SECONDS,
            Series(_NAME, age(_NOW.gauge("gpu_xid_last_timestamp_seconds", _GPU))),
            width=24,
        ),
    ),
)

BOARD = Board(
    uid="tailscope-gpu",
    title="Tailscope / 5 GPU",
    description="When the engine is slow and its load does not say why: throttling, bandwidth, "
    "a lost or a sick GPU. Empty panels: the exporter sees no GPU, or the GPU lacks that reading.",
    rows=(REGIME, THROTTLE, HEALTH, MEMORY, FACTS),
    variables=(GPU,),
)
