"""Experiments: flat files with their settings at the top."""
