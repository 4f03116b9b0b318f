"""The flags that say where the tenant is, for every command that takes records in."""

from __future__ import annotations

import argparse

from tailscope.errors import UsageError
from tailscope.records.tenancy import (
    DEFAULT_RULES,
    KINDS,
    Pseudonyms,
    TenantRule,
    of_attributes,
    parse_rules,
    read_pseudonyms,
)


def configure_tenants(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--tenant-rule",
        action="append",
        metavar="KIND:KEY",
        help=f"where the tenant is: {', '.join(KINDS)}; may be given several times, best first "
        f"(default {' '.join(DEFAULT_RULES)})",
    )
    parser.add_argument(
        "--tenant-attribute",
        action="append",
        metavar="NAME",
        help="span attribute, or else resource attribute, that names the tenant; may be given "
        "several times, best first; instead of --tenant-rule",
    )
    parser.add_argument(
        "--tenant-hash-key-file",
        metavar="FILE",
        help="turn tenants into keyed pseudonyms before anything is stored or published; the file "
        "holds the key, 16 bytes or more",
    )


def parse_tenants(
    arguments: argparse.Namespace,
) -> tuple[tuple[TenantRule, ...], Pseudonyms | None]:
    """Check the flags.

    Raises:
        UsageError: If a rule is none, both ways are mixed, or the key cannot be read.
    """
    rules, attributes = arguments.tenant_rule, arguments.tenant_attribute
    if rules and attributes:
        raise UsageError(
            f"--tenant-attribute {attributes[0]}: does not go with --tenant-rule, for their order "
            f"would not be known; write --tenant-rule span:{attributes[0]}"
        )
    if attributes:
        found = of_attributes(attributes)
    else:
        found = parse_rules("--tenant-rule", rules or DEFAULT_RULES)
    key = arguments.tenant_hash_key_file
    return found, read_pseudonyms("--tenant-hash-key-file", key, found)
