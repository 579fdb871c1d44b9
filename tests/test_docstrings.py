"""Every public name says what it takes, what it returns, and shows an example; the examples run as doctests."""

import inspect
import re
from types import ModuleType

import pytest

import wior
from wior import algorithms, baselines, loggers, orders, problems, stop, streaming, tasks

MODULES = (wior, algorithms, baselines, loggers, orders, problems, stop, streaming, tasks)
SECTION = re.compile(r"^(\w[\w ]*)\n(-{3,})$", re.MULTILINE)


def public():
    """The classes and functions that the modules export, by name."""
    found = {name: getattr(module, name) for module in MODULES for name in module.__all__}
    return {name: value for name, value in found.items() if inspect.isclass(value) or inspect.isfunction(value)}


PUBLIC = public()


def sections(docstring):
    """The text of each section of a numpydoc docstring, by its heading; what comes before the first is ''."""
    heads = list(SECTION.finditer(docstring))
    ends = [*(head.start() for head in heads), len(docstring)]
    texts = {head[1]: docstring[head.end() : end] for head, end in zip(heads, ends[1:], strict=True)}
    return {"": docstring[: ends[0]], **texts}


def described(section):
    """The names that a section of parameters describes: `name : type` or `name, other` without indentation."""
    lines = [line for line in section.splitlines() if line and not line.startswith(" ")]
    return {name.strip(" *") for line in lines for name in line.split(" : ")[0].split(",")}


def arguments(value):
    """The names of what a function or a constructor takes."""
    if inspect.isclass(value) and issubclass(value, BaseException) and value.__init__ is value.__base__.__init__:
        return set()  # raised by the library, with a message
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name for name, taken in inspect.signature(value).parameters.items() if taken.kind not in kinds}


def missing(value):
    """What the docstring of a class or of a function lacks."""
    docstring = value.__doc__ or ""
    if inspect.isclass(value):
        docstring = inspect.cleandoc(docstring)
        if docstring.startswith(f"{value.__name__}("):  # what dataclasses and named tuples write themselves
            return ["a docstring"]
    parts = sections(inspect.cleandoc(docstring))
    lacks = [] if parts[""].strip() else ["a summary"]
    taken = described(parts.get("Parameters", "")) | described(parts.get("Attributes", ""))
    lacks += [f"the parameter {name}" for name in sorted(arguments(value) - taken)]
    returns = inspect.isfunction(value) and value.__annotations__.get("return") not in (None, "None")
    if returns and not parts.get("Returns", "").strip():
        lacks.append("Returns")
    if ">>> " not in parts.get("Examples", ""):
        lacks.append("an example")
    return lacks


def members(kind):
    """The public methods and properties that a class defines itself."""
    for name, value in vars(kind).items():
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, (property, classmethod))):
            yield name, value


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_is_documented(name):
    assert missing(PUBLIC[name]) == []


@pytest.mark.parametrize("name", sorted(name for name in PUBLIC if inspect.isclass(PUBLIC[name])))
def test_methods_of_a_public_class_are_documented(name):
    assert [method for method, value in members(PUBLIC[name]) if not inspect.getdoc(value)] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_public_modules_are_documented(module):
    assert isinstance(module, ModuleType)
    assert module.__doc__.strip()


def test_a_docstring_without_its_parts_is_found():
    def half(first, second, *rest) -> int:
        """Half of it.

        Parameters
        ----------
        first : int
            The first.
        """

    assert missing(half) == ["the parameter second", "Returns", "an example"]

    def bare(first) -> None:
        pass

    assert missing(bare) == ["a summary", "the parameter first", "an example"]
