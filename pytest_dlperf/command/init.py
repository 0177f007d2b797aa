"""``pytest-dlperf init``: writes the smallest suite that runs, from a folder and its machine."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.shell import Style, file_argument, path_argument, text_argument
from pytest_dlperf.command.training_log import identify_log, run_once
from pytest_dlperf.config.extends import comment_of, shipped_systems
from pytest_dlperf.config.systems import doubts_in, system_of_text
from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.launch.hosts import parse_hosts
from pytest_dlperf.masking.masker import MASKER
from pytest_dlperf.model.case import NAME_PATTERN
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.numbers import counted
from pytest_dlperf.night.texts import printable
from pytest_dlperf.survey.drafting import (
    BY_THREE_LINES,
    PRINTED_BY_US,
    DraftBasis,
    draft,
    trains_on_cpus,
)
from pytest_dlperf.survey.own_command import read_command
from pytest_dlperf.survey.surroundings import (
    Machine,
    commands_below,
    is_installed,
    is_program_of,
    look_at_machine,
    prints_steps,
    system_of_script,
    systems_below,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_dlperf.config.systems import System
    from pytest_dlperf.launch.hosts import Host
    from pytest_dlperf.survey.identifying import Identification
    from pytest_dlperf.survey.own_command import OwnCommand

SYSTEMS: Final = Path("bench_tests/systems")
_IGNORED: Final = """\
# This machine's own numbers, and locks.
/local/
/*/.lock
"""
_MAX_TRIAL_S: Final = 120
_WORKFLOWS: Final = {
    "github": {
        "github-nightly.yml": ".github/workflows/dlperf-nightly.yml",
        "github-watch.yml": ".github/workflows/dlperf-watch.yml",
    },
    "gitlab": {"gitlab-ci.yml": ".gitlab-ci.yml"},
    "jenkins": {"Jenkinsfile": "Jenkinsfile"},
    "buildkite": {"buildkite.yml": ".buildkite/pipeline.yml"},
    "slurm": {"slurm-nightly.sh": "slurm-nightly.sh"},
}
"""By CI, which file of ``examples`` goes where."""
_EXAMPLES: Final = tuple(Path(__file__).parents[up] / "examples" for up in (1, 2))
"""In the installed package, or in a checkout of it."""
_LINES: Final = (
    "from pytest_dlperf.trainers import StepLog",
    "log = StepLog({facts})  # in front of the loop",
    "log.step(loss=loss)  # behind each optimizer.step()",
)


class _Plan(Struct, kw_only=True):
    """What was found, what will be written, and what comes next."""

    found: list[str] = []
    files: dict[Path, str] = {}
    lines: list[str] = []
    """Lines to add to the script."""
    script: str = ""
    unsure: list[str] = []
    pytest: list[str] = []
    """Arguments of a session, behind the folder."""
    start: list[str] = []
    """The command in front of pytest."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Start a suite: write a system file for a training, which extends one that comes with the "
        "package. Describe the training by the command that starts it, by its log, or by its "
        "trainer; else the folder is searched for it. An unknown script is run once, for at most "
        f"{_MAX_TRIAL_S} s, to see what it prints. No existing file is overwritten."
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=path_argument,
        default=".",
        metavar="DIR",
        help="the repository of the new suite (default: this folder)",
    )
    parser.add_argument(
        "--command",
        dest="training",
        type=text_argument,
        metavar="COMMAND",
        help="the command that trains, as in 'torchrun --nproc-per-node 2 train.py --batch 32'",
    )
    parser.add_argument("--log", type=file_argument, metavar="FILE", help="a log of the training")
    parser.add_argument(
        "--trainer",
        choices=list(shipped_systems()),
        metavar="NAME",
        help="the system to extend; 'pytest-dlperf systems' lists them",
    )
    parser.add_argument(
        "--model", type=text_argument, metavar="NAME", help="name of the model in ids: llama3_8b"
    )
    parser.add_argument(
        "--hosts",
        type=text_argument,
        metavar="LIST",
        help="the hosts that will train, as for --dlperf-hosts: 'gpu[01-04]:8'",
    )
    parser.add_argument(
        "--cluster",
        type=text_argument,
        metavar="NAME",
        help="write the cluster.yaml of a cluster whose numbers the repository keeps",
    )
    parser.add_argument("--ci", choices=list(_WORKFLOWS), help="write a nightly job for this CI")
    parser.add_argument("--no-run", action="store_true", help="never run the training")
    parser.add_argument("--dry-run", action="store_true", help="write nothing, and run nothing")


def run(options: argparse.Namespace) -> int:
    """Find out about the training, write the suite, and print what comes next."""
    log_file = None if options.log is None else Path(options.log).absolute()
    _enter(Path(options.folder))
    plan = _Plan()
    machine = look_at_machine()
    command = _command(options, plan)
    log = None if log_file is None else _log(log_file, plan)
    base = _base(options, command, log, plan)
    hosts = _hosts(options, plan)
    script = command.script if command is not None else None
    needs_trial = base in BY_THREE_LINES and log is None and not prints_steps(script, Path.cwd())
    if needs_trial and command is not None:
        log = _trial(options, command, machine, plan)
        base = _base_of_log(log) or base
    basis = DraftBasis(
        base=base,
        command=command,
        log=log,
        machine=machine,
        nodes=max(1, len(hosts)),
        gpus_of_hosts=min((host.devices or 0 for host in hosts), default=0),
        model=_model(options),
        is_program=is_program_of(base, script),
    )
    _system(basis, log_file, plan)
    if needs_trial and log is None and command is not None:
        batch = f"global_batch={command.batch}" if command.batch_is_global else ""
        if command.batch is None:
            batch = "batch_per_device=BATCH"
            plan.unsure.append("BATCH, below: the samples of one device, as the script calls them")
        plan.script = command.script or "the script"
        plan.lines = [line.format(facts=batch) for line in _LINES]
    _cluster(options, basis, plan)
    style = Style(sys.stdout)
    style.show(_write(options, plan, style))
    return FINE


def _enter(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
    except OSError as error:
        raise UsageError(f"{printable(str(folder))}: {error.strerror or error}") from error


# ----------------------------------------------------------------------------------- find


def _command(options: argparse.Namespace, plan: _Plan) -> OwnCommand | None:
    if options.training is not None:
        command = read_command(options.training)
    elif options.log is not None or options.trainer is not None:
        return None
    else:
        found = commands_below(Path.cwd())
        if not found:
            return None
        plan.found.append(f"{found[0].text!r} in {found[0].place}")
        if len(found) > 1:
            others = ", ".join(each.place for each in found[1:4])
            plan.found.append(f"more of its kind in {others}; --command takes another one")
        command = read_command(found[0].text)
    plan.unsure += command.notes
    return command


def _log(file: Path, plan: _Plan) -> Identification:
    found = identify_log(file)
    if found is None:
        raise UsageError(
            f"--log: no line of {printable(str(file))} shows a step; 'pytest-dlperf read' shows "
            "what was tried. Without --log, init adds lines to the script that print its steps"
        )
    plan.found.append(f"{printable(str(file))} is {found.kind}; {_steps(found)}")
    return found


def _steps(found: Identification) -> str:
    return f"steps {found.steps.first} to {found.steps.last}"


def _base(
    options: argparse.Namespace, command: OwnCommand | None, log: Identification | None, plan: _Plan
) -> str:
    """Choose the system to extend."""
    shipped = shipped_systems()
    if options.trainer is not None:
        return str(options.trainer)
    if command is not None:
        name = system_of_script(command.script, Path.cwd())
        if name in shipped and name != "torchrun":
            plan.found.append(f"{command.script} trains with {name}")
            return name
    name = _base_of_log(log)
    if name is not None:
        return name
    if command is not None:
        return command.launcher if command.launcher in shipped else "torchrun"
    if log is not None:
        return "torchrun"
    below = {name: why for name, why in systems_below(Path.cwd()).items() if name in shipped}
    for name, why in below.items():
        plan.found.append(f"{name}: {why}")
        return name
    raise UsageError(
        "no training was found here: no command of torchrun, accelerate, deepspeed or Paddle in "
        "scripts and documents, and no known trainer. Give the command that trains, --command "
        "'torchrun --nproc-per-node 2 train.py'; its log, --log FILE; or its trainer, --trainer "
        f"NAME, one of {', '.join(shipped)}"
    )


def _base_of_log(log: Identification | None) -> str | None:
    """Return the shipped system for the trainer of a log, if there is one."""
    trainer = log.trainer if log is not None else None
    return trainer.system if trainer is not None and trainer.system in shipped_systems() else None


def _hosts(options: argparse.Namespace, plan: _Plan) -> tuple[Host, ...]:
    if options.hosts is None:
        return ()
    plan.pytest += ["--dlperf-hosts", options.hosts]
    return parse_hosts(options.hosts, place="--hosts")


def _model(options: argparse.Namespace) -> str | None:
    name: str | None = options.model
    if name is not None and not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(
            f"--model: {name!r} is not a name; write lower-case letters, digits and underscores, "
            "a letter first"
        )
    return name


def _trial(
    options: argparse.Namespace, command: OwnCommand, machine: Machine, plan: _Plan
) -> Identification | None:
    """Run the training once, unless an option or a login node forbids it."""
    if options.no_run or options.dry_run:
        return None
    if machine.has_slurm and not machine.in_allocation and not machine.gpus:
        plan.found.append("a login node of Slurm: nothing was run; --log takes what was printed")
        return None
    shown = MASKER.script(command.text)
    Style(sys.stdout).show([f"running it once, for {_MAX_TRIAL_S} s at most: {shown}"])
    sys.stdout.flush()
    tried = run_once(command, limit_s=_MAX_TRIAL_S)
    if tried.exit_code not in (0, None):
        raise UsageError(
            f"it ended with the exit code {tried.exit_code}; what it printed is in {tried.log}:\n"
            f"{tried.last_lines}"
        )
    if tried.found is None:
        plan.found.append(f"in what it printed no line shows a step: {tried.log}")
        return None
    plan.found.append(
        f"it printed {tried.found.kind}; {_steps(tried.found)} in {tried.elapsed_s:.0f} s: "
        f"{tried.log}"
    )
    return tried.found


# ----------------------------------------------------------------------------------- write


def _system(basis: DraftBasis, log_file: Path | None, plan: _Plan) -> None:
    if basis.command is None and basis.log is None:
        says = (
            f"# The example of 'pytest-dlperf systems {basis.base}', which says what has to be set."
        )
        text = f"{says}\n{comment_of(basis.base)[1]}"
        plan.unsure.append("what follows 'extends' is an example: model, arguments and cases")
    else:
        drafted = draft(basis)
        text = drafted.text()
        plan.unsure += [f"{key}: {doubt}" for key, doubt in drafted.unsure.items()]
    try:
        system = system_of_text(text, (SYSTEMS / "new.yaml").absolute(), BUILTIN_FORMATS)
        _ = system.launch  # checks it too
    except YamlError as error:
        found = "\n".join(f"  {problem.message}" for problem in error.problems)
        raise UsageError(f"the system file would not be valid:\n{found}\n{text}") from error
    plan.files[SYSTEMS / f"{system.id}.yaml"] = text
    if basis.command is not None and basis.is_program and basis.command.positional:
        plan.unsure.append(
            f"{' '.join(basis.command.positional)!r} of the command is left out: the system says "
            f"such arguments itself, see 'pytest-dlperf systems {basis.base}'"
        )
    if basis.command is not None:
        if MASKER.script(basis.command.text) != basis.command.text:
            plan.unsure.append(
                "launch: the command holds what looks like a secret, and others read this file; "
                "have the trainer read it from a file on the nodes"
            )
        _add_machine(basis, system, plan)
    elif log_file is not None:
        add = "'arguments', script first," if system.launch is not None else "'command'"
        plan.unsure.append(f"launch: add {add} to launch it as well")
        if basis.base == "torchrun" or basis.base not in PRINTED_BY_US:
            plan.pytest += ["--dlperf-logs", f"{system.cases[0].id}={log_file}"]
    elif system.launch is None:
        plan.unsure.append("launch: nothing starts it; add 'command', or give its logs")
        plan.pytest += ["--dlperf-logs", "DIR"]


def _add_machine(basis: DraftBasis, system: System, plan: _Plan) -> None:
    machine = basis.machine
    where = f"{counted(machine.gpus, 'GPU')} here" if machine.gpus else "no GPU here"
    if basis.gpus_of_hosts:
        where += f", {basis.gpus_of_hosts} on each host"
    if trains_on_cpus(basis):
        where += ": it trains on CPUs, whose times are noisy"
    elif machine.has_slurm:
        where += "; Slurm"
        if not machine.in_allocation:
            nodes = max(case.topology.nodes for case in system.cases)
            plan.start = ["salloc", f"--nodes={nodes}", "--exclusive"]
            if machine.gpus_of_nodes:
                plan.start.append(f"--gpus-per-node={machine.gpus_of_nodes}")
    plan.found.append(where)
    needed = system.launch.requires_modules if system.launch is not None else ()
    for name, variable in system.launch.variables.items() if system.launch is not None else ():
        if variable.default is None:
            plan.unsure.append(f"set --dlperf-set {system.id}.{name}=…: {variable.meaning}")
    missing = [module for module in needed if not is_installed(module)]
    if missing:
        plan.unsure.append(
            f"the environment of {sys.executable} lacks {', '.join(missing)}; if the training "
            f"has another Python: --dlperf-set '{system.id}.python=/path/of/python', and "
            "'requires_modules: ~' below launch"
        )


def _cluster(options: argparse.Namespace, basis: DraftBasis, plan: _Plan) -> None:
    """Plan the files of a cluster, if the numbers are not those of this machine alone."""
    if Path(".git").exists():
        plan.files[Path("baselines/.gitignore")] = _IGNORED
    name = options.cluster
    if name is not None and not re.fullmatch(r"\w[\w.-]*", name):
        raise UsageError(f"--cluster: {name!r} is not a name; write letters, digits, '_', '.', '-'")
    if name is None and (options.ci is not None or basis.nodes > 1):
        name = basis.machine.cluster or "my-cluster"
    if name is None:
        return
    plan.files[Path("baselines") / name / "cluster.yaml"] = (
        f"estimator: steady\ndescription: {name}\n"
        "# Its numbers are compared with each other only: one folder for each kind of machine.\n"
    )
    plan.pytest = ["--dlperf-cluster", name, *plan.pytest]
    for source, target in _WORKFLOWS.get(options.ci, {}).items():
        folder = next(each for each in _EXAMPLES if each.is_dir())
        text = (folder / source).read_text(encoding="utf-8")
        plan.files[Path(target)] = text.replace("my-cluster", name)
    if options.ci is not None:
        plan.unsure.append("the job of the CI: what its first lines name, and how it installs")


def _write(options: argparse.Namespace, plan: _Plan, style: Style) -> Iterator[str]:
    yield from _rows("found", plan.found)
    for file, text in plan.files.items():
        if os.path.lexists(file):
            yield from _rows("kept", [f"{file}, which was there"])
        elif options.dry_run:
            yield from _rows("would be", [str(file)])
            yield from (f"    {line}" for line in text.splitlines())
        else:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                write_whole(file, text)
            except OSError as error:
                raise UsageError(f"{file}: {error.strerror or error}") from error
            yield from _rows("wrote", [style(str(file), "bold")])
    yield from _rows("unsure", list(dict.fromkeys(plan.unsure)))
    if plan.lines:
        yield from _rows("add", [f"to {plan.script}, so that it prints its steps:"])
        yield from (f"              {line}" for line in plan.lines)
    session = shlex.join([*plan.start, "pytest", "bench_tests", *plan.pytest])
    looks = [
        f"look at the numbers that {file} marks with ?, and take the marks away"
        for file, text in plan.files.items()
        if doubts_in(text, file)
    ]
    yield from _rows("next", [*looks, f"{session} --dlperf-create-baselines", f"then {session}"])


def _rows(label: str, texts: list[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        yield f"  {'' if number else label:<10}{text}"
