"""A run: arguments checked, planned, compiled, driven."""
