"""Simulated nights of the gate, judged by the project's own functions.

Baselines and nights are drawn from models of noise. The functions that a session calls choose the
rule, ask for one more run or decide, and judge speedups and the control arm. Seeds are fixed: the
same number of trials gives the same outcomes, however many processes there are.
"""

from __future__ import annotations

import multiprocessing
import random
import zlib
from collections import Counter
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace
from noise_models import LEVEL, Noise

from pytest_dlperf.gate.control import ControlRuns, confirm
from pytest_dlperf.gate.rules import Terms, rule_for
from pytest_dlperf.gate.sequential import CONFIRMED_LOSS_PERCENT, MIN_LOSS_PERCENT
from pytest_dlperf.gate.verdicts import (
    GateInput,
    MeasuredCase,
    decide,
)
from pytest_dlperf.model.baseline import AcceptedSession, Baseline
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Estimator, InterleavedRuns, Measurement, Run, RunStatus
from pytest_dlperf.model.metric import SPEEDUP_METRIC, Better, Metric, RuleName, Source, throughput
from pytest_dlperf.plugin.measuring import MIN_PAIRS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_dlperf.gate.rules import Rule
    from pytest_dlperf.model.judgement import Decision, Judgement

METRICS: Final = {
    Better.HIGHER: throughput("samples/s"),
    Better.LOWER: Metric(name="step_time", unit="ms", better=Better.LOWER, source=Source.STEPS),
}
SESSIONS: Final = 6
RUNS_PER_SESSION: Final = 5
TOLERANCE_PERCENT: Final = 5.0
CHUNK: Final = 2000
DRIFT: Final = 0.002


QUIET: Final = {
    "cv .3": Noise(deviation=0.003),
    "cv 1": Noise(deviation=0.01),
    "cv 2.5": Noise(deviation=0.025),
    "strays": Noise(deviation=0.01, strays=0.1),
    "modes": Noise(deviation=0.003, modes=0.03),
}
NIGHTS: Final = {
    "cv .3, nights .5": Noise(deviation=0.003, nights=0.005),
    "cv 1, nights .5": Noise(deviation=0.01, nights=0.005),
    "cv 1, nights 1": Noise(deviation=0.01, nights=0.01),
    "cv 1, nights 2": Noise(deviation=0.01, nights=0.02),
    "cv 2.5, nights 1": Noise(deviation=0.025, nights=0.01),
}
LOUD: Final = {"cv 1.5": Noise(deviation=0.015), "cv 4": Noise(deviation=0.04)}
OTHER_SHAPES: Final = {
    "heavy 1": Noise(deviation=0.01, shape="heavy"),
    "skewed 2.5": Noise(deviation=0.025, shape="skewed"),
    "AR .5, cv 1": Noise(deviation=0.01, follows=0.5),
}
MODE_DISTANCES: Final = (2.2, 2.6, 2.9, 3.5, 5)
RUN_MODES: Final = {
    f"modes {apart:g}": Noise(deviation=0.001, modes=apart / 100) for apart in MODE_DISTANCES
}
RARE_MODES: Final = {
    f"modes 2.6, {share:.0%} worse": Noise(deviation=0.001, modes=0.026, worse_share=share)
    for share in (0.1, 0.2, 0.35)
}
NIGHT_MODES: Final = {
    f"night modes 3, cv {100 * cv:g}": Noise(deviation=cv, night_modes=0.03)
    for cv in (0.001, 0.003, 0.01)
}
FAR_NIGHT_MODES: Final = {
    f"night modes 6, {share:.0%} worse": Noise(deviation=0.003, night_modes=0.06, worse_share=share)
    for share in (0.3, 0.5)
}
"""Further apart than the tolerance."""
OTHERS: Final = {
    "two values": Noise(deviation=0.0, modes=0.025),
    "one value": Noise(deviation=0.0),
    "30 % at +3 %": Noise(deviation=0.0, modes=0.03, worse_share=0.3),
    "slow session": Noise(deviation=0.01, slow_session=0.05),
    **{f"cv {cv:g}": Noise(deviation=cv / 100) for cv in (3, 5)},
    "a third strays": Noise(deviation=0.01, strays=0.3),
    "walk, 30 missing": Noise(deviation=0.01, walk=0.002, gap=31),
}
NOISES: Final = {
    **QUIET,
    **NIGHTS,
    **LOUD,
    **OTHER_SHAPES,
    **RUN_MODES,
    **RARE_MODES,
    **NIGHT_MODES,
    **FAR_NIGHT_MODES,
    **OTHERS,
}
MEMORY: Final = Metric(
    name="memory", unit="GB", better=Better.LOWER, source=Source.LOG, tolerance_percent=2.0
)


