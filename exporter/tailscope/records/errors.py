"""Errors of the store.

StoreError          it cannot be opened or written
+-- StoreLocked     another process writes into the directory
+-- StoreFull       too many rows wait for the disk: try again later
+-- StoreUnfit      rows that the table cannot hold: trying again does not help
"""

from __future__ import annotations


class StoreError(Exception):
    """The store cannot be opened or written."""


class StoreLocked(StoreError):
    """Another process writes into the directory."""


class StoreFull(StoreError):
    """Too many rows wait for the disk: the caller is to try again later."""


class StoreUnfit(StoreError):
    """The rows do not fit the table; the text never quotes them."""
