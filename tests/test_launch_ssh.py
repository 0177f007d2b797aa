"""Cases that are launched over ssh, on hosts with a real sshd each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from clusters.ssh import SshHosts
    from suites import Suite

pytestmark = pytest.mark.ssh


@pytest.fixture
def over_ssh(ssh_hosts: SshHosts, monkeypatch: pytest.MonkeyPatch) -> SshHosts:
    """Hosts that the sessions of a test launch on, two devices each."""
    monkeypatch.setenv("DLPERF_SSH", ssh_hosts.ssh_command)
    monkeypatch.setenv("DLPERF_HOSTS", ",".join(f"{name}:2" for name in ssh_hosts.names))
    return ssh_hosts


@pytest.mark.training
@pytest.mark.usefixtures("over_ssh")
def test_real_training_on_several_hosts_is_judged(suite: Suite) -> None:
    selected = ["-m", "smoke", "-k", "throughput and (2n1g or 1n2g)", "--dlperf-repeats", "1"]
    first, results = suite.judge(*selected, "--dlperf-create-baselines", cluster="local")
    assert first.ret == 0
    assert {case["topology"] for case in results["cases"]} == {"2n1g", "1n2g"}
    second, results = suite.judge(*selected, cluster="local")
    for case in results["cases"]:
        assert case["verdict"]["throughput"] in {"pass", "improved", "regressed"}
        assert case["runs"][0]["status"] == "ok"
    assert second.ret in {0, 1}