class Gate(Struct, frozen=True):
    """How the gate is asked: by which rule, with which tolerance, and whether there is a control.

    ``baseline_sessions`` of ``baseline_runs`` runs each are accepted. ``floor`` is the smallest
    loss in percent that counts. With ``speedup`` a case of many devices is judged over one device
    of the same night, which has noise of its own. ``at_least`` runs are taken: for another metric.
    """

    name: str
    forced: RuleName | None
    tolerance_percent: float = TOLERANCE_PERCENT
    baseline_sessions: int = 1
    baseline_runs: int = 10
    control: bool = False
    speedup: bool = False
    better: Better = Better.HIGHER
    floor: float = MIN_LOSS_PERCENT
    is_memory: bool = False
    at_least: int = 1

    @property
    def metric(self) -> Metric:
        """What is judged, or what the speedup is over."""
        return MEMORY if self.is_memory else METRICS[self.better]

    @property
    def terms(self) -> Terms:
        """What it is judged by."""
        return Terms(
            tolerance_percent=self.tolerance_percent,
            min_loss_percent=self.floor,
            forced=self.forced,
        )


ITSELF: Final = Gate("sequential, 3 to 9 runs", None, 5.0, SESSIONS, RUNS_PER_SESSION)
CONTROLLED: Final = replace(ITSELF, name="with control", control=True)
CONFIRMED: Final = replace(CONTROLLED, floor=CONFIRMED_LOSS_PERCENT)
SPEEDUP: Final = replace(ITSELF, name="  its speedup", speedup=True)
MEMORY_GATE: Final = replace(
    ITSELF, name="memory", is_memory=True, tolerance_percent=2.0, better=Better.LOWER
)
YOUNG: Final = tuple(
    replace(
        ITSELF,
        name=f"{sessions} sessions of {runs}",
        baseline_sessions=sessions,
        baseline_runs=runs,
    )
    for sessions, runs in ((4, 5), (5, 4))
)
"""Just as many runs as the sequential rule needs."""
YOUNG_MEMORY: Final = replace(MEMORY_GATE, name="memory, 1 session of 5", baseline_sessions=1)
MEMORY_BESIDE_RATE: Final = replace(MEMORY_GATE, name="memory, 3 runs at least", at_least=3)
TOLERANCES: Final = tuple(
    Gate(f"median of 5, -{percent:g} %, of {runs}", RuleName.TOLERANCE, percent, baseline_runs=runs)
    for percent, runs in ((5.0, 5), (5.0, 10), (3.0, 10), (2.0, 10))
)
"""Against the median of one session of 5 and of 10 runs."""


class Cell(Struct, frozen=True):
    """One field of a table: a gate, the name of a noise, and the loss of the candidate.

    ``None`` for the loss is exactly the one that the rule says it sees nine times out of ten.
    ``crept`` is what was lost before, in steps of 0.2 % a night, all of them accepted.
    ``tonight`` is the name of tonight's noise, where it is another.
    """

    gate: Gate
    noise: str
    loss: float | None
    crept: float = 0.0
    tonight: str | None = None

    def towards(self, better: Better) -> Cell:
        """The same for a metric of this direction."""
        return replace(self, gate=replace(self.gate, better=better))


class Outcome(Struct, frozen=True):
    """What came of a cell's nights: verdicts before and after the control arm, and runs taken.

    ``visible_percent`` is the sum of the losses that the gate said it would see, ``claimed`` that
    of the probabilities of a false alarm.
    """

    trials: int
    first: Counter[Verdict]
    final: Counter[Verdict]
    runs: int
    visible_percent: float
    claimed: float

    def __add__(self, other: Outcome) -> Outcome:
        """Both together."""
        return Outcome(
            self.trials + other.trials,
            self.first + other.first,
            self.final + other.final,
            self.runs + other.runs,
            self.visible_percent + other.visible_percent,
            self.claimed + other.claimed,
        )

    def first_alarms(self) -> float:
        """Part of the nights that were called regressed, before the control arm."""
        return self.first[Verdict.REGRESSED] / self.trials

    def alarms(self) -> float:
        """Part of the nights that were called regressed in the end."""
        return self.final[Verdict.REGRESSED] / self.trials

    def claimed_alarms(self) -> float:
        """Part of the nights that the gate says would be regressed if nothing had changed."""
        return self.claimed / self.trials

    def undecided(self) -> float:
        """Part of the nights that were called inconclusive in the end, which is red too."""
        return self.final[Verdict.INCONCLUSIVE] / self.trials

    def runs_each(self) -> float:
        """Runs that a night took."""
        return self.runs / self.trials


