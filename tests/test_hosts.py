"""Lists of hosts: what they mean, and that every mistake is told with its place."""

import re
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_dlperf.launch.hosts import (
    Host,
    describe_hosts,
    parse_hosts,
    slurm_hosts,
)
from pytest_dlperf.model.errors import UsageError


def parsed(text):
    hosts = parse_hosts(text, place="--dlperf-hosts")
    return [(host.name, host.address, host.devices) for host in hosts]


def names(text):
    return [host.name for host in parse_hosts(text, place="--dlperf-hosts")]


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", [("a", "a", None)]),
        ("a:8, b:4 ,c\n", [("a", "a", 8), ("b", "b", 4), ("c", "c", None)]),
        ("me@gpu1.example.com:8", [("me@gpu1.example.com", "gpu1.example.com", 8)]),
        ("10.0.0.1:8,10.0.0.2", [("10.0.0.1", "10.0.0.1", 8), ("10.0.0.2", "10.0.0.2", None)]),
        ("me@n[1-2]:8", [("me@n1", "n1", 8), ("me@n2", "n2", 8)]),
    ],
)
def test_a_list_gives_names_addresses_and_devices(text, hosts):
    assert parsed(text) == hosts


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("node[01-04]", "node01 node02 node03 node04"),
        ("node[01-03,07]", "node01 node02 node03 node07"),
        ("n[8-11]", "n8 n9 n10 n11"),
        ("n[099-101].x.org", "n099.x.org n100.x.org n101.x.org"),
        ("rack[1-2]n[3-4],a", "rack1n3 rack1n4 rack2n3 rack2n4 a"),
        ("10.0.0.[1-2]", "10.0.0.1 10.0.0.2"),
    ],
)
def test_ranges_keep_their_zeros_and_their_order(text, expanded):
    assert names(text) == expanded.split()


@pytest.mark.parametrize(
    ("text", "entry", "reason"),
    [
        ("", "", "is no host"),
        ("a,,b", "", "is no host"),
        ("me@a,you@a:8", "you@a:8", "gives a again, after 'me@a' "),
        ("a:0", "a:0", "is no host"),
        ("a:\u0663", "a:\u0663", "is no host"),
        ("fe80::1", "fe80::1", "is no host"),
        ("n[1-2", "n[1-2", "not a host name"),
        ("n[1-2-3]", "n[1-2-3]", "the malformed range"),
        ("n[3-1]", "n[3-1]", "the range 3-1"),
        ("n[1-4097]", "n[1-4097]", "1 to 4096 hosts"),
        ("-oProxyCommand=x", "-oProxyCommand=x", "not a host name"),
        ("a\x1b[0m", "a\\x1b[0m", "not a host name"),
        ("a;reboot", "a;reboot", "not a host name"),
    ],
)
def test_a_wrong_entry_is_told_with_its_place(text, entry, reason):
    with pytest.raises(UsageError) as caught:
        parse_hosts(text, place="DLPERF_HOSTS")
    message = str(caught.value)
    assert message.startswith("DLPERF_HOSTS: ")
    assert entry in message
    assert reason in message


def write(folder, text):
    (folder / "hosts").write_text(text, encoding="utf-8")


def test_a_host_file_has_a_host_or_a_range_on_each_line(tmp_path):
    write(
        tmp_path,
        "\ufeff# the lab\n\na:8\r\nme@b:4 # comment\n\tc\nn[01-02]:2\nd:8 address=10.1.2.3",
    )
    assert parse_hosts("@hosts", place="--dlperf-hosts", folder=tmp_path) == (
        Host(name="a", address="a", devices=8),
        Host(name="me@b", address="b", devices=4),
        Host(name="c", address="c", devices=None),
        Host(name="n01", address="n01", devices=2),
        Host(name="n02", address="n02", devices=2),
        Host(name="d", address="10.1.2.3", devices=8),
    )
    assert parse_hosts(f"@{tmp_path}/hosts", place="--dlperf-hosts", folder=Path("/nowhere"))


@pytest.mark.parametrize(
    ("lines", "number", "reason"),
    [
        ("a\nb:0", 2, "is no host"),
        ("a address=b\nb", 2, "gives b again"),
        ("n[1-2] address=10.0.0.1", 1, "one address to several hosts"),
        ("a address=::g", 1, "not a host name"),
        ("a slots=8", 1, "is no host"),
    ],
)
def test_a_wrong_line_of_a_host_file_is_told_with_its_number(tmp_path, lines, number, reason):
    write(tmp_path, lines)
    with pytest.raises(UsageError) as caught:
        parse_hosts("@hosts", place="--dlperf-hosts", folder=tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/hosts:{number}: ")
    assert reason in str(caught.value)


def test_a_host_file_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "binary").write_bytes(b"a\xff")
    write(tmp_path, "# nobody\n")
    for name, reason in (
        ("missing", "cannot be read: No such file"),
        ("", "cannot be read: Is a directory"),
        ("x\0y", "host file"),
        ("~nobody-of-that-name/x", "cannot be read"),
        ("binary", "cannot be read"),
        ("hosts", "names no host"),
    ):
        with pytest.raises(UsageError, match=reason) as caught:
            parse_hosts(f"@{name}", place="DLPERF_HOSTS", folder=tmp_path)
        assert str(caught.value).startswith("DLPERF_HOSTS: ")


