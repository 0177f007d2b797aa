"""The rooms of the package import in one direction, and heavy packages have one home each."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "pytest_dlperf"

# From the bottom to the top: a room imports from the rooms above it in this list only. Rooms of
# one line stand side by side and do not import each other.
LEVELS = (
    (
        "cases",
        "numeric",
        "yamlfile",
        "databasehead",
        "locks",
        "environment",
        "fingerprint",
        "repeats",
    ),
    ("measurement", "yamlschema"),
    ("logs", "workloads"),
    ("launch",),
    ("systems", "baselines", "option_source"),
    ("measure", "gate"),
    ("session", "options"),
    ("launchers", "accepting", "results"),
    ("history",),
    ("reports",),
    ("suite", "hookspecs", "publish"),
    ("fixtures", "finish"),
    ("outcomes",),
    ("plugin", "command"),
)
HOMES = {
    "numpy": {"numeric"},
    "yaml": {"yamlfile"},
    "filelock": {"locks"},
    "torch": {"workloads.resnet"},
    "pytest": {
        "option_source",
        "options",
        "hookspecs",
        "fixtures",
        "outcomes",
        "plugin",
        "command.project",
    },
    "_pytest": set(),
    "pytest_benchmark": {"reports.benchmark_bridge"},
    "xdist": set(),
    "sqlite3": {"history.faults", "history.opening"},
    "jsonschema": {"results.reading"},
    "jinja2": {"reports.html.render"},
    "otava": {"history.change_points"},
}


def modules() -> dict[str, Path]:
    found = {}
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name:
            found[name] = file
    return found


def imports(file: Path) -> set[str]:
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


def own_imports(name: str, file: Path) -> set[str]:
    known = modules()
    found = set()
    for imported in imports(file):
        if not imported.startswith("pytest_dlperf."):
            continue
        path = imported.removeprefix("pytest_dlperf.")
        target = path if path in known else path.rpartition(".")[0]
        if target and target != name:
            found.add(target)
    return found


def level(name: str) -> int:
    room = name.split(".", maxsplit=1)[0]
    return next(index for index, rooms in enumerate(LEVELS) if room in rooms)


@pytest.mark.parametrize(("name", "file"), modules().items(), ids=modules())
def test_imports_go_down(name: str, file: Path) -> None:
    for imported in own_imports(name, file):
        same_room = imported.split(".")[0] == name.split(".", maxsplit=1)[0]
        assert same_room or level(imported) < level(name), f"{name} imports {imported}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    TopologicalSorter({name: own_imports(name, file) for name, file in modules().items()}).prepare()


@pytest.mark.parametrize("package", HOMES)
def test_each_heavy_package_has_one_home(package: str) -> None:
    homes = {
        name
        for name, file in modules().items()
        if any(imported.split(".")[0] == package for imported in imports(file))
    }
    assert homes == HOMES[package]


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["--help"], set()),
        (["bench_tests", "--collect-only", "-q"], {"yaml"}),
        (["tests/test_cases.py", "--collect-only", "-q"], {"yaml"}),
    ],
    ids=["help", "collect", "collect-other-tests"],
)
def test_start_up_imports_nothing_heavy(arguments: list[str], allowed: set[str]) -> None:
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
    assert imported & {"numpy", "yaml", "filelock", "torch", "matplotlib"} <= allowed
