"""Entry point of the pages: routes, and nothing else."""

from __future__ import annotations

from tailscope.app import pages

pages.show()
