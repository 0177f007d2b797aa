"""Break the logic of the package in 71 places, one at a time, and see whether its tests notice.

    python benchmarks/mutations.py [--only WORD] [--jobs 2] [--list] [--root FOLDER]

``mutations.yaml`` lists the breaks. Each names a function, method or class of the package,
the code in it that is replaced, and the test files that should fail then. A copy of the checkout is
tested, never the checkout itself: first as it is, then with each break. ``--list`` only checks that
the table fits the code.

Exits with 1 if a break is alive that should be found, if tests fail without a break, or if an entry
does not fit the code.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HERE: Final = Path(__file__).resolve().parent
TABLE: Final = HERE / "mutations.yaml"
PACKAGE: Final = "pytest_dlperf"
PYTEST: Final = ("-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider")
MIN_LIMIT_S: Final = 120.0
LIMIT_RATIO: Final = 6.0
"""Tests of a break hang if they take so many times as long as without it."""


class TableError(Exception):
    """An entry of the table does not fit the code."""


@dataclass(frozen=True)
class Mutation:
    """An entry of the table."""

    place: str
    """The qualified name of a function, method or class: it may move to another file."""
    old: str
    """An expression or a statement in it; spelling does not matter, ``ast.unparse`` does."""
    new: str
    tests: tuple[str, ...]
    """Files in the folder of tests, without ``.py``."""
    room: str = ""
    """The folder of the package, where several have such a place with such code."""
    index: int | None = None
    """Which one of several, from 0."""
    harmless: str = ""
    """Why nothing has to find it."""

    def __str__(self) -> str:
        """Say it in a line."""
        return f"{self.place}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"


class Target(NamedTuple):
    """Where a mutation is in a checkout."""

    mutation: Mutation
    file: Path
    """Relative to the checkout."""
    node: ast.AST
    new: ast.AST

    @property
    def room(self) -> str:
        """The folder of the package that it is in."""
        return self.file.parts[1]


class Outcome(NamedTuple):
    """How tests ended."""

    result: str
    """``passed``, ``failed``, ``hung``, or what went wrong."""
    seconds: float
    detail: str = ""
    """The first test that failed, or the end of the output."""


def read_table(file: Path) -> list[Mutation]:
    """Read the table of breaks."""
    entries = yaml.safe_load(file.read_text(encoding="utf-8"))
    return [Mutation(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


# ------------------------------------------------------------------------ finding the places


class Code:
    """The modules of a checkout's package that hold the places of mutations."""

    def __init__(self, root: Path, mutations: Sequence[Mutation]) -> None:
        """Parse those modules that define a name such as the last part of a place."""
        self._root = root
        self._trees: dict[Path, ast.Module] = {}
        self._places: dict[str, list[tuple[Path, ast.AST]]] = {}
        names = "|".join({re.escape(each.place.rpartition(".")[2]) for each in mutations})
        defines = re.compile(rf"^ *(?:def|class) (?:{names})\b", re.MULTILINE)
        for file in sorted((root / PACKAGE).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            if defines.search(text):
                path = file.relative_to(root)
                tree = self._trees[path] = ast.parse(text)
                for name, node in definitions(tree.body):
                    self._places.setdefault(name, []).append((path, node))

    def target(self, mutation: Mutation) -> Target:
        """Find the place of a mutation.

        Raises:
            TableError: The place, the code in it or a test file is not there, or there are several.
        """
        for name in mutation.tests:
            if not (self._root / "tests" / f"{name}.py").exists():
                raise TableError(f"{mutation}: there is no tests/{name}.py")
        places = self._places.get(mutation.place, [])
        places = [each for each in places if mutation.room in ("", each[0].parts[1])]
        if not places:
            raise TableError(f"{mutation}: the package defines no such name")
        old, new = parsed(mutation.old), parsed(mutation.new)
        if isinstance(old, ast.expr) is not isinstance(new, ast.expr):
            old, new = statement(mutation.old), statement(mutation.new)
        wanted = ast.unparse(old)
        hits = [
            (path, node)
            for path, place in places
            for node in ast.walk(place)
            if type(node) is type(old) and ast.unparse(node) == wanted
        ]
        if mutation.index is not None:
            hits = hits[mutation.index : mutation.index + 1]
        if len(hits) != 1:
            files = ", ".join(sorted({str(path) for path, _ in places}))
            raise TableError(f"{mutation}: the old code stands {len(hits)} times in {files}")
        return Target(mutation, *hits[0], new)

    def broken(self, target: Target) -> str:
        """Give the text of a file with a break in it; comments are lost."""
        tree = self._trees[target.file]
        with_it = Replacing(target.node, target.new).visit(tree)
        text = ast.unparse(with_it)
        Replacing(target.new, target.node).visit(tree)
        return text


class Replacing(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        """Replace ``old`` by ``new``."""
        self._old = old
        self._new = new

    def visit(self, node: ast.AST) -> ast.AST:
        """Visit a node, and what is below it."""
        if node is self._old:
            return self._new
        return self.generic_visit(node)


def definitions(body: Sequence[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield functions, methods and classes, with their qualified names."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield prefix + node.name, node
            yield from definitions(node.body, f"{prefix}{node.name}.")


def parsed(text: str) -> ast.expr | ast.stmt:
    """Parse an expression, or else a statement."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return statement(text)


def statement(text: str) -> ast.stmt:
    """Parse a statement."""
    [node] = ast.parse(text.strip()).body
    return node


def targets(code: Code, mutations: Sequence[Mutation]) -> Iterator[Target | str]:
    """Yield the place of each mutation, or what is wrong with it."""
    for mutation in mutations:
        try:
            yield code.target(mutation)
        except TableError as error:  # noqa: PERF203 - each may fail by itself
            yield str(error)


# ------------------------------------------------------------------------ running the tests


def copy_of(root: Path, folder: Path) -> Path:
    """Copy what Git would commit of a checkout, and what it ignores not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    return folder


def run_tests(copy: Path, tests: Sequence[str], limit_s: float) -> Outcome:
    """Run test files of a copy, up to the first failure."""
    files = [f"tests/{name}.py" for name in tests]
    # Ahead of the checkout that is installed.
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *PYTEST, *files],
        cwd=copy,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return Outcome("hung", time.monotonic() - begun)
    seconds = time.monotonic() - begun
    lines = output.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED tests/", "ERROR tests/"))]
    detail = failed[0].partition(" ")[2].partition(" - ")[0] if failed else "\n".join(lines[-5:])
    # 2 is an error while tests are collected: a broken module may not even be imported.
    result = {0: "passed", 1: "failed", 2: "failed"}.get(process.returncode)
    return Outcome(result or f"exit code {process.returncode}", seconds, detail)


class Bench:
    """Copies of a checkout, one for each job, and what tests take without a break."""

    def __init__(self, root: Path, folder: Path, jobs: int) -> None:
        """Copy the checkout so many times."""
        self._copies: SimpleQueue[Path] = SimpleQueue()
        self._moments = itertools.count(int(time.time()))
        for job in range(jobs):
            self._copies.put(copy_of(root, folder / str(job)))

    def unbroken(self, tests: Sequence[str]) -> Outcome:
        """Run tests of the checkout as it is."""
        return self._with_copy(lambda copy: run_tests(copy, tests, 10 * MIN_LIMIT_S))

    def broken(self, target: Target, text: str, usual_s: float) -> Outcome:
        """Run the tests of a break while its file has this text."""
        limit_s = max(MIN_LIMIT_S, LIMIT_RATIO * usual_s)

        def run(copy: Path) -> Outcome:
            file = copy / target.file
            source = file.read_text(encoding="utf-8")
            self._write(file, text)
            try:
                return run_tests(copy, target.mutation.tests, limit_s)
            finally:
                self._write(file, source)

        return self._with_copy(run)

    def _write(self, file: Path, text: str) -> None:
        """Write a module, at a time that no byte code of it has: that tells seconds only."""
        file.write_text(text, encoding="utf-8")
        moment = next(self._moments)
        os.utime(file, (moment, moment))

    def _with_copy(self, run: Callable[[Path], Outcome]) -> Outcome:
        copy = self._copies.get()
        try:
            return run(copy)
        finally:
            self._copies.put(copy)


def check(code: Code, found: Sequence[Target], root: Path, jobs: int) -> int:
    """Run the tests of all breaks, print the table; return how many results are not as expected."""
    wrong = 0
    counts = {"found": 0, "hung": 0, "alive": 0}
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(jobs) as pool:
        bench = Bench(root, Path(name), jobs)
        sets = list(dict.fromkeys(target.mutation.tests for target in found))
        usual = dict(zip(sets, pool.map(bench.unbroken, sets), strict=True))
        for tests, outcome in usual.items():
            if outcome.result != "passed":
                wrong += 1
                print(f"without a break {', '.join(tests)} {outcome.result}: {outcome.detail}")
        sound = [each for each in found if usual[each.mutation.tests].result == "passed"]
        texts = [code.broken(each) for each in sound]
        limits = [usual[each.mutation.tests].seconds for each in sound]
        outcomes = pool.map(bench.broken, sound, texts, limits)
        for target, (result, seconds, detail) in zip(sound, outcomes, strict=True):
            said = {"passed": "alive", "failed": "found"}.get(result, result)
            counts[said] = counts.get(said, 0) + 1
            is_wrong = said not in ("found", "hung") and not target.mutation.harmless
            wrong += is_wrong
            by = f"  [{detail}]" if said == "found" else f"  ({target.mutation.harmless})"
            print(
                f"{said:6}{'!' if is_wrong else ' '}{seconds:5.1f} s  {target.room:10} "
                f"{target.mutation}{by if said == 'found' or target.mutation.harmless else ''}",
                flush=True,
            )
    print(", ".join(f"{count} {said}" for said, count in counts.items()))
    return wrong


def main() -> int:
    """Check the table, then the breaks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", metavar="WORD", help="breaks in whose line or room this stands")
    parser.add_argument("--list", action="store_true", help="only check that the table fits")
    parser.add_argument("--jobs", type=int, default=1, help="how many test at once (default: 1)")
    parser.add_argument("--root", type=Path, default=HERE.parent, help="another checkout to break")
    parser.add_argument("--table", type=Path, default=TABLE, help="another table")
    options = parser.parse_args()
    root = options.root.resolve()
    mutations = read_table(options.table)
    code = Code(root, mutations)
    told = list(targets(code, mutations))
    found = [each for each in told if isinstance(each, Target)]
    problems = [each for each in told if isinstance(each, str)]
    for problem in problems:
        print(f"does not fit: {problem}")
    if options.only:
        found = [each for each in found if options.only in f"{each.room} {each.mutation}"]
    if options.list:
        for target in found:
            print(f"{target.room:10} {target.mutation}  [{' '.join(target.mutation.tests)}]")
        return min(len(problems), 1)
    return min(len(problems) + check(code, found, root, options.jobs), 1)


if __name__ == "__main__":
    sys.exit(main())
