"""``tailscope import``: files of request records into a store."""
