"""What a case's launch says, for later sessions to be compared with.

The launch of an example is written down: node 0 of run 1 on made-up hosts. Two sessions differ
only where a file or an option has changed, wherever they ran.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pytest_dlperf.files.masking import Digests, hide, hide_variables, hide_words
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Engine
from pytest_dlperf.launch.plan import example_nodes, run_dir
from pytest_dlperf.measure.case_launch import CaseLaunch
from pytest_dlperf.model.keys import words
from pytest_dlperf.model.measurement import LaunchFacts

_PYTHON: Final = "{python}"


def launch_facts(launch: CaseLaunch, engine: Engine, digests: Digests) -> LaunchFacts:
    """Write down how a case is launched, as far as others may read it.

    A container is among the options; the arguments are the trainer's own.
    """
    case, log = launch.case, launch.log(1).absolute()
    general = _generalised(
        (run_dir(log), "{run_directory}"),
        (launch.folder.absolute(), "{session_directory}"),
        (launch.system.file.parent.absolute(), "{system_directory}"),
        *((checkout, "{checkout}") for checkout in _checkouts(launch.system.file.parent)),
        (Path(sys.executable), _PYTHON),
    )
    variables = launch.published_variables(lambda word: digests.of_word(general(word)))
    hosts = [
        Host(name=f"{{host{rank}}}", address=f"{{address{rank}}}")
        for rank in range(case.topology.nodes)
    ]
    nodes = example_nodes(hosts, case, launch.scratch)
    bare = replace(launch, container=None, python=variables.python or _PYTHON, variables=variables)
    command = bare.commands(nodes, run=1, log=log)[0]
    window, container = launch.system.window, variables.container
    options = dict(engine.options(variables))
    if window.measured_steps:
        options["warmup_steps"] = (str(window.warmup_steps),)
        options["measured_steps"] = (str(window.measured_steps),)
    if container is not None:
        runtime = () if container.runtime is None else (container.runtime.value,)
        options["container.image"], options["container.runtime"] = (container.image,), runtime
        for key in ("mounts", "devices", "options"):
            options[f"container.{key}"] = words(getattr(container, key))
    folder = command.working_directory
    said = {name: " ".join(hide_words([*map(general, v)])) for name, v in options.items() if v}
    return LaunchFacts(
        launcher=engine.name,
        arguments=tuple(hide_words([*map(general, command.arguments)])),
        environment=hide_variables({k: general(v) for k, v in command.environment.items()}),
        working_directory=None if folder is None else hide(general(folder)),
        # A secret is known by what stands behind the last dot.
        options={
            name: hide_variables({name.rpartition(".")[2]: text})[name.rpartition(".")[2]]
            for name, text in said.items()
        },
    )


def _checkouts(system_directory: Path) -> Iterator[Path]:
    """Find what the system files and the current folder are a checkout of: CI makes them anew."""
    for folder in (system_directory.absolute(), Path.cwd()):
        above = (folder, *folder.parents)
        yield from [one for one in above if (one / ".git").exists() and one.name][:1]


def _generalised(*named: tuple[Path, str]) -> Callable[[str], str]:
    """Give what replaces paths by their names in a text, the deepest first."""
    names: dict[str, str] = {}
    for path, name in named:
        names.setdefault(str(path), name)
    paths = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    expression = re.compile(rf"(?<![\w./-])(?:{paths})(?![\w.-])")
    return lambda text: expression.sub(lambda found: names[found[0]], text)
