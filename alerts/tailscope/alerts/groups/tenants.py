"""One tenant's load that harms the others. From request records: without them it is silent."""

from __future__ import annotations

from dataclasses import replace

from tailscope.alerts.model import Alert, Group, PanelLink, Recording, Severity
from tailscope.alerts.queries import LONG, REQUESTS, SHORT
from tailscope.alerts.thresholds import Limits
from tailscope.catalogue.promql import compare, difference, every, share

_TENANT = (*REQUESTS, "tenant")
_SLOTS = "tenant_slot_seconds_total"

SHARE = Recording(
    "tenant:tailscope_tenant_slot_seconds:share_rate10m",
    share(LONG.rate(_SLOTS, _TENANT), LONG.rate(_SLOTS, REQUESTS), REQUESTS),
    "Share of the time in the batch by tenant, over 10 minutes.",
    _TENANT,
)

_PAST = f"avg_over_time({SHARE.name}[6h] offset 1h)"
# A tenant that was not there at all had a share of 0, if there was any past to be in.
_KNOWN_PAST = f"{_PAST}\nor (0 * {SHARE.name} and on ({', '.join(REQUESTS)}) {_PAST})"
_HARM = replace(SHORT, by=REQUESTS).mean("request_stage_seconds", match={"stage": "queue"})


def _noisy(limits: Limits) -> Alert:
    return Alert(
        name="TailscopeNoisyTenant",
        severity=Severity.WARNING,
        cause="tenant_load",
        expr=every(
            every(
                # "other" stands for many tenants, "unknown" for none in particular.
                compare(
                    f'{SHARE.name}{{tenant!~"other|unknown|"}}', ">", limits.tenant_share.value
                ),
                compare(difference(SHARE.name, _KNOWN_PAST), ">", limits.tenant_growth.value),
                on=_TENANT,
            ),
            compare(_HARM, ">", limits.tenant_harm.value),
            on=REQUESTS,
        ),
        lasts="10m",
        labels=_TENANT,
        summary="{{ .Labels.tenant }} takes most of {{ .Labels.server }}, and others wait",
        description="{{ .Labels.tenant }} held {{ .Value | humanizePercentage }} of the batch of "
        "{{ .Labels.server }} ({{ .Labels.model }}) over 10 minutes, "
        f"at least {limits.tenant_growth.value * 100:g} points above its mean of the 6 hours "
        f"before the last one, while requests wait more than {limits.tenant_harm.seconds} on "
        "average.",
        panel=PanelLink("tailscope-triage", 601),
    )


def group(limits: Limits) -> Group:
    """Return the rules."""
    return Group("tailscope-tenants", (_noisy(limits),), (SHARE,))
