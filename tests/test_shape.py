"""The shape of the code: a module can be found by its name, functions are short, and so are their argument lists."""

import ast
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import wior

ROOT = Path(wior.__file__).parent
PACKAGES = ["wior", *(found.name for found in pkgutil.walk_packages(wior.__path__, "wior.") if found.ispkg)]
FILES = sorted(ROOT.rglob("*.py"))
MOST_LINES, MOST_ARGUMENTS = 60, 7
# each option of a command is an argument, with its help beside it
COMMANDS = {("cli.py", name) for name in ("clean", "verify", "demo", "reproduce", "run", "compare")}
# what users call with keywords, one for each choice that they have
FACADE = {
    ("label_cleaner.py", "__init__"),
    ("own_problem.py", "compare"),
    ("solve.py", "solve"),
    ("sweep.py", "sweep"),
    ("order_error.py", "order_error"),
}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_shadows_a_module_of_its_name(package):
    """`import wior.running.solve` is a module: what a package calls `solve` is its module `solve` or is not there."""
    home = importlib.import_module(package)
    inside = [found.name for found in pkgutil.iter_modules(home.__path__)]
    assert inside
    hidden = [name for name in inside if not isinstance(vars(home).get(name, home), ModuleType)]
    assert not hidden


def test_a_module_is_found_by_its_name():
    assert {"wior.running", "wior.algorithms.parts", "wior.cleaning.tables"} <= set(PACKAGES)
    import wior.running.solve

    assert isinstance(wior.running.solve, ModuleType)
    assert wior.running.solve.solve is wior.solve


def functions(file):
    """The functions of a file, those inside of others too."""
    return [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]


def lines_of(function):
    """How long a function is, without its docstring."""
    docstring = function.body[0] if ast.get_docstring(function) else None
    return function.end_lineno - function.lineno + 1 - (docstring.end_lineno - docstring.lineno + 1 if docstring else 0)


def arguments_of(function):
    taken = function.args
    names = [
        each.arg for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs, taken.vararg, taken.kwarg) if each
    ]
    return [name for name in names if name not in ("self", "cls")]


def test_no_function_is_long():
    found = [((file.name, function.name), lines_of(function)) for file in FILES for function in functions(file)]
    assert len(found) > 1000
    long = {place for place, lines in found if lines > MOST_LINES}
    assert not long - COMMANDS


def test_no_argument_list_is_long_inside():
    """Tasks are made by users too, and the data, sizes and constants of one are its arguments."""
    long = {
        (file.name, function.name)
        for file in FILES
        if file.parent.name != "tasks"
        for function in functions(file)
        if len(arguments_of(function)) > MOST_ARGUMENTS
    }
    assert long - COMMANDS == FACADE


def test_lines_and_arguments_are_counted():
    text = 'def f(a, /, b, *c, d, **e):\n    """Two\n    lines."""\n    return a\n'
    (function,) = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    assert lines_of(function) == 2
    assert arguments_of(function) == ["a", "b", "d", "c", "e"]
