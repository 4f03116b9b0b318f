"""No prompt, key, address or header value reaches the store, a page or the log."""
