"""Packages that only one logger needs, imported when that logger is made."""

from __future__ import annotations

import importlib
from types import ModuleType


def imported(package: str, logger: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"wior.loggers.{logger} needs the package {package} ({error}): pip install 'wior[loggers]'", name=package
        ) from None
