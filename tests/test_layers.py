"""Imports point one way: the layers of the package, lowest first."""

import ast
from pathlib import Path

import wior
from wior import orders, problems

# a module imports from its own layer's package and from those before it; those of one line do not import each other
LAYERS = (
    ("figures", "streaming", "tree", "version"),
    ("checks",),
    ("orders",),
    ("problems",),
    ("oracle",),
    ("algorithms",),
    ("baselines",),
    ("devices",),
    ("saving",),
    ("loggers",),
    ("running",),
    ("instruments",),
    ("stop",),
    ("data", "tasks"),
    ("cleaning", "experiments"),
    ("cli",),
)
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
ROOT = Path(wior.__file__).parent


def imported(file):
    """The first names below `wior` that a file imports, at the top or inside of functions."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "wior":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("wior."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (
                alias.name.split(".")[1] if "." in alias.name else ""
                for alias in node.names
                if alias.name.split(".")[0] == "wior"
            )


def own_layer(file):
    return file.relative_to(ROOT).with_suffix("").parts[0]


def test_every_room_has_a_layer():
    rooms = {own_layer(file) for file in ROOT.rglob("*.py")} - {"__init__"}
    assert rooms == set(HEIGHT)


def test_imports_point_down():
    found = [
        f"{file.relative_to(ROOT)} imports {name or 'wior itself'}"
        for file in ROOT.rglob("*.py")
        if own_layer(file) != "__init__"
        for name in imported(file)
        if name != own_layer(file) and (name not in HEIGHT or HEIGHT[name] >= HEIGHT[own_layer(file)])
    ]
    assert not found, "\n".join(found)


def test_few_modules_lie_loose():
    assert len(list(ROOT.glob("*.py"))) <= 6


# what runs a method knows orders and problems by what they can do; the façade's own examples in docstrings are not code
ENGINE = [*(ROOT / "running").rglob("*.py"), *(ROOT / "streaming").rglob("*.py"), ROOT / "oracle" / "tally.py"]
DEFAULTS = {("solve.py", "RandomReshuffling"), ("sweep.py", "RandomReshuffling")}


def named(text):
    """Every name that a program imports or uses."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def test_the_engine_knows_no_order_and_no_problem_class_by_name():
    concrete = {type(order).__name__ for order in orders.BY_NAME.values()} | {
        kind.__name__ for kind in problems.CLASSES
    }
    assert {"Herding", "RandomReshuffling", "Bilevel", "ConditionalBilevel"} <= concrete
    assert set(named("from wior.orders import Herding\nproblems.Bilevel")) >= {"Herding", "Bilevel"}
    assert len(ENGINE) > 15
    found = {(file.name, name) for file in ENGINE for name in named(file.read_text()) if name in concrete}
    assert found == DEFAULTS
