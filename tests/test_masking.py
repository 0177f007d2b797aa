"""What is shown of a command: all that debugging needs, and no secret."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any, Final

import pytest
from secret_forms import HARMLESS, secret_commands, secret_variables
from test_seed_plans import SEEDS, SYSTEMS, cases_of, plan

from pytest_dlperf.masking import masker as module
from pytest_dlperf.masking.masker import MASKER, Masker
from pytest_dlperf.masking.publishing import IN_REASONS, published

HUSH: Final = "hush-Hush"
GITHUB: Final = f"ghp_{'0aB1' * 9}"
HUGGING_FACE: Final = f"hf_{'aBcD' * 8}xY"
PRIVATE_KEY: Final = "\n".join(
    ["-----BEGIN RSA PRIVATE KEY-----", *["aB1+" * 16] * 49, "-----END RSA PRIVATE KEY-----"]
)
PUBLISHED: Final = published(b"k" * 32)
MASKERS: Final = pytest.mark.parametrize("masker", [MASKER, PUBLISHED], ids=["own", "published"])


@MASKERS
def test_no_form_of_a_secret_is_shown_and_no_argument_is_lost(masker: Masker) -> None:
    shown = {
        secret: [" ".join(command), *masker.arguments([*command, "last"])]
        for secret, command in secret_commands()
    }
    assert len(shown) > 1000
    assert [words for secret, words in shown.items() if secret in " ".join(words[1:])] == []
    assert [words for words in shown.values() if "***" not in " ".join(words[1:])] == []
    for secret, command in secret_commands():
        assert len(shown[secret]) == len(command) + 2


@pytest.mark.parametrize(
    "quoted",
    [lambda command: f"+ {shlex.join(command)}", lambda command: f"Command {command!r}"],
    ids=["shell", "python"],
)
def test_no_command_with_a_secret_is_shown_as_programs_print_them(
    quoted: Callable[[list[str]], str],
) -> None:
    """As they stand in logs after ``set -x``, and in the errors of subprocesses."""
    lines = {secret: quoted([*words, "end"]) for secret, words in secret_commands()}
    shown = {secret: IN_REASONS.output(f"{line} said so\nbye") for secret, line in lines.items()}
    assert [text for secret, text in shown.items() if secret in text] == []
    assert {text.rpartition("\n")[2] for text in shown.values()} <= {"bye", "***"}


@pytest.mark.parametrize(
    "line",
    [
        "INFO 08:30:46 Pass:0 batch:10 lr:0.1 loss:45.5 qps:336.95",
        "ValueError: token: 5, key=7",
        "Permission denied (publickey,password).",
        "RuntimeError: CUDA out of memory (NCCL_DEBUG=INFO WORLD_SIZE=8)",
        "the user's key is not there",
    ],
)
def test_what_programs_say_else_is_shown(line: str) -> None:
    assert IN_REASONS.output(line) == line


@pytest.mark.parametrize("change", [str.upper, str.lower])
def test_upper_and_lower_case_are_alike(change: Callable[[str], str]) -> None:
    shown = {secret: MASKER.arguments(command) for secret, command in secret_commands(change)}
    assert [words for secret, words in shown.items() if secret in " ".join(words)] == []


@MASKERS
@pytest.mark.parametrize("line", HARMLESS)
def test_what_only_looks_like_a_secret_is_shown(masker: Masker, line: str) -> None:
    assert masker.arguments(shlex.split(line)) == shlex.split(line)
    assert masker.script(line) == line


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (f"postgres://me:{HUSH}@db/runs", "postgres://me:***@db/runs"),
        (f"postgres://me:{HUSH}@{HUSH}@db/runs", "postgres://me:***@db/runs"),
        (f"https://{HUSH}@errors.example.org/12", "https://***@errors.example.org/12"),
        (f"https://h/?sv=1&sig={HUSH}&se=2", "https://h/?sv=1&sig=***&se=2"),
        (f"say {GITHUB}", "say ***"),
        (HUGGING_FACE, "***"),
        ("pQ7rT2xV9bN4mK8sW3zL6cDf", "***"),
        (f"-Dhub.token={'aB1_' * 5} -Xmx4g", "-Dhub.token=*** -Xmx4g"),
        (f"{'x ' * 9000}{GITHUB}{' x' * 9000}", f"{'x ' * 9000}***{' x' * 9000}"),
        (PRIVATE_KEY, "***"),
    ],
    ids=range(10),
)
def test_values_that_are_secrets_are_masked_under_any_name(value: str, shown: str) -> None:
    assert MASKER.environment({"ANY": value}) == {"ANY": shown}
    digests = PUBLISHED.variable("NCCL_ANY", value)
    assert re.sub(r"(?<=\*\*\*)[0-9a-f]{8}", "", digests) == shown


def test_values_of_a_manifest_are_masked_by_their_names() -> None:
    """A dry run shows what Kubernetes would get."""
    yaml = f"env:\n- name: GITHUB_PAT\n  value: {HUSH} x\n- name: LR\n  value: '0.1'\n"
    assert MASKER.script(yaml) == yaml.replace(f"{HUSH} x", "***")
    json = (
        f'{{"env": [{{"name": "GITHUB_PAT", "value": "{HUSH}"}}, {{"name": "LR", "value": "1"}}]}}'
    )
    assert MASKER.script(json) == json.replace(f'"{HUSH}"', "***")


def test_values_of_several_lines_are_masked_as_far_as_they_are_indented() -> None:
    lists = f"api_keys:\n- {HUSH}\n- {HUSH}\nlr: 1\n"
    for text in (lists, f"hub:\n  token: |\n    {HUSH} x\n    {HUSH}\n  lr: 1\n"):
        assert HUSH not in MASKER.arguments([text])[0]
        assert HUSH not in MASKER.script(text)
        assert MASKER.script(text).endswith("lr: 1\n")


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        (f"A=1 HF_TOKEN={HUSH} exec train --lr 1", "A=1 HF_TOKEN=*** exec train --lr 1"),
        (f"export T_PASSWORD='{HUSH} x'; train", "export T_PASSWORD='***'; train"),
        (f"train --password {HUSH} --lr 1", "train --password *** --lr 1"),
        (f'curl -H "X-Api-Key: {HUSH} x" "$URL"', 'curl -H "X-Api-Key: ***" "$URL"'),
        (f"wandb login {HUSH}\ntrain --lr 1", "wandb login ***\ntrain --lr 1"),
        (f"mysql -p{HUSH} runs && train -p 1", "mysql -p*** runs && train -p 1"),
    ],
)
def test_the_rest_of_a_script_stays(script: str, shown: str) -> None:
    assert MASKER.arguments(["sh", "-c", script]) == ["sh", "-c", shown]


def test_one_s_own_record_shows_variables_that_no_name_calls_a_secret() -> None:
    environment = {
        "TOKENIZERS_PARALLELISM": "false",
        "BYPASSED": "1",
        "PWD": "/home/me",
        "SSH_AUTH_SOCK": "/tmp/agent",  # noqa: S108 - text only
        "HF_TOKEN_PATH": "/home/me/.cache/token",
        "MAX_TOKEN": "4096",
        "DATA_ROOT": "/data",
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
        "XLA_FLAGS": "--xla_gpu_enable_latency_hiding_scheduler=true --xla_a=b",
    }
    assert MASKER.environment(environment) == environment


@pytest.mark.parametrize("name", SEEDS)
def test_nothing_of_a_shipped_command_is_masked(name: str) -> None:
    for case in cases_of(SYSTEMS[name]):
        for command in plan(case):
            assert MASKER.arguments(command.arguments) == list(command.arguments)
            assert MASKER.environment(command.environment) == command.environment
            assert PUBLISHED.arguments(command.arguments) == list(command.arguments)


# ------------------------------------------------------------------- what others may read


def test_others_read_no_value_of_a_variable_but_of_harmless_names() -> None:
    for secret, name, value in secret_variables():
        assert secret not in PUBLISHED.variable(name, value)
    harmless = {
        "NCCL_DEBUG": "INFO",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "PYTHONPATH": "{checkout}/src",
        "MASTER_ADDR": "{address0}",
        "FLAGS_selected_gpus": "0,1",
        "PADDLE_TRAINER_ENDPOINTS": "{address0}:1",
        "PYTHONWARNINGS": "ignore",
        "TORCH_LOGS": "dynamo",
        "JAX_PLATFORMS": "cuda,cpu",
        "RAY_ADDRESS": "auto",
        "DS_ACCELERATOR": "cuda",
        "ANY_NUMBER": "4096",
        "ANY_RATE": "-1.5e-4",
        "ANY_FLAG": "False",
        "ANY_TOKEN": "none",
        "EMPTY": "",
    }
    assert PUBLISHED.environment(harmless) == harmless
    for name, value in {"ANY": "12345678", "PIN": "1234", "DB_PASSWORD": "12345"}.items():
        assert re.fullmatch(r"\*{3}[0-9a-f]{8}", PUBLISHED.variable(name, value))


def test_names_are_added_in_full_or_by_how_they_begin() -> None:
    added = published(b"k" * 32, ["DATA_ROOT", "SITE_*", "HUB_TOKEN"])
    shown = {"DATA_ROOT": "/data", "SITE_NAME": "north", "HUB_TOKEN": "a word"}
    assert added.environment(shown) == shown
    assert "***" in added.variable("SITE_TOKEN", "a word")
    assert "***" in added.variable("DATA_ROOTS", "/data")
    assert added.arguments(["env", "SITE_NAME=north", "OTHER=x"])[1] == "SITE_NAME=north"


def test_digests_tell_a_change_under_one_key_only() -> None:
    def of(value: str, key: bytes) -> str:
        return published(key).variable("ANY", value)

    one, other = b"1" * 32, b"2" * 32
    assert of("a value", one) == of("a value", one) != of("another", one)
    assert of("a value", one)[:7] == of("another", one)[:7] != of("a value", other)[:7]
    # Too few digits to tell which of many guesses was right, even with the key.
    guesses = [f"guess {number}" for number in range(20_000)]
    assert len({of(guess, one) for guess in guesses}) < len(guesses)


# ----------------------------------------------------------------------------- long texts


class _Counted:
    """An expression that counts the characters it goes over."""

    def __init__(self, expression: re.Pattern[str], count: list[int]) -> None:
        self._expression = expression
        self._count = count

    def _counted(self, found: re.Match[str] | None, text: str, begin: int) -> re.Match[str] | None:
        self._count[0] += (found.end() if found else len(text)) - begin + 1
        return found

    def search(self, text: str, begin: int = 0) -> re.Match[str] | None:
        return self._counted(self._expression.search(text, begin), text, begin)

    def match(self, text: str, begin: int = 0) -> re.Match[str] | None:
        found = self._expression.match(text, begin)
        self._count[0] += found.end() - begin if found else 1
        return found

    def fullmatch(self, text: str, begin: int = 0) -> re.Match[str] | None:
        return self._counted(self._expression.fullmatch(text, begin), text, begin)

    def finditer(self, text: str) -> Any:
        self._count[0] += len(text)
        return self._expression.finditer(text)


@pytest.mark.parametrize(
    "piece",
    ["a", "a=", "token=", "=", "token: ", "name: a value: ", '"', "'\"", "\\", "-H 'x ", "-c ' ",
     "://a:b@", " ", "A=,", "token=true ", '-c "', ", token=x", "login x "],
)  # fmt: skip
def test_the_work_grows_as_the_text_does(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = [0]
    for name, value in vars(module).items():
        if isinstance(value, re.Pattern):
            monkeypatch.setattr(module, name, _Counted(value, count))
    places = [_Counted(one, count) for one in vars(module)["_PLACES"]]
    monkeypatch.setattr(module, "_PLACES", places)

    def rules(text: str) -> list[re.Match[str]]:
        count[0] += len(text)
        return []

    monkeypatch.setattr(module, "_rules", lambda: (rules, frozenset()))

    def work(times: int) -> int:
        text = f"token={piece * times} end{times}"
        before = count[0]
        for masker in (MASKER, PUBLISHED):
            masker.script(text)
            masker.arguments([text, "-c", text])
            masker.variable("NCCL_ANY", text)
        return count[0] - before

    once, four_times = work(1_000), work(4_000)
    assert four_times < 5 * once
