"""The pages: each queries, calls the triage and draws."""
