"""What is shown of a command: all that debugging needs, and no secret."""

from __future__ import annotations

import shlex
from typing import Final

import pytest
from growth import processor_time_limit
from test_seed_plans import SEEDS, SYSTEMS, cases_of, plan

from pytest_dlperf.launch.masking import masked_arguments, masked_environment, masked_script

HUSH: Final = "hush-Hush"
GITHUB: Final = f"ghp_{'0aB1' * 9}"
HUGGING_FACE: Final = f"hf_{'aBcD' * 8}xY"
PRIVATE_KEY: Final = "\n".join(
    ["-----BEGIN RSA PRIVATE KEY-----", *["aB1+" * 16] * 49, "-----END RSA PRIVATE KEY-----"]
)


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN", "AWS_ACCESS_KEY_ID", "my_secret", "DB_PASSWORD", "DB_PASSWD", "SSH_PASSPHRASE",
        "DB_PASS", "PASS", "GIT_CREDENTIALS", "NPM_AUTH", "AUTHORIZATION", "GITHUB_PAT", "SSHPASS",
        "SENTRY_DSN", "PGPASSWORD", "MYSQL_PWD", "WANDB_KEY", "githubAccessToken", "CI_JOB_JWT",
        "GITHUB_TOKEN_READONLY", "AZURE_STORAGE_CONNECTION_STRING", "DOCKER_PASSWORD_2",
    ],
)  # fmt: skip
def test_variables_of_secret_names_are_masked(name: str) -> None:
    assert masked_environment({name: HUSH, "LR": "0.1"}) == {name: "***", "LR": "0.1"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (f"postgres://me:{HUSH}@db/runs", "postgres://me:***@db/runs"),
        (f"postgres://me:{HUSH}@{HUSH}@db/runs", "postgres://me:***@db/runs"),
        (f"https://{HUSH}@errors.example.org/12", "https://***@errors.example.org/12"),
        (f"https://h/?sv=1&sig={HUSH}&se=2", "https://h/?sv=1&sig=***&se=2"),
        (f"say {GITHUB}", "say ***"),
        (HUGGING_FACE, "***"),
        (f"-Dhub.token={'aB1_' * 5} -Xmx4g", "-Dhub.token=*** -Xmx4g"),
        (f"{'x ' * 9000}{GITHUB}{' x' * 9000}", f"{'x ' * 9000}***{' x' * 9000}"),
        (PRIVATE_KEY, "***"),
    ],
    ids=range(9),
)
def test_values_that_are_secrets_are_masked_under_any_name(value: str, shown: str) -> None:
    assert masked_environment({"ANY": value}) == {"ANY": shown}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--auth-token={}"],
        ["--db_pass={}={}"],
        ["--password", "{}"],
        ["--password", "12345"],
        ["-Password", "two words, {}"],
        ["--password=two words, {}"],
        ["env", "HF_TOKEN={}"],
        ["mpirun", "-x", "WANDB_API_KEY={}"],
        ["srun", "--export=ALL,HF_TOKEN={}"],
        ["mpirun", "-genv", "HF_TOKEN", "{}"],
        ["/usr/bin/sshpass", "-p", "{}"],
        ["wandb", "login", "{}"],
        ["trainer.logger.api_key={}"],
        ["ssh", "host", "TOKEN={} run"],
        ["--url=https://example.org/?x=1&token={}"],
        ["-H", "X-Api-Key: {}"],
        ["-H", "Authorization: Bearer {}"],
        ["-H", "Cookie: id={}; theme=dark"],
        ['--config={{"api_key": "{}"}}'],
        ["sh", "-c", "HF_TOKEN='{} {}'"],
        ["sh", "-c", 'A=1 HF_TOKEN="{}'],
        ["bash", "-lc", 'curl -H "X-Api-Key: {} {}"'],
        ["bash", "-lc", "curl -u me:{} https://example.org"],
        ["bash", "-lc", r"echo {{\"password\": \"{}\"}}"],
        ["bash", "-lc", "train --password {}"],
        [GITHUB],
        [f"--remark=by {HUGGING_FACE}"],
    ],
    ids=" ".join,
)
def test_secret_arguments_are_masked_and_none_is_lost(arguments: list[str]) -> None:
    given = [argument.format(HUSH, HUSH) for argument in arguments]
    shown = masked_arguments([*given, "last"])
    assert len(shown) == len(given) + 1
    assert shown[-1] == "last"
    assert "***" in shown[-2]
    hidden = (HUSH, "12345", "two words", GITHUB, HUGGING_FACE)
    assert not [text for text in hidden if text in " ".join(shown)]


