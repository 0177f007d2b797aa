"""Probes beside a training: before it on the same hosts, and once it is red, to say why."""

import re

import pytest
from msgspec.structs import replace
from trainers import SYSTEM, TinySystem

from pytest_dlperf.history.companions import weighed
from pytest_dlperf.model.builtin import builtin_metrics
from pytest_dlperf.model.judgement import (
    Companion,
    Decision,
    Judgement,
    Verdict,
)
from pytest_dlperf.report.words import probes

PROBE = """\
framework: probe
model: {model}
resource: {resource}
repeats: 1
metrics:
  bandwidth: {{record: 'bandwidth (?P<value>[^ ]+)', unit: GB/s, better: higher}}
launch:
  devices: cpu
  command: ["{{python}}", -c, "print('bandwidth', open('{file}').read())"]
cases: [{{topologies: [1n1g]}}]
"""
SOUND = {"cpu": "50.0", "net": "10.0"}
CASE = "tiny-mlp-fp32-b4-1n1g"
THROUGHPUT = builtin_metrics("samples/s")["throughput"]


def blamed(explanation):
    """The resources that the probes blame."""
    found = explanation.get("companions", ())
    return [one["resource"] for one in found if one["is_blamed"]]


class Probed:
    """The tiny system with probes beside it, all with accepted numbers."""

    def __init__(self, suite, *keys):
        self.suite = suite
        self.tiny = TinySystem(suite, topologies=["1n1g"], keys=keys)
        for model, resource in (("cpu", "compute"), ("net", "network")):
            file = suite.path / f"{model}.txt"
            text = PROBE.format(model=model, resource=resource, file=file)
            suite.system_file(text, f"{model}.yaml")
        self.measure(**SOUND)
        suite.run("--dlperf-cluster=local", "--dlperf-create-baselines").assert_outcomes(passed=3)

    def measure(self, **found):
        for model, number in found.items():
            (self.suite.path / f"{model}.txt").write_text(number)

    def red_night(self, *arguments):
        """Judge the training alone, half as fast as it was."""
        self.tiny.behave("0.02")
        result, results = self.suite.judge("-k", "tiny", *arguments, cluster="local")
        [case] = results["cases"]
        explanation = case["explanations"].get("throughput", {})
        return result, {**case["metrics"]["throughput"], "explanation": explanation}


BOTH = "companions: [probe-cpu, probe-net]"


@pytest.mark.ci
def test_a_red_training_names_the_resource_that_was_lost(suite, workers):
    probed = Probed(suite, BOTH)
    probed.measure(net="3.0")
    forms = {name: suite.path / name for name in ("r.md", "r.html", "r.xml")}
    result, metric = probed.red_night(
        *workers, f"--dlperf-markdown={forms['r.md']}", f"--dlperf-html={forms['r.html']}",
        f"--junitxml={forms['r.xml']}",
    )  # fmt: skip
    assert result.ret == 1
    assert metric["verdict"] == "regressed"
    assert blamed(metric["explanation"]) == ["network"]
    said = (
        "on the same hosts probe-net-1n1g bandwidth -70.0 %: the network; "
        "compute probe is unchanged"
    )
    assert f"  probes     {said}" in result.stdout.str()
    assert "to do: look first at the network of its hosts" in result.stdout.str()
    for form in forms.values():
        # Without the marks of code.
        assert said in re.sub(r"</?code>|`", "", form.read_text()), form
    # Its runs are no case's own.
    logs = [*suite.path.glob(f".dlperf/runs/*/companions/{CASE}/probe-net/1n1g/*.log")]
    assert {log.read_text() for log in logs} == {"bandwidth 3.0\n"}


@pytest.mark.nightly
@pytest.mark.in_process
def test_probes_that_are_as_ever_are_quoted_and_none_runs_on_a_green_night(suite):
    probed = Probed(suite, BOTH)
    assert suite.run("--dlperf-cluster=local", "-k", "tiny").ret == 0
    assert not list(suite.path.glob(".dlperf/runs/*/companions"))
    result, metric = probed.red_night()
    assert blamed(metric["explanation"]) == []
    result.stdout.fnmatch_lines(
        ["  probes     on the same hosts compute and network probes are unchanged"]
    )


