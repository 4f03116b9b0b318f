"""What a poller can read: one module a kind of source."""
