"""What grafanalib 0.7.1 writes and no present Grafana reads: dropped here, in one place."""

from __future__ import annotations

from typing import Any, Final

_KEPT_NULL: Final = "value"
"""The one key that means something when it is null: the base of thresholds."""

_HEATMAP_LEGACY: Final = (
    "cards", "color", "dataFormat", "heatmap", "hideZeroBuckets", "highlightCards", "legend",
    "reverseYBuckets", "tooltip", "xAxis", "xBucketNumber", "xBucketSize", "yAxis",
    "yBucketBound", "yBucketNumber", "yBucketSize",
)  # fmt: skip
"""What grafanalib writes for a panel that Grafana dropped in version 9."""
_LEGACY: Final = {
    "": ("editable", "error", "hideTimeOverride", "transparent"),
    "heatmap": _HEATMAP_LEGACY,
    "table": ("color", "columns", "fontSize", "mappings"),
    "row": ("datasource", "fieldConfig", "links", "maxDataPoints", "targets", "transformations"),
}
"""Keys that no present Grafana reads, by type of panel; "" stands for every type."""
_BOARD_LEGACY: Final = (
    "__inputs", "gnetId", "hideControls", "id", "rows", "sharedCrosshair", "style", "timepicker",
    "version",
)  # fmt: skip


def current_panel(panel: dict[str, Any]) -> dict[str, Any]:
    """Return the panel without keys and nulls that Grafana 10.4 and later do not know."""
    dropped = (*_LEGACY[""], *_LEGACY.get(panel["type"], ()))
    kept: dict[str, Any] = prune({k: v for k, v in panel.items() if k not in dropped})
    if panel["type"] == "table":
        kept["fieldConfig"]["defaults"]["custom"].pop("displayMode", None)
    return kept


def current_board(board: dict[str, Any]) -> dict[str, Any]:
    """Return the board without keys and nulls that Grafana 10.4 and later do not know."""
    kept: dict[str, Any] = prune({k: v for k, v in board.items() if k not in _BOARD_LEGACY})
    return kept


def prune(value: Any) -> Any:
    """Return the JSON value without nulls, which Grafana's types do not allow."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if item is not None or key == _KEPT_NULL}
        return {key: prune(item) for key, item in kept.items()}
    return [prune(item) for item in value] if isinstance(value, list) else value
