"""Instruments, which measure problems, methods and orders."""
