"""What is left out of a page of dcgm-exporter, and why."""

from __future__ import annotations

import re

from tailscope.catalogue.model import Ignored


def _ignore(pattern: str, reason: str) -> Ignored:
    return Ignored(re.compile(pattern), reason)


_FI = "DCGM_FI_"

IGNORED: tuple[Ignored, ...] = (
    _ignore(r"(go|process|promhttp|dcgm_exporter)_.*", "the exporter's own health"),
    _ignore(_FI + r"DEV_(ENC|DEC)_UTIL(_RATIO)?", "video engines: no part of inference"),
    _ignore(_FI + r"DEV_VGPU_.*", "vGPU licences and instances"),
    _ignore(
        _FI + r"DEV_NVLINK_(BANDWIDTH|THROUGHPUT)_L\d+(_BYTES_PER_SECOND)?",
        "per link; the sum of them is mapped",
    ),
    _ignore(_FI + r"PROF_NVLINK_L\d+_(TX|RX)_BYTES", "per link; the sum of them is mapped"),
    _ignore(
        _FI + r"DEV_NVLINK_(COUNT_)?(CRC|REPLAY|RECOVERY|RX|TX|ECC|INTEGRITY|EFFECTIVE|SYMBOL|"
        r"PPCNT|PPRM|FEC|LOCAL|ERROR|GET_STATE|LINK_STATUS|P2P|LINK).*",
        "link errors and states: a fabric's health, not a stage of a request",
    ),
    _ignore(
        _FI + r"DEV_PCIE_(TX|RX)_THROUGHPUT", "deprecated: 20 ms samples in KB/s, called counters"
    ),
    _ignore(_FI + r"DEV_PCIE_(MAX_)?LINK_(GEN|WIDTH)", "a property of the slot"),
    _ignore(
        _FI + r"PROF_(PIPE_)?(FP64|FP32|FP16|INT|(TENSOR_)?(IMMA|HMMA|DFMA))_(ACTIVE|UTIL_RATIO)",
        "single pipes; tensor activity covers the one that matters to inference",
    ),
    _ignore(
        _FI + r"PROF_((NVDEC|NVJPG|NVOFA)\d*_.*|C2C_.*|(HOSTMEM|PEERMEM)_.*)",
        "video, chip-to-chip and cache detail",
    ),
    _ignore(
        _FI + r"PROF_.*_(CYCLES_(ELAPSED|ACTIVE)|BYTES)_TOTAL",
        "cumulative counters of the ratios and rates that are mapped",
    ),
    _ignore(_FI + r"DEV_LOW_UTIL_VIOLATION", "idleness is no reason"),
    _ignore(_FI + r"DEV_GPU_(LOW_UTIL|APP|BASE)_.*THROTTLE_SECONDS_TOTAL", "no reason, an effect"),
    _ignore(_FI + r"DEV_TOTAL_(APP|BASE)_CLOCKS_VIOLATION", "no reason, an effect"),
    _ignore(
        _FI + r"DEV_CLOCKS?_(EVENT|THROTTLE)_REASONS",
        "a bitmask of this moment; the counters of time miss nothing",
    ),
    _ignore(
        r"DCGM_EXP_(CLOCK_EVENTS|XID_ERRORS)_COUNT", "events in a window of the exporter's choice"
    ),
    _ignore(r"DCGM_EXP_CLOCK_EVENTS_TOTAL", "counts how often, not how long"),
    _ignore(r"DCGM_EXP_(GPU_HEALTH_STATUS|P2P_STATUS)", "DCGM's own verdict"),
    _ignore(_FI + r"DEV_ECC_(SBE|DBE)_AGG_TOTAL", "for life; the volatile counts are mapped"),
    _ignore(
        _FI + r"DEV_ECC_((SBE|DBE)_(VOL|AGG)_(L1|L2|DEV|REG|TEX|SHM|CBU|SRM)|MODE|CURRENT|PENDING)",
        "parts of the ECC totals, and the mode",
    ),
    _ignore(
        _FI + r"DEV_(RETIRED|PAGE_RETIRED)_(SBE|DBE|PENDING)(_TOTAL)?",
        "page retirement: before Ampere only; rows are remapped since",
    ),
    _ignore(
        _FI + r"DEV_(BANKS?_REMAP|SRAM|THRESHOLD)_.*", "memory repair detail beyond row remapping"
    ),
    _ignore(_FI + r"DEV_FB_USED_(RATIO|PERCENT)", "used over total"),
    _ignore(_FI + r"DEV_BAR1_.*", "the PCIe window onto the memory"),
    _ignore(
        _FI + r"DEV_(POWER_USAGE_INSTANT|BOARD_POWER_RAW_WATTS)",
        "an instant; power_watts is the mean of a second where the hardware gives one",
    ),
    _ignore(
        _FI + r"DEV_(POWER_MGMT_LIMIT|BOARD_POWER_LIMIT_(REQUESTED|MIN|MAX|DEFAULT)|"
        r"BOARD_POWER_PROFILE).*",
        "what is allowed; the limit that is enforced is mapped",
    ),
    _ignore(
        _FI + r"DEV_(SHUTDOWN_TEMP|GPU_TEMP_LIMIT|GPU_TEMP_(SHUTDOWN|MARGIN)_CELSIUS|"
        r"(GPU|MEM|MEMORY)_MAX_OP_TEMP(_CELSIUS)?)",
        "thresholds other than the one at which clocks go down",
    ),
    _ignore(
        _FI + r"DEV_(APP_(SM|MEM)_CLOCK|(SM|MEMORY)_APP_CLOCK_HERTZ|(MAX_)?VIDEO_CLOCK|"
        r"VIDEO_(MAX_)?CLOCK_HERTZ)",
        "clocks that were asked for, and those of video",
    ),
    _ignore(_FI + r"DEV_FAN_SPEED(_RATIO)?", "a fan"),
    _ignore(_FI + r"DEV_(GPU_)?PSTATE", "a step of a scale that differs by GPU"),
    _ignore(
        _FI + r"DEV_(GET_)?GPU_RECOVERY_ACTION",
        "off by default, and the codes differ by release; the NVML source has it",
    ),
    _ignore(
        _FI + r"DEV_(NVSWITCH|SXID|CPU|CONNECTX|C2C|FABRIC|PLATFORM|MODULE_POWER|SYSIO)_.*",
        "other devices than GPUs, and the fabric between them",
    ),
    _ignore(
        _FI + r"((SYSTEM|CUDA)_.*|DRIVER_VERSION|NVML_VERSION|PROCESS_NAME|"
        r"DEV_(NAME|GPU_NAME|BRAND|GPU_BRAND|(BOARD_)?SERIAL|(GPU_)?UUID|(GPU_)?MINOR_NUMBER|"
        r"NVML_INDEX|COUNT|.*INFOROM.*|VBIOS_VERSION|PCI_.*|(GPU_)?COMPUTE_MODE|"
        r"(GPU_)?PERSISTENCE_MODE|MIG_.*|CC_MODE|CUDA_.*|GPM_SUPPORT|DIAG_.*))",
        "facts that are labels, and modes",
    ),
)
