"""The methods the paper compares with, one file each."""

from wior.baselines.wir_bo import WiRBO

__all__ = ["WiRBO"]
