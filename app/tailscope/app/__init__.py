"""The triage app: pages that query, call the triage and draw. And the same verdict as a command."""
