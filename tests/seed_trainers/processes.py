"""One process per device, as launchers of training start them."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn


def run_all(programs: Iterable[Callable[[], object]]) -> None:
    """Run each in a process of its own, and end all others when one of them fails.

    The processes are forked, because to start dozens of interpreters takes seconds.

    Raises:
        SystemExit: One failed.
    """
    sys.stdout.flush()
    children = {_forked(program) for program in programs}
    failed = False
    while children:
        child, status = os.wait()
        children.discard(child)
        if status and not failed:
            failed = True
            for other in children:
                with suppress(ProcessLookupError):
                    os.kill(other, signal.SIGTERM)
    if failed:
        raise SystemExit(1)


def script(
    arguments: Sequence[str], environment: Mapping[str, str], output: str | None = None
) -> Callable[[], object]:
    """A script with its arguments, to be run as if by an interpreter of its own."""

    def run() -> None:
        os.environ.update(environment)
        if output is not None:
            file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, 1)
        sys.argv = list(arguments)
        sys.path[0] = os.path.dirname(arguments[0])  # noqa: PTH120 - as an interpreter does
        runpy.run_path(arguments[0], run_name="__main__")

    return run


def _forked(program: Callable[[], object]) -> int:
    child = os.fork()
    return child or _run_and_exit(program)


def _run_and_exit(program: Callable[[], object]) -> NoReturn:
    code = 1
    try:
        program()
        code = 0
    except SystemExit as wish:
        code = wish.code if isinstance(wish.code, int) else 1
        if isinstance(wish.code, str):
            sys.stderr.write(f"{wish.code}\n")
    except BaseException:  # noqa: BLE001 - told, and then the process ends whatever it was
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
