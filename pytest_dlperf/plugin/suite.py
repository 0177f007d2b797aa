"""A suite as declared: its systems, its cluster, and the cluster's accepted numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_dlperf.config.cluster import Cluster, find_cluster, undeclared_systems
from pytest_dlperf.config.options import Settings
from pytest_dlperf.config.systems import System, load_systems, system_files
from pytest_dlperf.config.values import ControlArm
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.shipped import merged_formats
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.metric import MEMBER, Metric

if TYPE_CHECKING:
    from pytest_dlperf.baselines.reading import Baselines
    from pytest_dlperf.gate.terms import Terms


def load_suite(
    settings: Settings,
    *,
    more_files: Iterable[Path] = (),
    more_formats: Iterable[LogFormat] = (),
) -> Suite:
    """Read the system files and the cluster's file."""
    try:
        formats = merged_formats(more_formats)
        files = [*system_files(settings.systems_directories), *more_files]
        systems = load_systems(files, formats)
        cluster = find_cluster(settings.baselines_directory, settings.cluster)
    except YamlError as error:
        raise _listed("mistakes in YAML files", error) from error
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    for message in undeclared_systems(cluster, systems):
        raise UsageError(f"{cluster.directory / 'cluster.yaml'} {message}")
    judged = {m.name for system in systems.values() for m in system.metrics if m.is_judged}
    for name in sorted((settings.metrics or frozenset()) - judged):
        raise UsageError(
            f"{settings.places['metric_lists']} {name}: no system has such a metric judged, which "
            f"it does under 'metrics'; judged are {', '.join(sorted(judged))}"
            f"{nearest(name, judged)}"
        )
    _check_settings(settings, systems, cluster)
    return Suite(settings=settings, systems=systems, cluster=cluster)


def _check_settings(settings: Settings, systems: Mapping[str, System], cluster: Cluster) -> None:
    every = (*settings.launch_settings, *cluster.settings, *cluster.control_settings)
    if not every:
        return
    from pytest_dlperf.config.settings import check_settings, unpublished
    from pytest_dlperf.files.masking import closed_part, keep_quiet, names_secret

    specs = {name: system.launch for name, system in systems.items()}
    if problems := list(check_settings(specs, every)):
        raise UsageError("\n".join(map(str, problems)))
    keep_quiet(map(closed_part, unpublished(specs, settings.launch_settings)))
    keep_quiet(one.text for one in cluster.settings if names_secret(one.key or one.name))


class Suite(Struct, frozen=True, kw_only=True):
    """Systems and cluster as they were read, and what the user asked for."""

    settings: Settings
    systems: Mapping[str, System]
    cluster: Cluster
    _baselines: dict[str, Baselines] = {}
    """Baselines read so far, by system."""

    @property
    def run_systems(self) -> list[System]:
        """The systems that the cluster runs, in the order of the files."""
        run = self.cluster.systems
        return [one for one in self.systems.values() if run is None or one.id in run]

    @property
    def cases(self) -> list[Case]:
        """All their cases."""
        return [case for system in self.run_systems for case in system.cases]

    def main_metric(self, case: Case) -> Metric:
        """Return the first metric of a case: a training's throughput, a probe's first number."""
        return self.systems[case.system].metrics[0]

    def metric(self, case: Case, name: str) -> Metric:
        """Return a metric of a case by its name.

        Raises:
            ValueError: Its system has no such metric.
        """
        metrics = {metric.name: metric for metric in self.systems[case.system].metrics}
        family, _, member = name.partition(MEMBER)
        if member and family in metrics and metrics[family].is_family:
            return metrics[family].member(member)
        if name not in metrics:
            raise ValueError(
                f"{case.system} has no metric {name!r}; it has {', '.join(metrics)}"
                f"{nearest(name, metrics)}"
            )
        return metrics[name]

    def judged_metrics(self, case: Case) -> list[str]:
        """Name the metrics of a case that are to be judged."""
        return [
            metric.name
            for metric in self.systems[case.system].metrics
            if metric.is_judged and (metric.ratio_of is None or case.is_scaled)
        ]

    def accepted_members(self, case: Case, family: str) -> list[str]:
        """Name the members of a family that have an accepted number."""
        return [name for name in self.baselines(case) if name.startswith(f"{family}{MEMBER}")]

    def terms(self, case: Case, metric: Metric) -> Terms:
        """Return the terms of judging a metric of a case, beside its baseline."""
        from pytest_dlperf.gate.terms import Terms

        system, settings = self.systems[case.system], self.settings
        own = metric.tolerance_percent
        # A worse number is accepted with a reason, whether software or hardware made it worse.
        is_moot = settings.update_baselines and settings.reason is not None
        can_run = bool(self.cluster.control_settings) and not settings.log_sources
        return Terms(
            tolerance_percent=system.tolerance_percent if own is None else own,
            tolerance_at_least=metric.tolerance_at_least or 0.0,
            has_control=can_run and not is_moot and settings.control is not ControlArm.NEVER,
            default_repeats=system.repeats,
            repeats=None if settings.log_sources else settings.repeats,
            members=max(len(self.accepted_members(case, metric.family)), 1) if metric.family else 1,
        )

    def baselines(self, case: Case) -> Mapping[str, Baseline]:
        """Return the baselines of a case, by metric; a file is read when first needed."""
        if case.system not in self._baselines:
            from pytest_dlperf.baselines.reading import load_baselines

            try:
                self._baselines[case.system] = load_baselines(self.cluster, case.system)
            except YamlError as error:
                raise _listed("mistakes in baselines", error) from error
        return self._baselines[case.system].get((case.variant, str(case.topology)), {})


def _listed(what: str, error: YamlError) -> UsageError:
    return UsageError("\n".join([f"{what}:", *(f"  {problem}" for problem in error.diagnostics)]))
