"""The request record, its durable store and its readers."""
