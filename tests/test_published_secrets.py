"""Sessions with a thousand secrets: none of them is in a file that others may read."""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from notice_servers import web_server
from secret_forms import HARMLESS, secret_commands, secret_variables
from suites import Suite
from trainers import SYSTEM, TinySystem, accept

from pytest_dlperf.masking.publishing import digest_key
from pytest_dlperf.measure.ending import LINES_SHOWN
from pytest_dlperf.model.errors import UsageError

pytestmark = pytest.mark.in_process


def cluster(suite: Suite, night: int) -> Path:
    """A cluster in which each night has secrets of its own; it holds them, as the user wrote it."""
    variables = {name: f"{value}{night}" for _, name, value in secret_variables()}
    words = [word for _, command in secret_commands() for word in command]
    arguments = [word.replace("jam", f"jam{night}") for word in words]
    file = suite.path / "baselines" / "local" / "cluster.yaml"
    file.parent.mkdir(exist_ok=True)
    own = {
        "env": {**variables, "NCCL_DEBUG": "INFO", "DATA_ROOT": f"/data{night}", "ANY": "4096"},
        "extra_args": [*arguments, *" ".join(HARMLESS).split()],
    }
    said = {"estimator": "steady", "public_environment": ["DATA_ROOT"], "vars": {SYSTEM: own}}
    file.write_text(json.dumps(said), encoding="utf-8")
    return file


