"""Instruments that look at a problem before or after a run."""
