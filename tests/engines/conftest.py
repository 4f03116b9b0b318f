from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave real engines out, unless asked for: they have to be installed first."""
    if config.getoption("--engines"):
        return
    left_out = [item for item in items if item.path.is_relative_to(HERE)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
