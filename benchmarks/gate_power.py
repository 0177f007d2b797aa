"""What the gate sees and how often it cries wolf, by simulation of the gate itself.

Baselines and nights are drawn from models of noise and given to the project's own functions, the
same that a session calls: they choose the rule, ask for one more run or decide, judge speedups and
the control arm. The tables are printed, and the exit code is 1 if a target below them is missed.

    python benchmarks/gate_power.py [--trials 100000] [--processes 2]

A trial takes some 0.4 ms, all fields five minutes. The seeds are fixed: the same number of trials
gives the same tables.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
import sys
import time
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate.control import ControlRuns, confirm
from pytest_dlperf.gate.noise import are_unstable
from pytest_dlperf.gate.rules import Terms, rule_for
from pytest_dlperf.gate.sequential import CONFIRMED_LOSS_PERCENT, MIN_LOSS_PERCENT
from pytest_dlperf.gate.verdicts import End, Question, decide
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


@dataclass(frozen=True, slots=True)
class Noise:
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


@dataclass(frozen=True, slots=True)
class Gate:
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


@dataclass(frozen=True, slots=True)
class Cell:
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


@dataclass(frozen=True, slots=True)
class Outcome:
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


def end(gate: Gate, values: Iterable[float], *baselines: Baseline) -> End:
    """A measurement with these runs, and what is accepted of it."""
    return End(measurement(gate.metric, values), {known.metric: known for known in baselines})


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
    judgement = decide(Question(gate.metric, end(gate, runs, baseline), gate.terms))
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
    judgement = decide(Question(metric, ends[0], gate.terms, ends[1]))
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
    return confirm(judgement, runs, [baseline], min_loss_percent=gate.floor, alone=judgement)


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


# ------------------------------------------------------------------------------- tables

RULE_COLUMNS: Final = (
    ("FA cv .3", "cv .3", 0.0),
    ("FA cv 1", "cv 1", 0.0),
    ("FA cv 2.5", "cv 2.5", 0.0),
    ("FA strays", "strays", 0.0),
    ("FA modes", "modes", 0.0),
    ("FA night", "cv 1, nights 1", 0.0),
    ("3 % cv 1", "cv 1", 0.03),
    ("5 % cv 2.5", "cv 2.5", 0.05),
)
RULE_ROWS: Final = (*TOLERANCES, ITSELF, SPEEDUP)
DRIFT_ROWS: Final = ("cv .3", "cv 1", "cv 2.5", "cv 1, nights 1")
CREPT: Final = (0.04, 0.05, 0.06, 0.07)
VISIBLE_ROWS: Final = ("cv .3", "cv 1", "cv 1.5", "cv 2.5", "cv 4")
CONTROL_ROWS: Final = ("cv .3", "cv 1", "cv 2.5", "strays", *NIGHTS)
CONTROL_LOSSES: Final = (0.0, 0.015, 0.02, 0.03, 0.05)
DIRECTIONS: Final = {Better.HIGHER: "", Better.LOWER: "  lower is better"}


def fields() -> list[Cell]:
    """Every field of every table, for a metric that is better the higher it is."""
    return [
        *(Cell(gate, noise, loss) for gate in RULE_ROWS for _, noise, loss in RULE_COLUMNS),
        *(Cell(ITSELF, noise, None) for noise in VISIBLE_ROWS),
        *(Cell(ITSELF, noise, 0.0, crept) for noise in DRIFT_ROWS for crept in CREPT),
        *(
            Cell(gate, noise, loss)
            for gate in (CONTROLLED, CONFIRMED)
            for noise in CONTROL_ROWS
            for loss in CONTROL_LOSSES
        ),
    ]


def all_cells() -> list[Cell]:
    """Every field once for each direction."""
    return [cell.towards(better) for better in DIRECTIONS for cell in fields()]


def percent(part: float) -> str:
    """A part in percent, with as many decimals as its size deserves."""
    return f"{100 * part:.2f}" if part < 0.1 else f"{100 * part:.1f}"  # noqa: PLR2004


def tables(outcomes: dict[Cell, Outcome]) -> Iterable[str]:
    """All tables, line by line."""
    yield "Alarms in %: when nothing changed (FA), and after a loss"
    yield ""
    yield from rule_table(outcomes)
    yield ""
    yield "The loss that the sequential rule says it sees nine times out of ten, and how often"
    yield ""
    for noise in VISIBLE_ROWS:
        for better, direction in DIRECTIONS.items():
            seen = outcomes[Cell(ITSELF, noise, None).towards(better)]
            visible = seen.visible_percent / seen.trials
            yield f"{direction or noise:<26}{visible:>9.1f} %{percent(seen.alarms()):>9} %"
    yield ""
    yield "Alarms in % when so much has crept away since the number was accepted, 0.2 % a night"
    yield ""
    yield f"{'noise':<26}" + "".join(f"{f'{100 * crept:g} % lost':>11}" for crept in CREPT)
    for noise in DRIFT_ROWS:
        for better, direction in DIRECTIONS.items():
            cells = (Cell(ITSELF, noise, 0.0, crept).towards(better) for crept in CREPT)
            alarms = "".join(f"{percent(outcomes[cell].alarms()):>11}" for cell in cells)
            yield f"{direction or noise:<26}{alarms}"
    for gate in (CONTROLLED, CONFIRMED):
        yield ""
        yield f"Losses from {gate.floor:g} % on, with a control arm after a fail: alarms that stand"
        yield ""
        yield from control_table(gate, outcomes)


def rule_table(outcomes: dict[Cell, Outcome]) -> Iterable[str]:
    """The rules beside each other."""
    yield f"{'rule':<26}" + "".join(f"{name:>11}" for name, _, _ in RULE_COLUMNS)
    for gate in RULE_ROWS:
        for better, direction in DIRECTIONS.items():
            cells = (Cell(gate, noise, loss).towards(better) for _, noise, loss in RULE_COLUMNS)
            row = [outcomes[cell] for cell in cells]
            alarms = "".join(f"{percent(outcome.alarms()):>11}" for outcome in row)
            yield f"{direction or gate.name:<26}{alarms}"
            if gate is ITSELF:
                undecided = "".join(f"{percent(outcome.undecided()):>11}" for outcome in row)
                yield f"{'    inconclusive':<26}{undecided}"
                runs = "".join(f"{outcome.runs_each():>11.2f}" for outcome in row)
                yield f"{'    runs it takes':<26}{runs}"


def control_table(gate: Gate, outcomes: dict[Cell, Outcome]) -> Iterable[str]:
    """What stands of the alarms by this gate, after losses of nothing and more."""
    heads = (
        "first alarm",
        *(f"{100 * loss:g} % lost" for loss in CONTROL_LOSSES),
        "runs",
        "at 3 %",
    )
    yield f"{'noise':<20}" + "".join(f"{head:>12}" for head in heads)
    for noise in CONTROL_ROWS:
        for better, direction in DIRECTIONS.items():
            row = {
                loss: outcomes[Cell(gate, noise, loss).towards(better)] for loss in CONTROL_LOSSES
            }
            quiet = row[0.0]
            shown = (
                percent(quiet.first_alarms()),
                *(percent(outcome.alarms()) for outcome in row.values()),
                *(f"{outcome.runs_each():.1f}" for outcome in (quiet, row[0.03])),
            )
            yield f"{direction or noise:<20}" + "".join(f"{field:>12}" for field in shown)


# ------------------------------------------------------------------------------ targets


@dataclass(frozen=True, slots=True)
class Target:
    """What has to hold of a cell: alarms (as a part of nights) or runs, at most or at least."""

    name: str
    cell: Cell
    at_most: float | None = None
    at_least: float | None = None
    most_runs: float | None = None

    def missed(self, outcome: Outcome) -> str | None:
        """How it is missed by more than chance: three standard errors; ``None`` if it holds."""
        if self.most_runs is not None:
            runs = outcome.runs_each()
            return f"{runs:.2f} runs" if runs > self.most_runs else None
        alarms = outcome.alarms()
        for limit, sign in ((self.at_most, 1), (self.at_least, -1)):
            if limit is None:
                continue
            chance = 3 * math.sqrt(limit * (1 - limit) / outcome.trials)
            if sign * (alarms - limit) > chance:
                return f"{percent(alarms)} % of {outcome.trials} nights"
        return None


ONE_WAY: Final = (
    *(
        Target(f"at most 0.5 % false alarms, {noise}", Cell(ITSELF, noise, 0.0), at_most=0.005)
        for noise in ("cv .3", "cv 1", "cv 2.5", "strays")
    ),
    Target("3 % seen at cv 1 in 95 %", Cell(ITSELF, "cv 1", 0.03), at_least=0.95),
    Target("5 % seen at cv 2.5 in 95 %", Cell(ITSELF, "cv 2.5", 0.05), at_least=0.95),
    *(
        Target(f"at most 3.5 runs, {noise}", Cell(ITSELF, noise, 0.0), most_runs=3.5)
        for noise in ("cv .3", "cv 1", "cv 2.5", "strays")
    ),
    *(
        Target(f"what it says it sees, {noise}", Cell(ITSELF, noise, None), at_least=0.90)
        for noise in VISIBLE_ROWS
    ),
    Target("2 % confirmed at cv 1 in 93 %", Cell(CONFIRMED, "cv 1", 0.02), at_least=0.93),
    *(
        Target(f"at most 0.3 % confirmed, {noise}", Cell(CONFIRMED, noise, 0.0), at_most=0.003)
        for noise in ("cv .3", "cv 1", "cv 1, nights .5", "cv 1, nights 1")
    ),
)
TARGETS: Final = (
    *ONE_WAY,
    # Noise is a part of the level, and here a loss raises that.
    *(
        replace(
            target,
            name=f"{target.name}, lower is better",
            cell=target.cell.towards(Better.LOWER),
            at_least=target.at_least and 0.98 * target.at_least,
        )
        for target in ONE_WAY
    ),
)


def check_targets(
    outcomes: dict[Cell, Outcome], targets: Sequence[Target] = TARGETS
) -> tuple[list[str], bool]:
    """A line for each target, and whether all of them hold."""
    lines = []
    holds = True
    for target in targets:
        missed = target.missed(outcomes[target.cell])
        lines.append(
            f"{'missed' if missed else 'holds ':<8}{target.name}"
            + (f": {missed}" if missed else "")
        )
        holds = holds and missed is None
    return lines, holds


def main() -> int:
    """Simulate and print; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=5_000, help="nights of each field")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.trials < 1 or options.processes < 1:
        parser.error("--trials and --processes are at least 1")
    started = time.perf_counter()
    outcomes = simulate(all_cells(), options.trials, options.processes)
    for line in tables(outcomes):
        print(line)
    lines, holds = check_targets(outcomes)
    print("", *lines, sep="\n")
    print(f"\n{options.trials} nights a field, {time.perf_counter() - started:.0f} s")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
