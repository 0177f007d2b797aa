"""What a case's launch says, for later nights to be compared with.

The launch of an example is written down: node 0 of run 1 on made-up hosts. Two nights differ
only where a file or an option has changed, wherever they ran.
"""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pytest_dlperf.launch.plan import example_nodes, run_dir
from pytest_dlperf.masking.secret_names import names_secret
from pytest_dlperf.model.measurement import LaunchFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_dlperf.launch.launchers import Engine
    from pytest_dlperf.masking.masker import Masker
    from pytest_dlperf.measure.case_launch import CaseLaunch

_PYTHON: Final = "{python}"


def launch_facts(launch: CaseLaunch, engine: Engine, masker: Masker) -> LaunchFacts:
    """Write down how a case is launched, as far as others may read it.

    A container is among the options; the arguments are the trainer's own.
    """
    case, variables, log = launch.case, launch.variables, launch.log(1).absolute()
    places = [(f"{{host{rank}}}", f"{{address{rank}}}") for rank in range(case.topology.nodes)]
    nodes = example_nodes(places, case, launch.scratch)
    bare = replace(launch, container=None, python=variables.python or _PYTHON)
    command = bare.commands(nodes, run=1, log=log)[0]
    window, container = launch.system.window, variables.container
    options = dict(engine.options(variables))
    if window.measured_steps:
        options["warmup_steps"] = (str(window.warmup_steps),)
        options["measured_steps"] = (str(window.measured_steps),)
    if container is not None:
        options["container.image"] = (container.image,)
        options["container.options"] = container.options
        if container.runtime is not None:
            options["container.runtime"] = (container.runtime.value,)
        if container.devices is not None:
            options["container.devices"] = container.devices
        if container.mounts is not None:
            options["container.mounts"] = tuple(
                f"{mount.source}:{mount.target}{':ro' * mount.read_only}"
                for mount in container.mounts
            )
    general = _generalised(
        (run_dir(log), "{run_directory}"),
        (launch.folder.absolute(), "{session_directory}"),
        (launch.system.file.parent.absolute(), "{system_directory}"),
        *((checkout, "{checkout}") for checkout in _checkouts(launch.system.file.parent)),
        (Path(sys.executable), _PYTHON),
    )
    folder = command.working_directory
    return LaunchFacts(
        launcher=engine.name,
        arguments=tuple(masker.arguments([*map(general, command.arguments)])),
        environment={
            name: masker.variable(name, general(value))
            for name, value in command.environment.items()
        },
        working_directory=None if folder is None else masker.script(general(folder)),
        options=dict(
            _masked_options({n: [*map(general, v)] for n, v in options.items() if v}, masker)
        ),
    )


def _masked_options(options: Mapping[str, list[str]], masker: Masker) -> Iterator[tuple[str, str]]:
    """Mask options, each by its own name too, which stands behind the last dot of a manifest's.

    There the arguments of a command are numbered, and its variables are below ``env``.
    """
    for parent, named in groupby(options, lambda name: name.rpartition(".")[0]):
        names = list(named)
        own = [name.rpartition(".")[2] for name in names]
        values = [options[name] for name in names]
        if all(map(str.isdigit, own)):
            masked = [[one] for one in masker.arguments([" ".join(value) for value in values])]
        elif parent.endswith(".env"):
            masked = [
                [masker.variable(name, " ".join(value))]
                for name, value in zip(own, values, strict=True)
            ]
        else:
            masked = [
                [masker.mask(" ".join(value))] if names_secret(name) else masker.arguments(value)
                for name, value in zip(own, values, strict=True)
            ]
        yield from zip(names, map(" ".join, masked), strict=True)


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
