"""Damaged logs of which the truth is known: no crash, no wrong number, no false alarm."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "fuzz_logs.py"


# Measures three steps too early.
SPOILED = """
import sys
sys.path.insert(0, sys.argv[1])
sys.argv = ["fuzz_logs.py", "--mutants", "60", "--class", "sound", "--jobs", "1"]
from pytest_dlperf.logs import tracks
whole = tracks.Span.of.__func__


def earlier(cls, log_format, window):
    span = whole(cls, log_format, window)
    return cls(span.after - 3, span.last - 3, span.begin - 3)


tracks.Span.of = classmethod(earlier)
import fuzz_logs
sys.exit(fuzz_logs.main())
"""


def fuzz(*arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, "--jobs", "2", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_damaged_logs_do_not_fool_the_readers():
    """Each trainer's log with each disturbance, three times."""
    done = fuzz("--mutants", "600", "--seed", "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "other-trainer" in done.stdout


def test_a_mutant_is_made_again_from_its_token(tmp_path):
    shown = [
        fuzz("--one", "0:lost-steps:dllogger:17", "--keep", str(tmp_path / f"{k}.log"))
        for k in range(2)
    ]
    assert shown[0].stdout == shown[1].stdout
    assert (tmp_path / "0.log").read_bytes() == (tmp_path / "1.log").read_bytes()
    assert b"Iteration: " in (tmp_path / "0.log").read_bytes()


def test_a_reader_that_is_wrong_is_seen():
    done = subprocess.run(
        [sys.executable, "-c", SPOILED, str(SCRIPT.parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "wrong: sound" in done.stdout
