"""The version of this package, for those inside who write it down."""

__version__ = "0.1.0"
