"""Errors of the store.

StoreError          it cannot be opened or written
+-- StoreLocked     another process writes into the directory
+-- StoreFull       too many rows wait for the disk: try again later
"""

from __future__ import annotations


class StoreError(Exception):
    """The store cannot be opened or written."""


class StoreLocked(StoreError):
    """Another process writes into the directory."""


class StoreFull(StoreError):
    """Too many rows wait for the disk: the caller is to try again later."""
