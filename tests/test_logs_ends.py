"""The records at the two ends of a window: what a second witness is asked of."""

import log_makers as make
import pytest

from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.throughput import LogReading
from pytest_dlperf.model.measurement import Estimator

TIMES = [0.5] * 150


def lines_at_ends(  # noqa: PLR0913 - a log and everything that it is judged by
    path,
    log,
    name,
    topology="1n1g",
    *,
    estimator=Estimator.STEADY,
    buffer_size=1 << 18,
):
    """The steps and the text of the first and the last record of each rank."""
    content = log.encode()
    (path / "run.log").write_bytes(content)
    reading = LogReading(
        path / "run.log",
        number=1,
        case=make.case(topology),
        log_format=BUILTIN_FORMATS[name],
        window=make.WINDOW,
        estimator=estimator,
        buffer_size=buffer_size,
    )
    assert reading.ends == {}
    reading.finish()

    def line(offset):
        return content[offset:].partition(b"\n")[0].decode()

    return {
        rank: (first.step, line(first.offset), last.step, line(last.offset))
        for rank, (first, last, *_) in reading.ends.items()
    }


@pytest.mark.parametrize("buffer_size", [300, 4096, 1 << 18])
def test_durations_begin_with_the_first_step_that_counts(tmp_path, buffer_size):
    log = make.paddle_resnet(TIMES)
    ends = lines_at_ends(tmp_path, log, "paddle_resnet", buffer_size=buffer_size)
    ((first, begins, last, closes),) = ends.values()
    assert (list(ends), first, last) == ([""], 21, 120)
    assert begins.startswith("Pass 0, train batch 20]")
    assert closes.startswith("Pass 0, train batch 119]")


@pytest.mark.parametrize("buffer_size", [300, 4096, 1 << 18])
def test_stamps_begin_where_the_window_does(tmp_path, buffer_size):
    ends = lines_at_ends(tmp_path, make.dllogger(TIMES), "dllogger", buffer_size=buffer_size)
    ((first, begins, last, closes),) = ends.values()
    assert (first, last) == (25, 125)
    assert "Iteration: 25 " in begins
    assert "Iteration: 125 " in closes


def test_each_rank_that_names_itself_has_its_own(tmp_path):
    ends = lines_at_ends(tmp_path, make.dlperf([TIMES] * 2), "dlperf", "1n2g")
    assert {rank: (first, last) for rank, (first, _, last, _) in ends.items()} == {
        "rank 0": (20, 120),
        "rank 1": (20, 120),
    }
    assert all(f"rank={rank[-1]} step=20 " in begins for rank, (_, begins, _, _) in ends.items())


def test_of_unnamed_ranks_the_last_record_of_a_step_counts(tmp_path):
    log = make.pytorch_imagenet([[0.5] * 150, [0.625] * 150], block=40)
    ((first, begins, last, closes),) = lines_at_ends(
        tmp_path, log, "pytorch_imagenet", "1n2g"
    ).values()
    assert (first, last) == (27, 126)
    assert begins.startswith("Epoch: [0][ 26/150]\tTime  0.625")
    assert closes.startswith("Epoch: [0][125/150]\tTime  0.625")


def test_an_unfinished_window_ends_with_its_last_record(tmp_path):
    ends = lines_at_ends(tmp_path, make.paddle_resnet(TIMES[:119]), "paddle_resnet")
    ((first, _, last, _),) = ends.values()
    assert (first, last) == (21, 119)


def test_counted_lines_have_none(tmp_path):
    log = make.paddle_resnet(TIMES)
    assert lines_at_ends(tmp_path, log, "paddle_resnet", estimator=Estimator.PUBLISHED) == {}
