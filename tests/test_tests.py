"""The rules for the tests themselves: they lie in the tree of the package, in short files that do not need each other."""

import ast
from pathlib import Path

import wior

TESTS = Path(__file__).parent
SHARED = TESTS / "shared"
PACKAGE = Path(wior.__file__).parent
FILES = sorted(TESTS.rglob("*.py"))


def imported(file):
    """The modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_the_files_are_found():
    assert len(FILES) > 80
    assert {"problems.py", "runs.py"} <= {file.name for file in SHARED.iterdir()}


def test_every_folder_has_the_name_of_a_folder_of_the_package():
    folders = {file.parent.relative_to(TESTS) for file in FILES if file.parent != SHARED}
    assert not [str(folder) for folder in folders if not (PACKAGE / folder).is_dir()]


def test_no_file_is_long():
    lengths = {str(file.relative_to(TESTS)): len(file.read_text().splitlines()) for file in FILES}
    assert not {name: length for name, length in lengths.items() if length > 500}


def test_nothing_is_imported_from_a_test_file():
    """What two files need lies in shared/, of which no module is a test file either."""
    tests = {file.stem for file in FILES if file.parent != SHARED} | {"tests"}
    found = [f"{file.name} imports {name}" for file in FILES for name in imported(file) if name.split(".")[0] in tests]
    assert not found
    assert not [file.name for file in SHARED.iterdir() if file.name.startswith(("test_", "conftest"))]