@pytest.mark.ci
def test_no_secret_is_in_what_others_may_read(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = TinySystem(suite, topologies=["1n1g"])
    accept(suite, {"1n1g": 1.0}, system=SYSTEM, variant="fp32-b4", unit="samples/s")
    files = {name: suite.path / name for name in ("r.json", "h.sqlite3", "j.xml", "p.html", "m.md")}
    reports = (
        *("--dlperf-json", files["r.json"], "--dlperf-history", files["h.sqlite3"]),
        *("--junitxml", files["j.xml"], "--dlperf-html", files["p.html"]),
        *("--dlperf-markdown", files["m.md"], "-vv", "-k", "tiny and throughput"),
    )
    told = []
    with web_server() as web:
        monkeypatch.setenv("HOOK", f"{web.url}/hook")
        for night, more in enumerate(
            [["--dlperf-update-baselines"], ["--dlperf-notify", "json=HOOK"]]
        ):
            written = cluster(suite, night)
            result = suite.run(*reports, *more)
            told.append(f"{result.stdout}{result.stderr}")
            tiny.behave("0.1")  # the second one is slower, and says what differs
        told += [request.body.decode() for request in web.asked]
    result.assert_outcomes(failed=1)
    secrets = [
        *(secret for secret, _ in secret_commands()),
        *(secret for secret, _, _ in secret_variables()),
    ]
    readable = {
        str(file): file.read_bytes()
        for file in suite.path.rglob("*")
        if file.is_file() and stat.S_IMODE(file.stat().st_mode) & 0o044 and file != written
    }
    assert len(secrets) > 1000
    for place, text in {**readable, **{str(n): one.encode() for n, one in enumerate(told)}}.items():
        assert [secret for secret in secrets if secret.encode() in text] == [], place
    [launch] = [
        case["runs"] and case["fingerprint"]["launch"]
        for case in json.loads(files["r.json"].read_text())["cases"]
    ]
    assert launch["environment"]["DATA_ROOT"] == "/data1"
    assert launch["environment"]["NCCL_DEBUG"] == "INFO"
    assert launch["environment"]["SITE"].startswith("***")
    # The last night says what it has in the place of the accepted number's.
    for word in ("DATA_ROOT", "/data0", "/data1", "SITE", launch["environment"]["SITE"]):
        assert word in files["p.html"].read_text(encoding="utf-8")


def test_no_secret_of_a_trainer_s_last_words_is_in_what_others_may_read(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = TinySystem(suite, topologies=["1n1g"])
    secrets = dict([*secret_commands()][::90])
    words = [
        *(f"+ {shlex.join(command)}" for command in [*secrets.values()][:10]),
        *(f"Command {command!r} died" for command in [*secrets.values()][10:]),
    ]
    assert len(words) < LINES_SHOWN
    program = f"for line in {words!r}: print(line)\nraise SystemExit('the last word')"
    (tiny.folder / "train.py").write_text(program, encoding="utf-8")
    files = {name: suite.path / name for name in ("r.json", "h.sqlite3", "j.xml", "p.html", "m.md")}
    with web_server() as web:
        monkeypatch.setenv("HOOK", f"{web.url}/hook")
        result = suite.run(
            *("--dlperf-json", files["r.json"], "--dlperf-history", files["h.sqlite3"]),
            *("--junitxml", files["j.xml"], "--dlperf-html", files["p.html"]),
            *("--dlperf-markdown", files["m.md"], "-k", "tiny and throughput"),
            *("--dlperf-notify", "json=HOOK"),
        )  # fmt: skip
        told = {"notice": b"".join(request.body for request in web.asked)}
    told |= {"terminal": str(result.stdout).encode()}
    told |= {name: file.read_bytes() for name, file in files.items()}
    result.assert_outcomes(failed=1)
    for place, text in told.items():
        assert [secret for secret in secrets if secret.encode() in text] == [], place
        assert b"the last word" in text, place


def test_a_secret_that_a_trainer_was_given_is_masked_wherever_it_prints_it(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = TinySystem(suite, topologies=["1n1g"])
    monkeypatch.setenv("OWN_TOKEN", "damson tart")
    (tiny.folder / "train.py").write_text(
        "import os, sys\n"
        "given = [os.environ['hf_token'], os.environ['STORE'][11:19], os.environ['OWN_TOKEN']]\n"
        "print('cannot log in with', *given, 'or', sys.argv[-1], 'x' * 150 + given[0])\n"
        "raise SystemExit('the last word')\n",
        encoding="utf-8",
    )
    results = suite.path / "r.json"
    given = {"hf_token": "quince jam", "STORE": "https://me:medlar-j@store.example/"}
    result = suite.run(
        *("-k", "tiny and throughput", "--dlperf-json", results),
        *(word for one in given.items() for word in ("--dlperf-set", "*.env.{}={}".format(*one))),
        *("--dlperf-set", "*.extra_args=--wandb-key greengage"),
    )
    result.assert_outcomes(failed=1)
    for text in (str(result.stdout), results.read_text(encoding="utf-8")):
        assert "cannot log in with *** *** *** or ***" in text
        assert not re.search("quince|medlar|damson|greengage", text)


def test_one_s_own_record_is_for_the_user_alone(suite: Suite) -> None:
    TinySystem(suite, topologies=["1n1g"])
    cluster(suite, 0)
    suite.run("-k", "tiny and throughput", "--dlperf-run-dir", suite.path / "night")
    record, *_ = (suite.path / "night").rglob("command.json")
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    text = record.read_text(encoding="utf-8")
    assert [secret for secret, _ in secret_commands() if secret in text] == []
    assert json.loads(text)["nodes"][0]["environment"]["DATA_ROOT"] == "/data0"


def test_the_key_of_digests_is_made_once_for_the_user_alone(tmp_path: Path) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    key = digest_key(home)
    [file] = (tmp_path / "config").rglob("*digest-key*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes().strip() == key == digest_key(home)
    assert len(set(key)) > 8

    assert digest_key(
        {**home, "DLPERF_DIGEST_KEY": " of the team, by its store of secrets \n"}
    ) == (b"of the team, by its store of secrets")


def test_a_key_that_others_could_know_is_refused(tmp_path: Path) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    with pytest.raises(
        UsageError, match="DLPERF_DIGEST_KEY holds a key of 6 characters; it takes at least 32"
    ):
        digest_key({"DLPERF_DIGEST_KEY": "secret"})
    digest_key(home)
    file = tmp_path / "pytest-dlperf" / "digest-key"
    file.chmod(0o644)
    with pytest.raises(UsageError, match="digest-key has to be yours, and not readable by others"):
        digest_key(home)
    file.chmod(0o600)
    file.write_text("")
    with pytest.raises(UsageError, match="holds a key of 0 characters"):
        digest_key(home)


def test_without_a_place_for_a_key_each_process_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "pytest-dlperf").write_text("no folder")
    keys = {digest_key({"XDG_CONFIG_HOME": str(tmp_path)}) for _ in range(2)}
    ask = f"import {digest_key.__module__} as one; print(one.digest_key().hex())"
    own = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "DLPERF_DIGEST_KEY": ""}
    printed = subprocess.check_output([sys.executable, "-c", ask], env=own, text=True)
    keys.add(bytes.fromhex(printed))
    assert len(keys) == 2
    assert {len(key) for key in keys} == {32}


def test_a_user_without_a_home_folder_has_a_key_for_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(user: int) -> pwd.struct_passwd:
        raise KeyError(user)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert len(digest_key({})) == 32


def test_a_mistake_in_the_key_is_told_before_anything_runs(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = TinySystem(suite, topologies=["1n1g"])
    monkeypatch.setenv("DLPERF_DIGEST_KEY", "hunter2")
    result = suite.run("-k", "tiny and throughput")
    result.assert_outcomes(failed=1)
    told = str(result.stdout)
    assert "DLPERF_DIGEST_KEY holds a key of 7 characters" in told
    assert "hunter2" not in told
    assert tiny.starts() == []
