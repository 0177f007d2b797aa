"""What differs between the accepted number, the last good night and tonight, and in which order."""

import pytest
from msgspec.structs import replace

from pytest_dlperf.model.differences import (
    ABSENT,
    GIVEN,
    arguments_by_name,
    compared,
    differences_of,
)
from pytest_dlperf.model.judgement import DifferenceKind
from pytest_dlperf.model.measurement import Fingerprint, LaunchFacts

TRAIN = ("{python}", "-m", "torch.distributed.run", "train.py", "--batch-size", "128", "--amp")
LAUNCH = LaunchFacts(
    launcher="ssh",
    arguments=TRAIN,
    environment={"NCCL_DEBUG": "WARN", "HF_TOKEN": "***"},
    working_directory="/opt/training",
)
BEFORE = Fingerprint(
    commits={"suite": "0123456789ab", "megatron": "aaaaaaaaaaaa+a.py"},
    software={"torch": "2.9.0", "nccl": "2.27.5", "numpy": "2.1", "kernel": "6.8.0-51"},
    machine={"device": "H100"},
    hosts=("node1", "node2"),
    launch=LAUNCH,
)


def launched(**changes):
    assert BEFORE.launch is not None
    return replace(BEFORE, launch=replace(BEFORE.launch, **changes))


def arguments(*others):
    return launched(arguments=others)


def changed(
    tonight,
    *,
    accepted=BEFORE,
    last_good=BEFORE,
    **others,
):
    return list(differences_of(tonight, accepted=accepted, last_good=last_good, **others))


def told(differences):
    return [(one.name, one.last_good, one.now) for one in differences]


def test_sides_that_are_equal_or_unknown_do_not_differ():
    assert changed(BEFORE) == []
    assert changed(Fingerprint()) == []
    assert changed(BEFORE, accepted=None, last_good=Fingerprint()) == []


@pytest.mark.parametrize(
    ("tonight", "difference"),
    [
        pytest.param((*TRAIN, "--delay", "9"), ("--delay", ABSENT, "9"), id="an option more"),
        pytest.param((*TRAIN, "--delay=9"), ("--delay", ABSENT, "9"), id="joined by ="),
        pytest.param((*TRAIN, "--", "-3"), ("argument 2", ABSENT, "--"), id="a separator"),
        pytest.param(TRAIN[:-1], ("--amp", GIVEN, ABSENT), id="a switch less"),
        pytest.param(
            (*TRAIN[:4], "--batch-size=256", "--amp"),
            ("--batch-size", "128", "256"),
            id="another value, joined",
        ),
        pytest.param(
            (*TRAIN[:3], "bench.py", *TRAIN[4:]), ("argument 1", "train.py", "bench.py"), id="word"
        ),
        pytest.param(
            (*TRAIN, "-e", "NCCL_ALGO=Ring"), ("-e NCCL_ALGO", ABSENT, "Ring"), id="a pair"
        ),
        pytest.param((*TRAIN, "model.lr=-1e-3"), ("model.lr", ABSENT, "-1e-3"), id="an override"),
    ],
)
def test_a_changed_argument_is_told_by_its_name_alone(tonight, difference):
    (first, *others) = changed(arguments(*tonight))

    assert told([first]) == [difference]
    assert first.kind is DifferenceKind.COMMAND
    assert len(others) == (1 if "-3" in tonight else 0)


def test_the_order_of_options_and_the_way_a_value_is_joined_do_not_differ():
    same = (*TRAIN[:4], "--amp", "--batch-size=128")

    assert changed(arguments(*same)) == []


def test_of_an_option_given_several_times_the_new_values_are_told():
    before, after = (
        arguments("mpirun", *(word for name in names for word in ("-x", name)))
        for names in (("PATH", "HOME", "LANG", "TERM"), ("PATH", "HOME", "LANG", "A"))
    )

    (found,) = changed(after, accepted=None, last_good=before)

    assert (found.name, found.last_good, found.now) == ("-x", "TERM and 3 more", "A and 3 more")


def test_of_a_shell_s_script_the_changed_word_is_told():
    script = "cd /opt/training && OMP_NUM_THREADS={} torchrun train.py --lr {} 'a b'"
    before, after = (
        arguments("bash", "-lc", script.format(*values)) for values in (("4", "0.1"), ("8", "0.2"))
    )

    found = changed(after, accepted=None, last_good=before)

    assert told(found) == [("OMP_NUM_THREADS", "4", "8"), ("--lr", "0.1", "0.2")]


def test_ten_thousand_words_are_read():
    words = [f"word{number % 53}" for number in range(10_000)]

    assert arguments_by_name(words)["argument 9999"] == [words[-1]]


