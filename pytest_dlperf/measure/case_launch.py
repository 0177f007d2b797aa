"""One case, ready to be launched: what its hosts need, and what each of its nodes runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.config.launch_spec import Devices, StartOn, VariableKind
from pytest_dlperf.config.launch_variables import resolve
from pytest_dlperf.config.template import fill, names_in
from pytest_dlperf.launch.containers import VisiblePaths, contained, inside, node_inside
from pytest_dlperf.launch.gang import RunOrder
from pytest_dlperf.launch.plan import plan_run, run_dir
from pytest_dlperf.launch.preflight import Requirements
from pytest_dlperf.launch.step_lines import serving_file, step_files
from pytest_dlperf.logs.tree import log_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_dlperf.config.assignments import Assignment
    from pytest_dlperf.config.launch_spec import LaunchSpec
    from pytest_dlperf.config.launch_variables import LaunchVariables
    from pytest_dlperf.config.slurm_container import Container
    from pytest_dlperf.config.systems import System
    from pytest_dlperf.launch.plan import Node, NodeCommand, Place
    from pytest_dlperf.launch.watch import RunWatch
    from pytest_dlperf.measure.launch_change import LaunchChange
    from pytest_dlperf.model.case import Case


class CaseLaunch(Struct, frozen=True, kw_only=True):
    """One case with all that the user has set for it; logs go below ``folder``.

    ``scratch`` is the folder on each host in which its runs make their own. ``container`` is what
    its commands are put into, unless that is left to a queue. A ``change`` is made
    to what is planned.
    """

    system: System
    spec: LaunchSpec
    case: Case
    variables: LaunchVariables
    container: Container | None
    python: str
    folder: Path
    scratch: str
    change: LaunchChange | None = None

    def log(self, run: int) -> Path:
        """Name the main log of a run."""
        return log_path(self.folder, self.case, self.system.log_name, run)

    @property
    def row(self) -> int:
        """How many ports in a row a run needs on each node."""
        is_used = self.spec.uses("first_port", self.case)
        return self.case.topology.devices_per_node if is_used else 0

    @property
    def needed(self) -> Requirements:
        """What every host has to have."""
        folders = self._paths(VariableKind.FOLDER)
        folder, given = self.spec.working_directory, self.variables.working_directory
        if given is not None:
            folders["working_directory"] = given
        # Where it depends on the run, the supervisor alone can tell whether it is there.
        if folder is not None and names_in(folder) <= set(self.variables.values):
            working_directory = fill(folder, self.variables.values)
            is_new = working_directory not in folders.values()
            if is_new and Path(working_directory).is_absolute():
                folders["working_directory"] = working_directory
        files = self._paths(VariableKind.FILE)
        checkouts = {name: path for name, path in folders.items() if path.startswith("/")}
        inner = None
        if self.container is None:
            folders["scratch in cluster.yaml"] = self.scratch
        else:
            sight = self._sight(*folders.values(), *files.values())
            kind = self.spec.devices.kind
            inner = inside(self.container, sight, kind=kind, scratch=self.scratch)
        image = self.variables.image
        return Requirements(
            python=self.python,
            engine=self.variables.engine,
            image=image if self.container is None else self.container.image,
            inside=inner,
            folders=folders,
            files=files,
            checkouts=checkouts,
            modules=self.spec.requires_modules,
            accelerators=self.spec.devices is not Devices.CPU,
            kind=self.spec.devices.kind,
        )

    def order(
        self,
        places: tuple[Place, ...],
        *,
        run: int,
        watch: RunWatch | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> RunOrder:
        """Make the order for a run in these places."""
        spec, log = self.spec, self.log(run)
        return RunOrder(
            places=places,
            plan=lambda nodes: self.commands(nodes, run=run, log=log),
            time_limit_s=spec.time_limit_s,
            scratch=self.scratch,
            row=self.row,
            head_only=spec.start_on is StartOn.HEAD,
            files={
                **({} if spec.steps is None else step_files()),
                **({} if spec.server is None else serving_file()),
            },
            watch=watch,
            say=say,
        )

    def _paths(self, kind: VariableKind) -> dict[str, str]:
        return {
            name: self.variables.values[name]
            for name in self.spec.variables_of(self.case)
            if self.spec.variables[name].kind is kind
        }

    def commands(self, nodes: Sequence[Node], *, run: int, log: Path) -> tuple[NodeCommand, ...]:
        """Plan a run on these nodes."""
        box, kind = self.container, self.spec.devices.kind
        planned = plan_run(
            self.spec,
            case=self.case,
            window=self.system.window,
            settling_steps=self.system.log_format.settling_steps,
            system_directory=self.system.file.parent,
            run=run,
            nodes=nodes if box is None else [node_inside(box, node, kind) for node in nodes],
            variables=self.variables,
            python=self.python,
            log=log,
        )
        if self.change is not None:
            planned = tuple(map(self.change.of_command, planned))
        if box is None:
            return planned
        paths = (
            *self._paths(VariableKind.FOLDER).values(),
            *self._paths(VariableKind.FILE).values(),
        )
        sight = self._sight(*paths)
        if self.spec.uses("run_directory", self.case):
            sight = replace(sight, always=(*sight.always, str(run_dir(log.absolute()))))
        return tuple(
            contained(box, command, node, sight, kind=kind)
            for command, node in zip(planned, nodes, strict=False)
        )

    def _sight(self, *unless_said: str) -> VisiblePaths:
        """Say what of a node's files the trainer has to see in a container."""
        uses_own = self.spec.uses("system_directory", self.case)
        own = (str(self.system.file.parent.absolute()),) if uses_own else ()
        return VisiblePaths(always=own, unless_said=unless_said)


def checkouts_of(
    system: System, case: Case, sources: Sequence[Sequence[Assignment]]
) -> Mapping[str, str]:
    """Return the folders that a case's trainer runs from, by the names of fingerprints.

    Raises:
        CannotMeasureError: A variable is not set.
    """
    if system.launch is None:
        return {}
    launch = CaseLaunch(
        system=system,
        spec=system.launch,
        case=case,
        variables=resolve(system.launch, system.id, sources, case=case),
        container=None,
        python="",
        folder=Path(),
        scratch="/",
    )
    return launch.needed.checkouts
