"""Runs several commands of Tailscope together: each a process of its own, watched and ended."""
