"""``pytest-dlperf completion`` and ``pytest-dlperf systems``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_dlperf.command.main import COMMANDS, main
from pytest_dlperf.config.extends import shipped_systems

BASH = shutil.which("bash")


def completed(typed: str, script: str, folder: Path) -> set[str]:
    """What bash offers for the last word of a line."""
    words = typed.split(" ")
    program = (
        f"{script}\n"
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}\n'
        'function="$(complete -p pytest-dlperf)"; function="${function##*-F }"\n'
        '"${function%% *}" pytest-dlperf "${COMP_WORDS[COMP_CWORD]}"\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        [BASH or "bash", "-c", program, "bash", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("pytest-dlperf ", set(COMMANDS)),
        ("pytest-dlperf co", {"compare", "completion"}),
        ("pytest-dlperf history ", {"import", "show"}),
        ("pytest-dlperf init --tr", {"--trainer"}),
        ("pytest-dlperf init --ci git", {"github", "gitlab"}),
        ("pytest-dlperf systems mega", {"megatron", "megatron_bridge"}),
        ("pytest-dlperf compare ni", {"night.json"}),
        ("pytest-dlperf read --systems ", {"folder"}),
    ],
)
def test_bash_completes_commands_options_names_and_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: str, offered: set[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    (tmp_path / "folder").mkdir()
    (tmp_path / "night.json").touch()
    found = completed(typed, capsys.readouterr().out, tmp_path)
    assert offered <= found
    if not typed.endswith(" "):
        last = typed.rpartition(" ")[2]
        assert all(one.startswith(last) for one in found)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_every_subcommand(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in (*COMMANDS, *shipped_systems()))


def test_the_systems_that_ship_are_listed_with_what_they_are_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["systems"]) == 0
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in rows] == list(shipped_systems())
    assert all(len(text) > 20 for _, text in rows)


def test_the_file_of_one_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["systems", "timm"]) == 0
    assert capsys.readouterr().out == shipped_systems()["timm"].read_text(encoding="utf-8")


def test_a_system_that_does_not_ship_is_refused_with_those_that_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["systems", "timmy"])
    assert "timm" in capsys.readouterr().err
