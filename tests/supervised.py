"""A supervisor by itself, as a launcher starts it, and the orders that it is given."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from clusters.processes import LONG_S

from pytest_dlperf.launch.remote_call import sent_program, source_of
from pytest_dlperf.node import processes, supervisor


class Supervised:
    """A supervisor, and what it has reported."""

    def __init__(  # noqa: PLR0913 - all by name
        self,
        target: int | None = None,
        *,
        source: bytes | None = None,
        python: str = sys.executable,
        timeout_s: float = LONG_S,
        digits: int = 32,
        prefix: Sequence[str] = (),
    ) -> None:
        """Start it; what its program prints goes to ``target``."""
        self.marker = f"{uuid.uuid4().hex:0<{digits}}.0."
        source = source_of(supervisor) if source is None else source
        command, sent = sent_program(python, source, str(timeout_s), self.marker)
        self.process = subprocess.Popen(
            [*prefix, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=target,
            start_new_session=True,
        )
        self.reports: list[dict[str, Any]] = []
        self._rest = b""
        self.send(sent)

    def send(self, text: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def order(self, word: str, **details: object) -> None:
        self.send(f"{word} {json.dumps(details)}\n".encode())

    def start(self, *arguments: str, grace_s: float = 0.2, at_end: object = ()) -> None:
        self.order(
            "start",
            arguments=arguments,
            environment={processes.MARKER: self.marker},
            without="",
            in_front={},
            python_path=[],
            folder="/",
            needs_folder=False,
            grace_s=grace_s,
            log_file=None,
            at_end=at_end,
        )

    def said(self, word: str) -> list[Any]:
        return [report[word] for report in self.reports if word in report]

    def wait_for(self, word: str) -> Any:
        deadline = time.monotonic() + LONG_S
        while not self.said(word):
            assert time.monotonic() < deadline, f"never heard {word!r}: {self.reports}"
            assert self.take(1.0), f"ended without {word!r}: {self.reports}"
        return self.said(word)[0]

    def take(self, limit_s: float = LONG_S) -> bool:
        """Take what is reported within a time; say whether more may come."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], limit_s)[0]:
            return True
        received = os.read(self.process.stdout.fileno(), 65536)
        *lines, self._rest = (self._rest + received).split(b"\n")
        self.reports += [json.loads(line) for line in lines if line]
        return bool(received)

    def finish(self) -> int:
        """Let its input end, hear it out, and return its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        while self.take():
            pass
        return self.process.wait(LONG_S)


@contextmanager
def ended(run: Supervised) -> Iterator[Supervised]:
    """End a supervisor, and what is below it, after the block."""
    try:
        yield run
    finally:
        for process in (*processes.descendants(run.process.pid), run.process.pid):
            processes.send(process, signal.SIGKILL)
        run.process.wait(LONG_S)
        for pipe in (run.process.stdin, run.process.stdout):
            with suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]