NOTHING: Final = Outcome(0, Counter(), Counter(), 0, 0.0, 0.0)


def baseline_of(metric: Metric, sessions: Sequence[Sequence[float]]) -> Baseline:
    """A baseline as accepted from the first session, the others added."""
    accepted, *later = sessions
    return Baseline(
        metric=metric.name,
        unit=metric.unit,
        better=metric.better or Better.HIGHER,
        estimator=Estimator.STEADY,
        accepted=median(accepted),
        runs=dict(enumerate(accepted, 1)),
        place="simulation",
        sessions=tuple(AcceptedSession(at="", runs=tuple(runs)) for runs in later),
    )


def measurement(metric: Metric, values: Iterable[float]) -> Measurement:
    """A measurement with these runs."""
    runs = tuple(
        Run(run=number, metrics={metric.name: value}, status=RunStatus.OK)
        for number, value in enumerate(values, 1)
    )
    return Measurement(
        case_id="tiny-trainer-fp32-b1-1n1g",
        metrics=(metric,),
        estimator=Estimator.STEADY,
        runs=runs,
    )


def end(gate: Gate, values: Iterable[float], *baselines: Baseline) -> MeasuredCase:
    """A measurement with these runs, and what is accepted of it."""
    return MeasuredCase(
        measurement(gate.metric, values), {known.metric: known for known in baselines}
    )


class Night(Struct, frozen=True, kw_only=True):
    """One night: the verdict, that after the control arm, runs taken, what the gate says it sees.

    ``claimed`` is the probability of a false alarm that it tells.
    """

    first: Verdict
    final: Verdict
    runs: int
    visible_percent: float
    claimed: float


def one_night(cell: Cell, choose: random.Random, make_rule: Callable[..., Rule]) -> Night:
    """Draw a baseline and a night, and judge it."""
    gate, noise, sign = cell.gate, NOISES[cell.noise], cell.gate.better.sign
    levels, tonight = noise.levels(gate.baseline_sessions + (cell.crept > 0), sign, choose)
    if cell.crept:
        # The accepted one is from before; the last ones are those of the nights until tonight.
        levels[1:] = [
            level * (1 - sign * (cell.crept - DRIFT * nights))
            for nights, level in zip(range(len(levels) - 1, 0, -1), levels[1:], strict=True)
        ]
        tonight *= 1 - sign * cell.crept
    baseline = baseline_of(gate.metric, sessions_of(gate, noise, levels, choose))
    rule = make_rule(gate.metric, baseline, gate.terms)
    visible = 0.0
    loss = cell.loss
    if loss is None:
        told = rule.decide([LEVEL] * rule.at_most, is_last=True)
        if told is None or told.min_detectable_percent is None:
            raise AssertionError("the rule does not say what it sees")
        visible = told.min_detectable_percent
        loss = visible / 100
    # The control is the accepted software: it has the night's level, without the loss.
    level = tonight * (1 - sign * loss)
    runs, decision = series(
        rule, NOISES[cell.tonight or cell.noise], level, choose, at_least=gate.at_least
    )
    if gate.speedup:
        decision = speedup_night(cell, baseline, (levels, tonight), runs, choose, make_rule)
    first = final = decision.verdict
    taken = len(runs)
    if gate.control and first is Verdict.REGRESSED:
        judgement = decide(GateInput(gate.metric, end(gate, runs, baseline), gate.terms))
        # As many as a session takes: A B B A, and not too few to tell.
        pairs = max(MIN_PAIRS, taken + taken % 2)
        final = confirmed_in_turn(
            cell, judgement, baseline, (level, tonight), pairs, choose
        ).verdict
        taken += 2 * pairs
    return Night(
        first=first,
        final=final,
        runs=taken,
        visible_percent=visible,
        claimed=decision.false_alarm or 0.0,
    )


