"""``pytest-dlperf systems``."""

import pytest

from pytest_dlperf.command.main import main
from pytest_dlperf.config.extends import shipped_systems


def test_the_systems_that_ship_are_listed_with_what_they_are_for(
    capsys,
):
    assert main(["systems"]) == 0
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in rows] == list(shipped_systems())
    assert all(len(text) > 20 for _, text in rows)


def test_the_file_of_one_is_shown_as_it_is(capsys):
    assert main(["systems", "timm"]) == 0
    assert capsys.readouterr().out == shipped_systems()["timm"].read_text(encoding="utf-8")


def test_a_system_that_does_not_ship_is_refused_with_those_that_do(
    capsys,
):
    with pytest.raises(SystemExit):
        main(["systems", "timmy"])
    assert "timm" in capsys.readouterr().err