@pytest.mark.nightly
@pytest.mark.in_process
def test_a_companion_that_cannot_be_judged_is_told(suite):
    probed = Probed(suite, BOTH)
    (suite.path / "baselines/local/probe-cpu.yaml").unlink()
    probed.measure(net="many")
    _, metric = probed.red_night()
    found = {one["case_id"]: one for one in metric["explanation"]["companions"]}
    assert {name: one["verdict"] for name, one in found.items()} == {
        "probe-cpu-1n1g": "no_baseline",
        "probe-net-1n1g": "invalid",
    }
    assert not any(one["is_blamed"] for one in found.values())


@pytest.mark.in_process
@pytest.mark.parametrize("strict", [[], ["--dlperf-strict"]])
def test_a_training_whose_probe_breaks_is_not_started(suite, strict):
    probed = Probed(suite, "needs: [probe-net]")
    (suite.path / "net.txt").unlink()
    before = probed.tiny.starts()
    result, metric = probed.red_night(*strict)
    assert probed.tiny.starts() == before
    assert result.ret == 1
    assert metric["verdict"] == "not_started"
    assert "probe-net-1n1g, which it needs, failed on the same hosts" in metric["reason"]
    assert "No such file" in metric["reason"]
    shown = result.stdout.str()
    assert "the only case was not started, for a probe that it needs" in shown
    assert "to do: look at its hosts" in shown
    assert "accepted software" not in shown
    assert "the trainer" not in metric["reason"]


@pytest.mark.in_process
def test_a_probe_that_does_not_break_lets_the_training_start(suite):
    probed = Probed(suite, "needs: [probe-net]")
    probed.measure(net="3.0")
    _, metric = probed.red_night()
    assert metric["verdict"] == "regressed"
    assert blamed(metric["explanation"]) == ["network"]


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("needs: [probe-nett]", "declares the probe probe-nett; did you mean 'probe-net'?"),
        (f"companions: [{SYSTEM}]", f"no other system file declares the probe {SYSTEM}"),
        ("companions: [probe-two]", f"probe-two has none of the topologies of {SYSTEM}"),
    ],
)
def test_a_wrong_name_is_a_mistake_of_the_file(suite, key, message):
    TinySystem(suite, topologies=["1n1g"], keys=[key])
    for model, topology in (("net", "1n1g"), ("two", "2n1g")):
        text = PROBE.format(model=model, resource="network", file="none")
        suite.system_file(text.replace("1n1g", topology), f"{model}.yaml")
    assert message in suite.refused()


# ------------------------------------------------------------------------------- who is blamed


def lost(percent):
    """A training that has lost so much."""
    decision = Decision(
        verdict=Verdict.REGRESSED, reference=100.0,
        difference_percent=-percent, tolerance_percent=5.0,
    )  # fmt: skip
    return Judgement(
        metric=THROUGHPUT, verdict=Verdict.REGRESSED, measured=100 - percent,
        decision=decision,
    )  # fmt: skip


def probe(resource, percent, *, is_time=False):
    """A probe that is worse by so much; 0: as ever."""
    return Companion(
        case_id=f"probe-{resource}-4n1g",
        resource=resource,
        metric="bandwidth",
        verdict=Verdict.REGRESSED if percent else Verdict.PASS,
        difference_percent=percent if is_time else -percent,
        loss_percent=percent,
    )


@pytest.mark.parametrize(
    ("probes", "resource"),
    [
        ([probe("compute", 0), probe("network", 60)], "network"),
        ([probe("compute", 50), probe("network", 60)], "compute"),  # which the network waits for
        ([probe("compute", 8), probe("network", 60)], "network"),
        ([probe("disk", 75), probe("network", 98)], "network"),  # 4 times as slow, and 50 times
        ([probe("compute", 8), probe("network", 0)], None),  # far less than was lost
        ([probe("disk", 200, is_time=True)], "disk"),  # a time of three times as long
        ([probe("disk", 11, is_time=True)], None),
    ],
)
def test_the_first_probe_whose_loss_explains_it_is_blamed(probes, resource):
    found = [one.resource for one in weighed(lost(40.0), probes) if one.is_blamed]
    assert found == ([] if resource is None else [resource])


def test_a_probe_that_hangs_where_the_training_hangs_is_blamed():
    hung = replace(probe("network", 0), verdict=Verdict.HUNG, reason="no end within 60 s")
    training = Judgement(metric=THROUGHPUT, verdict=Verdict.HUNG)
    found = weighed(training, [probe("compute", 0), hung])
    assert [one.is_blamed for one in found] == [False, True]
    assert str(probes(found)) == (
        "on the same hosts probe-network-4n1g hung (no end within 60 s): the network; "
        "compute probe is unchanged"
    )
