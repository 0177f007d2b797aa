"""Imports follow the table of rooms in docs/architecture.md; a start imports nothing heavy."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "pytest_dlperf"


def rows(heading):
    """The cells of the first table below a line of the document, without its head."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    below = text.partition(f"\n{heading}")[2]
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert table is not None, f"no table follows {heading!r}"
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]
    ]


ROOMS = {
    room.strip("`"): set(re.findall(r"`(\w+)`", may_know)) for room, _, may_know in rows("## Rooms")
}


@cache
def modules():
    found = {}
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name:
            found[name] = file
    return found


@cache
def imports(file):
    """Every module that a file imports, anywhere in it, also for type checking only."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            module = node.module or ""
            own = module.split(".")[0] == "pytest_dlperf"
            found |= {f"{module}.{alias.name}" for alias in node.names} if own else {module}
    return found


@cache
def own_imports(name):
    found = set()
    for imported in imports(modules()[name]):
        if not imported.startswith("pytest_dlperf."):
            continue
        path = imported.removeprefix("pytest_dlperf.")
        target = path if path in modules() else path.rpartition(".")[0]
        if target and target != name:
            found.add(target)
    return found


def room_of(module):
    return module.split(".", maxsplit=1)[0]


def test_the_package_holds_the_rooms_of_the_document_and_no_loose_modules():
    assert {room_of(name) for name in modules()} == set(ROOMS)
    assert [file.name for file in PACKAGE.glob("*.py")] == ["__init__.py"]


def test_no_room_knows_a_room_above_it():
    below = set()
    for room, known in ROOMS.items():
        assert known <= below, f"{room} stands in the table before {known - below}"
        below.add(room)


def test_imports_go_where_the_table_lets_them():
    astray = [
        f"{name} imports {imported}"
        for name in modules()
        for imported in sorted(own_imports(name))
        if room_of(imported) != room_of(name) and room_of(imported) not in ROOMS[room_of(name)]
    ]
    assert astray == []


def test_no_modules_import_each_other_in_a_circle():
    TopologicalSorter({name: own_imports(name) for name in modules()}).prepare()


@pytest.mark.parametrize("name", [name for name in modules() if room_of(name) == "node"])
def test_what_is_sent_to_nodes_runs_on_any_python_there(name):
    file = modules()[name]
    ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 6))
    tops = {imported.split(".")[0] for imported in imports(file)}
    assert tops - {"pytest_dlperf"} <= sys.stdlib_module_names


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["--help", "--noconftest"], set()),
        (["bench_tests", "--collect-only", "-q"], {"yaml", "msgspec"}),
        (["tests/test_cases.py", "--collect-only", "-q"], {"msgspec"}),
    ],
    ids=["help", "collect", "collect-other-tests"],
)
def test_start_up_imports_nothing_heavy(arguments, allowed):
    program = (
        "import sys, pytest; pytest.main(sys.argv[1:]); "
        "print('IMPORTED', *sorted(m for m in sys.modules if '.' not in m))"
    )
    # pytest-benchmark and xdist import what they like: what counts is what this plugin adds.
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments, "-p", "no:benchmark", "-p", "no:xdist"],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(done.stdout.rpartition("IMPORTED")[2].split())
    assert "pytest_dlperf" in imported
    heavy = {"numpy", "yaml", "filelock", "torch", "matplotlib", "msgspec"}
    assert imported & heavy <= allowed


def test_pytest_compiles_no_module_of_the_package_anew():
    """As it does with a plugin's, to rewrite its asserts."""
    program = (
        "import sys, pytest; pytest.main(sys.argv[1:]); "
        "print('LOADERS', *{type(m.__loader__).__name__ for name, m in sys.modules.items() "
        "if name.startswith('pytest_dlperf.')})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "bench_tests", "--collect-only", "-ppytest_dlperf.plugin"],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.rpartition("LOADERS")[2].split() == ["SourceFileLoader"]
