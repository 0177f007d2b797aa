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
from statistics import median
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.control import ControlRuns, confirm
from pytest_dlperf.gate.noise import are_unstable
from pytest_dlperf.gate.rules import Terms, rule_for
from pytest_dlperf.gate.sequential import CONFIRMED_LOSS_PERCENT, MIN_LOSS_PERCENT
from pytest_dlperf.gate.verdicts import GateInput, MeasuredCase, decide
from pytest_dlperf.model.baseline import AcceptedSession, Baseline
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Estimator, InterleavedRuns, Measurement, Run, RunStatus
from pytest_dlperf.model.metric import SPEEDUP_METRIC, Better, Metric, RuleName, Source, throughput
from pytest_dlperf.plugin.measuring import MIN_PAIRS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_dlperf.gate.rules import Rule
    from pytest_dlperf.model.judgement import Judgement

LEVEL: Final = 1000.0
METRICS: Final = {
    Better.HIGHER: throughput("samples/s"),
    Better.LOWER: Metric(name="step_time", unit="ms", better=Better.LOWER, source=Source.STEPS),
}
SESSIONS: Final = 6
RUNS_PER_SESSION: Final = 5
TOLERANCE_PERCENT: Final = 5.0
CHUNK: Final = 2000
DRIFT: Final = 0.002


class Noise(Struct, frozen=True):
    """A model of noise: everything is a part of the level.

    ``deviation`` is that between runs, ``strays`` the part of runs that are 20 to 75 % worse,
    ``modes`` the distance between two modes that runs are in by chance, ``nights`` the deviation
    between nights.
    """

    deviation: float
    strays: float = 0.0
    modes: float = 0.0
    nights: float = 0.0

    def night(self, choose: random.Random) -> float:
        """The level of one night."""
        return LEVEL * (1 + choose.gauss(0.0, self.nights)) if self.nights else LEVEL

    def run(self, level: float, better: Better, choose: random.Random) -> float:
        """The number of one run in a night of this level."""
        value = level * (1 + choose.gauss(0.0, self.deviation))
        if self.modes:
            value *= 1 + choose.choice((-0.5, 0.5)) * self.modes
        if self.strays and choose.random() < self.strays:
            value *= 1 - better.sign * choose.uniform(0.20, 0.75)
        return value


QUIET: Final = {
    "cv .3": Noise(0.003),
    "cv 1": Noise(0.01),
    "cv 2.5": Noise(0.025),
    "strays": Noise(0.01, strays=0.1),
    "modes": Noise(0.003, modes=0.03),
}
NIGHTS: Final = {
    "cv .3, nights .5": Noise(0.003, nights=0.005),
    "cv 1, nights .5": Noise(0.01, nights=0.005),
    "cv 1, nights 1": Noise(0.01, nights=0.01),
    "cv 1, nights 2": Noise(0.01, nights=0.02),
    "cv 2.5, nights 1": Noise(0.025, nights=0.01),
}
LOUD: Final = {"cv 1.5": Noise(0.015), "cv 4": Noise(0.04)}
NOISES: Final = {**QUIET, **NIGHTS, **LOUD}


