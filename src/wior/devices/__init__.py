"""A run on many devices and many hosts."""
