"""The sidecar: sources, normalise, store, collector, server."""