class Gate(Struct, frozen=True):
    """How the gate is asked: by which rule, with which tolerance, and whether there is a control.

    ``baseline_sessions`` of ``baseline_runs`` runs each are accepted. ``floor`` is the smallest
    loss in percent that counts. With ``speedup`` a case of many devices is judged over one device
    of the same night, which has noise of its own.
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

    @property
    def metric(self) -> Metric:
        """What is judged, or what the speedup is over."""
        return METRICS[self.better]

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
TOLERANCES: Final = tuple(
    Gate(f"median of 5, -{percent:g} %, of {runs}", RuleName.TOLERANCE, percent, baseline_runs=runs)
    for percent, runs in ((5.0, 5), (5.0, 10), (3.0, 10), (2.0, 10))
)
"""Against the median of one session of 5 and of 10 runs."""


class Cell(Struct, frozen=True):
    """One field of a table: a gate, the name of a noise, and the loss of the candidate.

    ``None`` for the loss is exactly the one that the rule says it sees nine times out of ten.
    ``crept`` is what was lost before, in steps of 0.2 % a night, all of them accepted.
    """

    gate: Gate
    noise: str
    loss: float | None
    crept: float = 0.0

    def towards(self, better: Better) -> Cell:
        """The same for a metric of this direction."""
        return replace(self, gate=replace(self.gate, better=better))


class Outcome(Struct, frozen=True):
    """What came of a cell's nights: verdicts before and after the control arm, and runs taken.

    ``visible_percent`` is the sum of the losses that the gate said it would see.
    """

    trials: int
    first: Counter[Verdict]
    final: Counter[Verdict]
    runs: int
    visible_percent: float

    def __add__(self, other: Outcome) -> Outcome:
        """Both together."""
        return Outcome(
            self.trials + other.trials,
            self.first + other.first,
            self.final + other.final,
            self.runs + other.runs,
            self.visible_percent + other.visible_percent,
        )

    def first_alarms(self) -> float:
        """Part of the nights that were called regressed, before the control arm."""
        return self.first[Verdict.REGRESSED] / self.trials

    def alarms(self) -> float:
        """Part of the nights that were called regressed in the end."""
        return self.final[Verdict.REGRESSED] / self.trials

    def undecided(self) -> float:
        """Part of the nights that were called inconclusive in the end, which is red too."""
        return self.final[Verdict.INCONCLUSIVE] / self.trials

    def runs_each(self) -> float:
        """Runs that a night took."""
        return self.runs / self.trials


NOTHING: Final = Outcome(0, Counter(), Counter(), 0, 0.0)


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


def one_night(
    cell: Cell, choose: random.Random, make_rule: Callable[..., Rule]
) -> tuple[Verdict, Verdict, int, float]:
    """One night: the verdict, the verdict after the control arm, runs taken, loss that is seen."""
    gate, noise = cell.gate, NOISES[cell.noise]
    levels = levels_of(cell, choose)
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
    tonight = noise.night(choose) * (1 - gate.better.sign * cell.crept)
    level = tonight * (1 - gate.better.sign * loss)
    runs, verdict = series(rule, noise, level, choose)
    if gate.speedup:
        return (
            *speedup_night(cell, baseline, (levels, tonight), runs, choose, make_rule),
            visible,
        )
    if not gate.control or verdict is not Verdict.REGRESSED:
        return verdict, verdict, len(runs), visible
    judgement = decide(GateInput(gate.metric, end(gate, runs, baseline), gate.terms))
    # As many as a session takes: A B B A, and not too few to tell.
    pairs = max(MIN_PAIRS, len(runs) + len(runs) % 2)
    confirmed = confirmed_in_turn(cell, judgement, baseline, (level, tonight), pairs, choose)
    return judgement.verdict, confirmed.verdict, len(runs) + 2 * pairs, visible


def levels_of(cell: Cell, choose: random.Random) -> list[float]:
    """The levels of the accepted nights."""
    levels = [NOISES[cell.noise].night(choose) for _ in range(cell.gate.baseline_sessions)]
    if not cell.crept:
        return levels
    # The accepted one is from before; the last ones are those of the nights until tonight.
    last = [
        level * (1 - cell.gate.better.sign * (cell.crept - DRIFT * nights))
        for nights, level in zip(range(len(levels), 0, -1), levels, strict=True)
    ]
    return [NOISES[cell.noise].night(choose), *last]


def sessions_of(
    gate: Gate, noise: Noise, levels: Iterable[float], choose: random.Random
) -> list[list[float]]:
    """The runs of the accepted nights: one with too many strays is none, and comes again."""
    sessions = []
    for level in levels:
        runs = [noise.run(level, gate.better, choose) for _ in range(gate.baseline_runs)]
        while noise.strays and are_unstable(runs, noise.deviation):
            runs = [noise.run(level, gate.better, choose) for _ in range(gate.baseline_runs)]
        sessions.append(runs)
    return sessions


def series(
    rule: Rule, noise: Noise, level: float, choose: random.Random
) -> tuple[list[float], Verdict]:
    """As many runs at this level as the rule asks for, and what it makes of them."""
    runs: list[float] = []
    decision = None
    while decision is None:
        runs.append(noise.run(level, rule.better, choose))
        decision = rule.decide(runs, is_last=False)
    return runs, decision.verdict


def speedup_night(  # noqa: PLR0913, PLR0917 - a night has so many sides
    cell: Cell,
    many: Baseline,
    levels: tuple[Sequence[float], float],
    runs: Sequence[float],
    choose: random.Random,
    make_rule: Callable[..., Rule],
) -> tuple[Verdict, Verdict, int]:
    """The verdict on the speedup of a night whose many devices had these runs, twice, and runs.

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
    return judgement.verdict, judgement.verdict, len(runs)


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
        measurement(gate.metric, (noise.run(level, gate.better, choose) for _ in range(pairs)))
        for level in levels
    )
    runs = ControlRuns(interleaved=(InterleavedRuns(candidate=candidate, control=control),))
    # Both arms are whole, so what would be said without them is not asked for.
    return confirm(
        judgement, runs, [baseline], min_loss_percent=gate.floor, without_control=judgement
    )


def nights(
    cell: Cell, trials: int, seed: str, make_rule: Callable[..., Rule] = rule_for
) -> Outcome:
    """So many nights of a cell."""
    choose = random.Random(zlib.crc32(f"{cell}{seed}".encode()))  # noqa: S311 - a simulation
    first: Counter[Verdict] = Counter()
    final: Counter[Verdict] = Counter()
    taken, visible = 0, 0.0
    for _ in range(trials):
        before, after, runs, seen = one_night(cell, choose, make_rule)
        first[before] += 1
        final[after] += 1
        taken += runs
        visible += seen
    return Outcome(trials, first, final, taken, visible)


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