def test_slurms_allocation_gives_its_nodes():
    hosts = slurm_hosts(
        {
            "SLURM_JOB_NODELIST": "gpu[001-003,010],login1,rack[1-2]n[3-4]",
            "SLURM_GPUS_ON_NODE": "8",
        }
    )
    expected = names("gpu001,gpu002,gpu003,gpu010,login1,rack1n3,rack1n4,rack2n3,rack2n4")
    assert hosts == tuple(Host(name=name, address=name, devices=8) for name in expected)
    assert slurm_hosts({"SLURM_JOB_NODELIST": "a"}) == (Host(name="a", address="a", devices=None),)


@pytest.mark.parametrize(
    ("asked", "devices"), [("2", 2), ("gpu:2", 2), ("a100:2", 2), ("gpu:a100:2", 2), ("a:2,b:6", 8)]
)
def test_devices_that_were_asked_of_slurm_count_where_it_counts_none(asked, devices):
    environment = {"SLURM_JOB_NODELIST": "a", "SLURM_GPUS_PER_NODE": asked}
    assert [host.devices for host in slurm_hosts(environment)] == [devices]
    assert [host.devices for host in slurm_hosts({**environment, "SLURM_GPUS_ON_NODE": "1"})] == [1]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "SLURM_JOB_NODELIST: '' is no host"),
        ({"SLURM_JOB_NODELIST": "a[1-"}, "SLURM_JOB_NODELIST: 'a[1-' has the host"),
        ({"SLURM_JOB_NODELIST": "a,a"}, "SLURM_JOB_NODELIST: 'a' gives a again"),
        (
            {"SLURM_JOB_NODELIST": "a", "SLURM_GPUS_ON_NODE": "gpus"},
            "SLURM_GPUS_ON_NODE: 'gpus'",
        ),
        ({"SLURM_JOB_NODELIST": "a", "SLURM_GPUS_PER_NODE": "0"}, "SLURM_GPUS_PER_NODE: '0'"),
        ({"SLURM_JOB_NODELIST": "a", "SLURM_GPUS_PER_NODE": "gpu"}, "SLURM_GPUS_PER_NODE: 'gpu'"),
    ],
)
def test_what_slurm_would_not_write_is_told_with_its_variable(environment, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        slurm_hosts(environment)


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ("me@gpu01:8,gpu02:4,login", "me@gpu01:8, gpu02:4, login"),
        ("n[01-10]", "n01, n02, n03, n04, n05, n06, n07, n08 and 2 more"),
    ],
)
def test_hosts_are_described_in_few_words(text, described):
    assert describe_hosts(parse_hosts(text, place="test")) == described


def test_a_description_shows_an_address_that_is_not_the_name():
    host = Host(name="me@a1", address="10.1.2.3", devices=8)
    assert describe_hosts([host]) == "me@a1:8 (10.1.2.3)"


PIECES = (
    *("a", "n", "[", "]", "1", "01", "-", ",", ":", "8", "@", ".", "::", "%", " ", "=", "\n", "#"),
    *("address=", "\0", "\ud800", "٣", "~", "/", "9" * 30),
)
SNIPPETS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(st.one_of(st.text(), SNIPPETS))
@example("@~\0")
@example("@" + "x" * 5000)
@example("@\ud800")
def test_any_text_is_read_or_told_to_be_wrong(text):
    devices = {"SLURM_JOB_NODELIST": "a", "SLURM_GPUS_ON_NODE": text}
    for read in (
        partial(parse_hosts, text, place="test", folder=Path("/nowhere")),
        partial(slurm_hosts, {"SLURM_JOB_NODELIST": text}),
        partial(slurm_hosts, devices),
    ):
        try:
            hosts = read()
        except UsageError:
            continue
        assert hosts
        for host in hosts:
            assert re.fullmatch(r"[A-Za-z0-9_.:][A-Za-z0-9_.@%:-]*", host.name)
            assert host.devices is None or host.devices > 0


@given(st.one_of(st.binary(), SNIPPETS.map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_any_host_file_is_read_or_told_to_be_wrong(content):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "hosts").write_bytes(content)
        try:
            hosts = parse_hosts("@hosts", place="test", folder=Path(folder))
        except UsageError:
            return
        assert hosts
