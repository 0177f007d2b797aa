"""Suspects that a log contradicts its case where the declared format has no facts.

The system that ships for a trainer knows how its logs say these. An example: a format of one's own
for torchtitan, filed under a case without ``parallel``, and in the head of the log::

    Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=1, cp=1, tp=2, ep=1

Two devices share each sample there: counted as two replicas, they are twice as fast as they were.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pytest_dlperf.formats.meanings import facts_of, trainers_in
from pytest_dlperf.logs.fact_check import FactCheck
from pytest_dlperf.logs.judges import Judge
from pytest_dlperf.logs.reader import Region

if TYPE_CHECKING:
    from pytest_dlperf.logs.judges import Evidence

_REACH: Final = 1024 * 1024
"""Bytes at the log's begin in which a trainer has introduced itself."""


class FactsOfTrainer(Judge):
    """Refuses a log of a known trainer that says another work or layout than the case."""

    def decide(self, evidence: Evidence) -> None:
        """Look for the trainer's facts in front of the window."""
        log_format = self.log_format
        if isinstance(log_format.record, re.Pattern):
            return
        begin = min((series.rows[0][2] for series in evidence.series.values()), default=0)
        line = evidence.line(begin)
        known = {fact.name for fact in log_format.facts}
        for trainer in trainers_in(line):
            if not trainer.system:
                continue
            facts = tuple(fact for fact in facts_of(trainer.system) if fact.name not in known)
            check = FactCheck(replace(log_format, facts=facts, neighbours=()), self.case)
            head = bytearray(evidence.text(0, min(begin, _REACH)))
            check.look(Region(head, len(head), 0, terminated=True), len(head), in_header=True)
            check.settle()
