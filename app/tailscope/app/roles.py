"""Who may see what. An operator sees every tenant; a tenant sees itself, and all others as one.

A file says so, by the e-mail address that the login has verified::

    operators = ["ann@example.com"]

    [tenants]
    "bob@example.com" = "acme"

or by another claim of the login, which may hold several values::

    claim = "groups"
    operators = ["sre"]

    [tenants]
    "team-acme" = "acme"
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tailscope.errors import UsageError
from tailscope.triage.phrase import OTHERS, UNKNOWN


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who looks at the pages.

    Attributes:
        tenant: The tenant that alone is named; None for an operator.
        sharing: Whether what is seen is to be shown to others: tenants with few requests are then
            not named.
    """

    tenant: str | None = None
    sharing: bool = False

    @property
    def operator(self) -> bool:
        """Whether this one may see everything."""
        return self.tenant is None


OPERATOR = Viewer()
EMAIL = "email"
"""The claim that is looked at where the file names none."""


@dataclass(frozen=True, slots=True)
class Roles:
    """What a file of roles says.

    Attributes:
        operators: E-mail addresses, or other values of the claim, of those who see everything.
        tenants: Value of the claim to the tenant that it may see.
        claim: The claim of the login that says who somebody is.
    """

    operators: frozenset[str]
    tenants: dict[str, str]
    claim: str = EMAIL

    @classmethod
    def read(cls, path: Path) -> Roles:
        """Read the file.

        Raises:
            UsageError: If it cannot be read or has another shape.
        """
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"--roles {path}: it is no readable TOML file ({error})") from None
        if unknown := set(given) - {"operators", "tenants", "claim"}:
            raise UsageError(
                f"--roles {path}: {min(unknown)} is no key of it; there are claim, operators and "
                "tenants"
            )
        operators, tenants = given.get("operators", []), given.get("tenants", {})
        claim = given.get("claim", EMAIL)
        if not isinstance(claim, str) or not claim:
            raise UsageError(f"--roles {path}: claim = {claim!r}: it is a name such as groups")
        if taken := {OTHERS, UNKNOWN} & set(map(str, tenants.values())):
            raise UsageError(
                f"--roles {path}: {min(taken)!r} stands for requests of others; it is no tenant "
                "that somebody may be"
            )
        if not isinstance(operators, list) or not isinstance(tenants, dict):
            raise UsageError(
                f"--roles {path}: `operators` is a list of addresses, `tenants` a table of address "
                "to tenant"
            )
        return cls(
            frozenset(str(one).lower() for one in operators),
            {str(who).lower(): str(tenant) for who, tenant in tenants.items()},
            claim,
        )

    def viewer(self, values: Iterable[str]) -> Viewer | None:
        """What somebody may see; None if nothing.

        Args:
            values: What the login says of the claim. Those of several tenants see none of them.
        """
        names = {value.lower() for value in values}
        if names & self.operators:
            return OPERATOR
        tenants = {self.tenants[name] for name in names if name in self.tenants}
        return Viewer(tenants.pop()) if len(tenants) == 1 else None
