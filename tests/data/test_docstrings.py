"""The examples in the documentation of `wior.data` give what they say."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import wior.data

MODULES = [module.name for module in pkgutil.iter_modules(wior.data.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(f"wior.data.{name}")).failed == 0


def test_every_public_function_has_arguments_result_and_example():
    functions = [getattr(wior.data, name) for name in wior.data.__all__]
    functions = [function for function in functions if inspect.isfunction(function)]
    assert len(functions) >= 12
    for function in functions:
        text = inspect.getdoc(function)
        for section in ("Parameters\n---", "Returns\n---", "Examples\n---", ">>> "):
            assert section in text, f"{function.__name__} lacks {section}"
        described = {name for line in text.splitlines() if " : " in line for name in line.split(" : ")[0].split(", ")}
        assert set(inspect.signature(function).parameters) <= described, function.__name__