def test_values_of_a_manifest_are_masked_by_their_names() -> None:
    """A dry run shows what Kubernetes would get."""
    yaml = f"env:\n- name: GITHUB_PAT\n  value: {HUSH} x\n- name: LR\n  value: '0.1'\n"
    assert masked_script(yaml) == yaml.replace(f"{HUSH} x", "***")
    json = (
        f'{{"env": [{{"name": "GITHUB_PAT", "value": "{HUSH}"}}, {{"name": "LR", "value": "1"}}]}}'
    )
    assert masked_script(json) == json.replace(f'"{HUSH}"', "***")


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        (f"A=1 HF_TOKEN={HUSH} exec train --lr 1", "A=1 HF_TOKEN=*** exec train --lr 1"),
        (f"export T_PASSWORD='{HUSH} x'; train", "export T_PASSWORD='***'; train"),
        (f"train --password {HUSH} --lr 1", "train --password *** --lr 1"),
        (f'curl -H "X-Api-Key: {HUSH} x" "$URL"', 'curl -H "X-Api-Key: ***" "$URL"'),
    ],
)
def test_the_rest_of_a_script_stays(script: str, shown: str) -> None:
    assert masked_arguments(["sh", "-c", script]) == ["sh", "-c", shown]


@pytest.mark.parametrize(
    "text",
    [
        "--tokenizer=bert-large-uncased --tokenizer-model /models/llama3/tokenizer.model",
        "--max-tokens=4096 --tokens-per-batch 65536 --pad-token [PAD] --eos_token=</s>",
        "--num-query-token 32 --calculate-per-token-loss --moe-token-dispatcher-type alltoall",
        "--primary-key-column=sample_id --image-key jpg --json-keys text --key=value",
        "--author A --use-auth --epochs 3 --passes=3 --password-file /run/secrets/db --pass 2",
        "--hash=0123456789abcdef0123456789abcdef01234567 --id=1b671a64-40d5-491e-99b0-da01ff1f3341",
        "torchrun --rdzv-endpoint=10.0.0.1:29500 --nnodes=4 -m train data=s3://bucket/a@b",
        "docker run --env HF_TOKEN --volume /data:/data:ro nvcr.io/nvidia/pytorch:26.01-py3",
    ],
)
def test_what_only_looks_like_a_secret_is_shown(text: str) -> None:
    assert masked_arguments(shlex.split(text)) == shlex.split(text)
    assert masked_script(text) == text


def test_variables_that_only_look_like_secrets_are_shown() -> None:
    environment = {
        "TOKENIZERS_PARALLELISM": "false",
        "BYPASSED": "1",
        "PWD": "/home/me",
        "SSH_AUTH_SOCK": "/tmp/agent",  # noqa: S108 - text only
        "HF_TOKEN_PATH": "/home/me/.cache/token",
        "MAX_TOKEN": "4096",
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
        "XLA_FLAGS": "--xla_gpu_enable_latency_hiding_scheduler=true --xla_a=b",
    }
    assert masked_environment(environment) == environment


@pytest.mark.parametrize("name", SEEDS)
def test_nothing_of_a_shipped_command_is_masked(name: str) -> None:
    for case in cases_of(SYSTEMS[name]):
        for command in plan(case):
            assert masked_arguments(command.arguments) == list(command.arguments)
            assert masked_environment(command.environment) == command.environment


@pytest.mark.parametrize("piece", ["a", "=", "token: ", '"', "\\", "-H 'x ", "://a:b@", " "])
def test_long_texts_take_no_longer_than_they_are(piece: str) -> None:
    text = f"token={piece * 100_000}"
    # A hundred times as much as it takes, and less than a square of the length.
    with processor_time_limit(20):
        masked_script(text)
        masked_arguments([text, text])