def sessions_of(
    gate: Gate, noise: Noise, levels: Iterable[float], choose: random.Random
) -> list[list[float]]:
    """The runs of the accepted nights."""
    sign = gate.better.sign
    return [noise.session(level, sign, gate.baseline_runs, choose) for level in levels]


def series(
    rule: Rule, noise: Noise, level: float, choose: random.Random, *, at_least: int = 1
) -> tuple[list[float], Decision]:
    """As many runs at this level as the rule asks for, and what it makes of them."""
    runs: list[float] = []
    for run in noise.runs(level, rule.better.sign, choose):
        runs.append(run)
        decision = rule.decide(runs, is_last=False)
        if decision is not None and len(runs) >= at_least:
            return runs, decision
    raise AssertionError("runs have no end")


def speedup_night(  # noqa: PLR0913, PLR0917 - a night has so many sides
    cell: Cell,
    many: Baseline,
    levels: tuple[Sequence[float], float],
    runs: Sequence[float],
    choose: random.Random,
    make_rule: Callable[..., Rule],
) -> Decision:
    """The decision on the speedup of a night whose many devices had these runs.

    The single device shares the levels of the nights, those accepted and tonight's.
    """
    gate, noise = cell.gate, NOISES[cell.noise]
    accepted, tonight = levels
    single = baseline_of(gate.metric, sessions_of(gate, noise, accepted, choose))
    single_runs, _ = series(make_rule(gate.metric, single, gate.terms), noise, tonight, choose)
    metric = replace(SPEEDUP_METRIC, better=gate.better, ratio_of=gate.metric.name)
    speedup = baseline_of(metric, [[many.accepted / single.accepted]])
    ends = end(gate, runs, many, speedup), end(gate, single_runs, single)
    judgement = decide(GateInput(metric, ends[0], gate.terms, ends[1]))
    if judgement.decision is None:
        raise AssertionError(judgement.reason)
    return judgement.decision


def confirmed_in_turn(  # noqa: PLR0913, PLR0917 - a night has so many sides
    cell: Cell,
    judgement: Judgement,
    baseline: Baseline,
    levels: tuple[float, float],
    pairs: int,
    choose: random.Random,
) -> Judgement:
    """The judgement after candidate and control, of these levels, have run in turn."""
    gate, noise = cell.gate, NOISES[cell.noise]
    candidate, control = (
        measurement(gate.metric, islice(noise.runs(level, gate.better.sign, choose), pairs))
        for level in levels
    )
    runs = ControlRuns(interleaved=InterleavedRuns(candidate=candidate, control=control))
    # Both arms are whole, so what would be said without them is not asked for.
    return confirm(
        judgement, runs, baseline, min_loss_percent=gate.floor, without_control=judgement
    )


def nights(
    cell: Cell, trials: int, seed: str, make_rule: Callable[..., Rule] = rule_for
) -> Outcome:
    """So many nights of a cell."""
    choose = random.Random(zlib.crc32(f"{cell}{seed}".encode()))  # noqa: S311 - a simulation
    first: Counter[Verdict] = Counter()
    final: Counter[Verdict] = Counter()
    taken, visible, claimed = 0, 0.0, 0.0
    for _ in range(trials):
        night = one_night(cell, choose, make_rule)
        first[night.first] += 1
        final[night.final] += 1
        taken += night.runs
        visible += night.visible_percent
        claimed += night.claimed
    return Outcome(trials, first, final, taken, visible, claimed)


def _chunk(task: tuple[Cell, int, str]) -> tuple[Cell, Outcome]:
    cell, trials, seed = task
    return cell, nights(cell, trials, seed)


def simulate(cells: Iterable[Cell], trials: int, processes: int) -> dict[Cell, Outcome]:
    """All cells, spread over processes; the number of processes changes no figure."""
    tasks = [
        (cell, min(CHUNK, trials - start), f"/{start}")
        for cell in dict.fromkeys(cells)
        for start in range(0, trials, CHUNK)
    ]
    outcomes: dict[Cell, Outcome] = {}
    if processes == 1:
        done: Iterable[tuple[Cell, Outcome]] = map(_chunk, tasks)
        for cell, outcome in done:
            outcomes[cell] = outcomes.get(cell, NOTHING) + outcome
        return outcomes
    with multiprocessing.Pool(processes) as pool:
        for cell, outcome in pool.imap_unordered(_chunk, tasks):
            outcomes[cell] = outcomes.get(cell, NOTHING) + outcome
    return outcomes
