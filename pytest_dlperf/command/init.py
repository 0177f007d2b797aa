"""``pytest-dlperf init``: writes the smallest suite that runs, from a training and its machine."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Final

from pytest_dlperf.command.first_suite import (
    WORKFLOWS,
    SuitePlan,
    add_cluster,
    add_example,
    add_system,
    written,
)
from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.shell import Style, file_argument, path_argument, text_argument
from pytest_dlperf.command.training_log import Found, found_in, head_of, run_once
from pytest_dlperf.config.extends import comment_of, is_trainer, shipped_systems
from pytest_dlperf.config.systems import System
from pytest_dlperf.files.masking import hide
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.launch.hosts import Host, parse_hosts
from pytest_dlperf.model.case import NAME_PATTERN
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.report.printing import printable
from pytest_dlperf.survey.drafting import (
    BY_CALLBACK,
    BY_THREE_LINES,
    PRINTED_BY_US,
    DraftBasis,
    draft,
)
from pytest_dlperf.survey.identify import Identification
from pytest_dlperf.survey.machine import Machine, look_at_machine
from pytest_dlperf.survey.own_command import OwnCommand, read_command
from pytest_dlperf.survey.probe_output import ProbeOutput
from pytest_dlperf.survey.script import (
    is_empty,
    only_script_in,
    prints_steps,
    program_of,
    start_of,
    system_of_script,
)

_MAX_TRIAL_S: Final = 120
_LINES: Final = (
    "to {script}, so that it prints its steps:",
    "    from pytest_dlperf.trainers import StepLog",
    "    log = StepLog({facts})  # in front of the loop",
    "    log.step(loss=loss)  # behind each optimizer.step()",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Start a suite: write a system file for a training, which extends one that comes with the "
        "package. Describe the training by the command that starts it, by its log, or by its "
        "trainer. Else the one script in the folder that imports a known trainer is taken; an "
        "empty folder gets an example. "
        f"A command is run once, for {_MAX_TRIAL_S} s at most, to see what it prints. No "
        "existing file is overwritten."
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
    parser.add_argument("--ci", choices=list(WORKFLOWS), help="write a nightly job for this CI")
    parser.add_argument("--no-run", action="store_true", help="never run the training")


def run(options: argparse.Namespace) -> int:
    """Find out about the training, write the suite, and print what comes next."""
    log_file = None if options.log is None else Path(options.log).absolute()
    plan = SuitePlan()
    hosts = _hosts(options, plan)
    _enter(Path(options.folder))
    machine = look_at_machine()
    gpus = min((host.devices or 0 for host in hosts), default=0)
    command = _command(options, gpus or machine.gpus or machine.gpus_of_nodes or 1, plan)
    read = None if log_file is None else _log(log_file, plan)
    if command is None and read is None and options.trainer is None and is_empty(Path.cwd()):
        add_example(plan)
    else:
        base = _base(options, command, read, plan)
        if read is None and command is not None and base in (*BY_THREE_LINES, *BY_CALLBACK):
            read = _trial(options, command, base, machine, plan)
            base = _base_of_log(read) or base
        basis = DraftBasis(
            base=base,
            command=command,
            log=read if isinstance(read, Identification) else None,
            machine=machine,
            nodes=max(1, len(hosts)),
            gpus_of_hosts=gpus,
            model=_model(options),
            is_program=command is not None and program_of(command.script) == base,
        )
        system = add_system(_text(basis, read, plan), plan)
        if command is not None:
            _add_launch(basis, command, system, plan)
        elif log_file is not None and (base == "torchrun" or base not in PRINTED_BY_US):
            plan.pytest += ["--dlperf-logs", f"{system.cases[0].id}={log_file}"]
        if system.launch is None:
            plan.unsure.append("launch: add 'command' to launch it as well")
        elif command is None and log_file is not None:
            plan.unsure.append("launch: add 'arguments', script first, to launch it as well")
    add_cluster(options, len(hosts), plan)
    style = Style(sys.stdout)
    style.show(written(plan, style))
    return FINE


def _enter(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
    except OSError as error:
        raise UsageError(f"{printable(str(folder))}: {error.strerror or error}") from error


def _hosts(options: argparse.Namespace, plan: SuitePlan) -> tuple[Host, ...]:
    """Read the hosts; a file of them lies where the command was started."""
    text: str | None = options.hosts
    if text is None:
        return ()
    if text.startswith("@"):
        text = f"@{Path.cwd() / os.path.expanduser(text[1:])}"  # noqa: PTH111 - pathlib refuses unknown users
    plan.pytest += ["--dlperf-hosts", text]
    return parse_hosts(text, place="--hosts")


def _command(options: argparse.Namespace, devices: int, plan: SuitePlan) -> OwnCommand | None:
    if options.training is not None:
        command = read_command(options.training)
        plan.unsure += command.notes
        return command
    script = only_script_in(Path.cwd())
    if options.log is not None or options.trainer is not None or script is None:
        return None
    command = read_command(start_of(script, Path.cwd(), devices))
    command.is_guessed = True
    plan.unsure.append(
        f"the command: nothing says how {script} is started; --command "
        f"{shlex.quote(command.text)}, with its own arguments, also runs it once and reads "
        "what it prints"
    )
    return command


def _log(file: Path, plan: SuitePlan) -> Found:
    shown = printable(str(file))
    found = found_in(head_of(file), {}, BUILTIN_FORMATS)
    if found is None:
        raise UsageError(
            f"--log: no line of {shown} shows a step; 'pytest-dlperf read' shows "
            "what was tried. Without --log, init adds lines to the script that print its steps"
        )
    plan.found.append(f"{shown} is {_told(found)}")
    return found


def _told(found: Identification | ProbeOutput) -> str:
    if isinstance(found, ProbeOutput):
        return found.kind
    return f"{found.kind}; steps {found.steps.first} to {found.steps.last}"


def _base(
    options: argparse.Namespace, command: OwnCommand | None, log: Found, plan: SuitePlan
) -> str:
    """Choose the system to extend."""
    shipped = shipped_systems()
    if options.trainer is not None:
        return str(options.trainer)
    name = None if command is None else system_of_script(command.script, Path.cwd())
    if command is not None and name in shipped and name != "torchrun":
        plan.found.append(f"{command.script} trains with {name}")
        return name
    if command is None and log is None:
        raise UsageError(
            "no training is described: give the command that trains, --command 'torchrun "
            "--nproc-per-node 2 train.py'; its log, --log FILE; or its trainer, --trainer NAME, "
            f"one of {', '.join(filter(is_trainer, shipped))}. 'pytest-dlperf init NEW_FOLDER' "
            "writes an example that runs here"
        )
    launcher = "" if command is None else command.launcher
    return _base_of_log(log) or (launcher if launcher in shipped else "torchrun")


def _base_of_log(log: Found) -> str | None:
    """Return the shipped system for the trainer of a log, if there is one."""
    trainer = log.trainer if isinstance(log, Identification) else None
    return trainer.system if trainer is not None and trainer.system in shipped_systems() else None


def _model(options: argparse.Namespace) -> str | None:
    name: str | None = options.model
    if name is not None and not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(
            f"--model: {name!r} is not a name; write lower-case letters, digits and underscores, "
            "a letter first"
        )
    return name


def _trial(
    options: argparse.Namespace, command: OwnCommand, base: str, machine: Machine, plan: SuitePlan
) -> Found:
    """Run the program once, unless an option, a guess or a login node forbids it."""
    if options.no_run or command.is_guessed:
        return None
    if machine.has_slurm and not machine.in_allocation and not machine.gpus:
        plan.found.append("a login node of Slurm: nothing was run; --log takes what was printed")
        return None
    Style(sys.stdout).show([f"running it once, for {_MAX_TRIAL_S} s at most: {hide(command.text)}"])
    sys.stdout.flush()
    steps = base if base in BY_CALLBACK else None
    tried = run_once(command, steps=steps, limit_s=_MAX_TRIAL_S)
    if tried.exit_code not in (0, None):
        said = f"it ended with the exit code {tried.exit_code}; what it printed is in {tried.log}"
        if steps is None:
            last = "".join(f"\n  {printable(line)}" for line in tried.text.splitlines()[-8:])
            raise UsageError(f"{said}. --no-run writes the file without a run:{last}")
        plan.unsure.append(f"whether it runs here: {said}")
        return None
    if tried.found is None:
        plan.found.append(
            f"in what it printed no line shows a step: {tried.log}; of a program without steps, "
            "declare the 'metrics'"
        )
        return None
    told = f"{_told(tried.found)} in {tried.elapsed_s:.0f} s: {tried.log}"
    plan.found.append(f"it printed {told}")
    return tried.found


def _text(basis: DraftBasis, read: Found, plan: SuitePlan) -> str:
    """Write the system file, and say what is in doubt about it."""
    if isinstance(read, ProbeOutput):
        plan.unsure += read.unsure
        return read.draft or ""
    if basis.command is None and read is None:
        plan.unsure.append("what follows 'extends' is an example: model, arguments and cases")
        shown = f"# The example of 'pytest-dlperf systems {basis.base}', which says what has to be"
        return f"{shown} set.\n{comment_of(basis.base)[1]}"
    drafted = draft(basis)
    plan.unsure += [f"{key}: {doubt}" for key, doubt in drafted.unsure.items()]
    return drafted.text()


def _add_launch(basis: DraftBasis, command: OwnCommand, system: System, plan: SuitePlan) -> None:
    """Say what is to be known before a command is launched by sessions."""
    machine = basis.machine
    if basis.is_program and command.positional:
        plan.unsure.append(
            f"{' '.join(command.positional)!r} of the command is left out: the system says "
            f"such arguments itself, see 'pytest-dlperf systems {basis.base}'"
        )
    if hide(command.text) != command.text:
        plan.unsure.append(
            "launch: the command holds what looks like a secret, and others read this file; "
            "have the trainer read it from a file on the nodes"
        )
    if basis.is_on_cpus:
        passes = f"a loss of up to {system.tolerance_percent:g} % passes"
        plan.found.append(f"no GPU here: it runs on CPUs, whose times are noisy: {passes}")
    elif machine.has_slurm and not machine.in_allocation:
        nodes = max(case.topology.nodes for case in system.cases)
        plan.start = ["salloc", f"--nodes={nodes}", "--exclusive"]
        if machine.gpus_of_nodes:
            plan.start.append(f"--gpus-per-node={machine.gpus_of_nodes}")
    is_silent = basis.log is None and not prints_steps(command.script, Path.cwd())
    if is_silent and basis.base in BY_THREE_LINES and not system.is_probe:
        facts = f"global_batch={command.batch}" if command.batch_is_global else ""
        if command.batch is None:
            facts = "batch_per_device=BATCH"
            plan.unsure.append("BATCH, below: the samples of one device, as the script calls them")
        plan.lines = [line.format(facts=facts, script=command.script) for line in _LINES]