def test_what_came_with_the_change_goes_before_what_differed_already():
    last_good = launched(environment={"NCCL_DEBUG": "INFO"})
    tonight = replace(last_good, software={**BEFORE.software, "numpy": "2.2"})

    found = changed(tonight, last_good=last_good)

    assert [(one.name, one.came_with_it) for one in found] == [
        ("numpy", True),
        ("HF_TOKEN", False),
        ("NCCL_DEBUG", False),
    ]
    assert found[2].accepted == "WARN"


def test_by_hand_goes_before_software_and_software_before_hosts():
    tonight = replace(
        launched(arguments=(*TRAIN, "--delay", "9"), environment={"NCCL_DEBUG": "INFO"}),
        commits={"suite": "0123456789ab", "megatron": "bbbbbbbbbbbb"},
        software={"torch": "2.9.1", "nccl": "2.27.5", "numpy": "2.2", "kernel": "6.8.0-52"},
        hosts=("node1", "node3"),
    )

    assert told(changed(tonight)) == [
        ("--delay", ABSENT, "9"),
        ("HF_TOKEN", "***", ABSENT),
        ("NCCL_DEBUG", "WARN", "INFO"),
        ("megatron", "aaaaaaaaaaaa+a.py", "bbbbbbbbbbbb"),
        ("torch", "2.9.0", "2.9.1"),
        ("kernel", "6.8.0-51", "6.8.0-52"),
        ("numpy", "2.1", "2.2"),
        ("hosts", "node1, node2", "node1, node3"),
    ]


def test_what_is_another_value_each_night_is_not_what_somebody_has_changed():
    def night(number, level):
        return launched(environment={"RUN_NAME": f"nightly-{number}", "NCCL_DEBUG": level})

    sides = [night(number, "WARN") for number in "12"]
    found = changed(night("3", "INFO"), accepted=sides[0], last_good=sides[1])

    assert [one.name for one in found] == ["NCCL_DEBUG", "RUN_NAME"]


def test_what_the_accepted_launch_lacked_is_set_by_hand_though_it_has_changed_since():
    last_good = replace(arguments(*TRAIN, "--delay-ms=45"), commits={"suite": "1" * 12})
    tonight = replace(arguments(*TRAIN, "--delay-ms=10"), commits={"suite": "2" * 12})

    found = changed(tonight, last_good=last_good)

    assert [one.name for one in found] == ["--delay-ms", "suite"]


def test_what_changed_after_the_number_has_not_come_with_it():
    tonight = replace(BEFORE, software={**BEFORE.software, "torch": "2.9.1", "nccl": "2.28"})
    first_bad = replace(BEFORE, software={**BEFORE.software, "nccl": "2.28"})

    found = changed(tonight, since=first_bad)

    assert [(one.name, one.came_with_it) for one in found] == [("nccl", True), ("torch", False)]


def test_what_was_changed_back_is_no_suspect():
    first_bad = replace(BEFORE, hosts=("node1", "node9"))

    assert changed(BEFORE, since=first_bad) == []


def test_what_is_as_accepted_again_is_less_suspicious_than_what_is_new():
    last_good = launched(environment={"NCCL_DEBUG": "INFO", "HF_TOKEN": "***"})
    tonight = replace(BEFORE, hosts=("node1", "node3"))

    found = changed(tonight, last_good=last_good)

    assert [one.name for one in found] == ["hosts", "NCCL_DEBUG"]


def test_of_many_hosts_the_new_and_the_gone_are_told():
    nodes = [f"node{number:02}" for number in range(1, 33)]
    good = replace(BEFORE, hosts=tuple(nodes))
    tonight = replace(BEFORE, hosts=("spare1", *reversed(nodes[1:])))

    (found,) = changed(tonight, accepted=None, last_good=good)

    assert (found.accepted, found.last_good) == (None, "node01 and 31 more")
    assert found.now == "spare1 and 31 more"


def test_a_checkout_of_trainer_and_system_files_is_told_once_as_the_trainers():
    good = compared(Fingerprint(commits={"code": "a" * 40}), "a" * 12)
    tonight = compared(Fingerprint(commits={"code": "b" * 40}), "b" * 12)

    assert [one.name for one in changed(tonight, accepted=None, last_good=good)] == ["code"]


def test_a_side_whose_launch_nobody_knows_is_told_from_one_that_lacks_it():
    tonight = launched(environment={**LAUNCH.environment, "EMPTY": ""})

    (found,) = changed(tonight, accepted=replace(BEFORE, launch=None))

    assert (found.accepted, found.last_good, found.now) == (None, ABSENT, "''")


def test_hosts_of_the_accepted_number_are_less_suspicious_than_new_software():
    good = replace(BEFORE, hosts=("node3",))
    tonight = replace(BEFORE, hosts=("node1",), software={**BEFORE.software, "numpy": "2.2"})

    found = changed(tonight, accepted=replace(BEFORE, hosts=("node1",)), last_good=good)

    assert [one.name for one in found] == ["numpy", "hosts"]
