"""Who may see what. An operator sees every tenant; a tenant sees itself, and all others as one.

A file says so, by the e-mail address that the login has verified::

    operators = ["ann@example.com"]

    [tenants]
    "bob@example.com" = "acme"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tailscope.errors import UsageError


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


OPERATOR = Viewer()


@dataclass(frozen=True, slots=True)
class Roles:
    """What a file of roles says.

    Attributes:
        operators: E-mail addresses of those who see everything.
        tenants: E-mail address to the tenant that it may see.
    """

    operators: frozenset[str]
    tenants: dict[str, str]

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
        operators, tenants = given.get("operators", []), given.get("tenants", {})
        if not isinstance(operators, list) or not isinstance(tenants, dict):
            raise UsageError(
                f"--roles {path}: `operators` is a list of addresses, `tenants` a table of address "
                "to tenant"
            )
        return cls(
            frozenset(str(one).lower() for one in operators),
            {str(who).lower(): str(tenant) for who, tenant in tenants.items()},
        )

    def viewer(self, email: str) -> Viewer | None:
        """What an address may see; None if nothing."""
        name = email.lower()
        if name in self.operators:
            return OPERATOR
        return Viewer(self.tenants[name]) if name in self.tenants else None
