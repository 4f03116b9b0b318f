"""Figures, not verdicts: ``make bench``."""
