"""What others may read: all that debugging needs, and no secret."""

from __future__ import annotations

import json
import re
import shlex
import stat
from functools import partial

import pytest
from growth import calls_of
from notice_servers import web_server
from trainers import SYSTEM, TinySystem, accept

from pytest_dlperf.files.masking import (
    MASK,
    SALT_FILE,
    Digests,
    hide,
    hide_variables,
    hide_words,
    in_message,
    keep_quiet,
)

HUSH = "hush-Hush"
NAMES = (
    *("HF_TOKEN", "hfToken", "hub.token", "api_key", "aws_secret_access_key", "DB_PASSWORD"),
    *("db-passwd", "ssh_passphrase", "dbPw", "GITHUB_PAT", "GIT_CREDENTIALS", "npm_auth"),
    *("X-Auth-Bearer", "SLACK_WEBHOOK_URL", "GITHUB_TOKEN_READONLY", "auth.basic", "MY_TOKEN_2"),
)
FORMS = (
    ["--{name}", HUSH],
    ["--{name}", f"{HUSH}, and more"],
    ["--{name}={hush}"],
    ["--{name}={hush}, and more"],
    ["{name}={hush}"],
    ["+{name}={hush}"],
    ["mpirun", "-x", "{name}={hush}"],
    ["docker", "run", "--env={name}={hush}", "image"],
    ["curl", "-H", "{name}: {hush}"],
    ["curl", "https://site.example/?x=1&{name}={hush}&y=2"],
    ['--config={{"lr": 1, "{name}": "{hush}"}}'],
    ['["--{name}", "{hush}"]'],
    ["sh", "-c", "{name}='{hush} x' exec train --lr 1"],
    ["bash", "-lc", "train --{name} {hush} --lr 1"],
    ["python", "-c", "os.environ['{name}'] = '{hush}'"],
    ["srun", "--export=ALL,{name}={hush}"],
)
TOKENS = (
    f"hf_{'aBcD' * 8}xY",
    f"ghp_{'0aB1' * 9}",
    f"github_pat_{'0aB1_' * 9}",
    f"glpat-{'0aB1' * 5}",
    f"xoxb-{'0123456789-' * 2}aB1",
    "AKIA0123456789ABCDEF",
    f"sk-proj-{'0aB1' * 9}",
    f"eyJ{'aB1' * 5}.{'aB1' * 5}.{'aB1' * 5}",
    "-----BEGIN RSA PRIVATE KEY-----\naB1+\naB1+\n-----END RSA PRIVATE KEY-----",
)
HARMLESS = (
    "--tokenizer gpt2 --max-tokens 4096 --tokens-per-batch 65536 --pad-token [PAD]",
    "--eos_token=</s> --image_token <image> --pass_at_k 1 -e HF_TOKEN",
    "--num-query-token 32 --calculate-per-token-loss --moe-token-dispatcher-type alltoall",
    "--primary-key-column=sample_id --image-key jpg --json-keys text --sort-key name",
    "--hash=0123456789abcdef0123456789abcdef01234567",
    "--id=1b671a64-40d5-491e-99b0-da01ff1f3341 --sort_keys=true",
    "docker run --env HF_TOKEN --volume /data:/data:ro nvcr.io/nvidia/pytorch:26.01-py3",
    "docker run -u me:group -p 8080:80 -v /run/secrets:/run/secrets:ro --shm-size=1g image",
    "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true,--xla_a=b MASTER_ADDR=node-1 train",
    "srun --signal=B:INT@300 -N 2 --mpi=pmix --container-image=nvcr.io#nvidia/nemo:25.04",
    "--key-value-channels 128 --num-key-value-heads 8 --attention-key-size 64 --kv-channels=128",
    "--run-name Llama3B8Instruct20261101BF16x8 --tag v1.2.3 --user me:grp --auth 5 --salt 17",
    "https://huggingface.co/datasets/wikitext/resolve/main/data.zip?download=true&rev=main",
    "--max-new-tokens 128 --stop-tokens a,b --keys a,b --tokens c --exclude-keys a --max-token 64",
    "s3://bucket/x hdfs://name:8020/x tcp://10.0.0.1:29500 slack <pad> <image>a</image> //host/a",
    "pip install torch==2.13.0 git+https://github.com/acme/trainer@v1.2 git@github.com:acme/x.git",
    "TOKENIZERS_PARALLELISM=false PWD=/home/me SSH_AUTH_SOCK=/tmp/agent HF_TOKEN_PATH=/home/me/t",
)
LAST_LINES = """\
slurmstepd: error: auth: munge decode failed: Invalid credential
slurmstepd: error: execve(): train: Permission denied
torch.distributed.DistStoreError: Timeout waiting for key: default_pg/0/1 after 1800000 ms
torch.distributed.DistNetworkError: The client socket has timed out after 60000ms
RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version 2.27.5
RuntimeError: Error(s) in loading state_dict for Llama: Missing key(s) in state_dict: "lm_head"
KeyError: 'model.layers.0.self_attn.q_proj.weight'
KeyError: "key 'optimizer_states' not in checkpoint"
ValueError: unknown key: warmup_steps
ValueError: got key=torch.Size([8, 64]) and value=torch.Size([8, 32])
ValueError: Unable to create tensor, you should probably activate padding: token: [1, 2]
omegaconf.errors.ConfigAttributeError: Key 'lrr' is not in struct
    full_key: optim.lrr
jax.errors.ConcretizationTypeError: PRNG key: array([0, 1], dtype=uint32)
etcd.EtcdKeyNotFound: Key not found : etcd key=/torchelastic/p2p/run_4711/rdzv/active_version
Permission denied (publickey,password).
me@node1: Permission denied (publickey,gssapi-keyex,gssapi-with-mic).
OSError: [Errno 28] No space left on device: '/tmp/pytest-dlperf-RUN-0/scratch/checkpoint.pt'
OSError: You are trying to access a gated repo. Make sure to have access to it at huggingface.co.
requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/api
huggingface_hub.errors.LocalTokenNotFoundError: Token is required, but no token found.
wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])
FATAL: password authentication failed for user "me"
Error response from daemon: pull access denied for trainer, may require 'docker login': denied
Error: creating container storage: the container name "train" is already in use
curl: (22) The requested URL returned error: 403 Forbidden, http://node1:8000/v1/models
""".splitlines()


# --------------------------------------------------------------------------- by their names


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_a_value_named_as_a_secret_is_hidden_and_no_argument_is_lost(form):
    for name in NAMES:
        words = [part.format(name=name, hush=HUSH) if part != HUSH else part for part in form]

        shown = hide_words([*words, "last"])

        assert HUSH not in " ".join(shown), name
        assert MASK in " ".join(shown)
        assert (len(shown), shown[-1]) == (len(words) + 1, "last")


def test_a_value_named_as_a_secret_is_hidden_in_variables_and_in_texts():
    for name in NAMES:
        assert hide_variables({name: HUSH}) == {name: MASK}
        assert HUSH not in hide(f"LR=1 train --lr 1 --{name}={HUSH} --{name} '{HUSH} x' --seed 2")
    assert hide_variables({"STORE": f"db password={HUSH} user=me"}) == {
        "STORE": f"db password={MASK} user=me"
    }


@pytest.mark.parametrize("line", HARMLESS)
def test_what_only_looks_like_a_secret_is_shown(line):
    assert hide_words(shlex.split(line)) == shlex.split(line)


def test_the_work_grows_as_the_text_does():
    for piece in ("a", "a=", "token=", '"token": "', "--token ", "'", "://a:b", "eyJ", "hf_a"):
        for read in (hide, in_message):
            small, large = (calls_of(partial(read, piece * count)) for count in (1_000, 10_000))
            assert large <= 11 * small + 100, piece


# ----------------------------------------------------------------------------- in messages


@pytest.mark.parametrize("line", LAST_LINES)
def test_nothing_of_an_error_is_touched(line):
    assert in_message(f"{line}\nbye") == f"{line}\nbye"


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: token[:10])
def test_tokens_are_hidden_by_their_form(token):
    assert in_message(f"cannot log in with {token}\nbye") == f"cannot log in with {MASK}\nbye"
    assert hide_words([f"--note={token}"]) == [f"--note={MASK}"]


@pytest.mark.parametrize("address", ["postgres://me:{}@db/runs", "redis://:{}@cache:6379/0"])
def test_the_password_of_an_address_is_hidden(address):
    assert in_message(f"no answer: {address.format(HUSH)}") == f"no answer: {address.format(MASK)}"


def test_what_was_given_or_inherited_or_hidden_before_is_hidden_to_the_letter(
    monkeypatch,
):
    monkeypatch.setenv("OWN_TOKEN", "damson tart")
    keep_quiet(["quince\\jam", "https://me:medlar-j@store.example/", "short"])
    hide_words(["--wandb-key", "greengage"])

    said = in_message(r"damson tart xxquince\jam 'quince\\jam' medlar-j greengage short")

    assert said == f"{MASK} xx{MASK} '{MASK}' {MASK} {MASK} short"


# -------------------------------------------------------------------------------- digests


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        *((word, word) for word in ("--lr", "-np", "-x", "0.1", "-1.5e-4", "4096", "True", "--")),
        ("--lr=0.1", "--lr=0.1"),
        ("optim.lr=0.1", "optim.lr=0.1"),
        ("--use-cache=off", "--use-cache=off"),
        ("adamw", "***...."),
        ("--optimizer=adamw", "--optimizer=***...."),
        ("+optim.name=adamw", r"\+optim.name=***...."),
        ("-phunter", "***...."),
        ("me:hunter2@store.example", "***...."),
        ("https://site.example/?code=hunter2", "***...."),
        ("aHVudGVyMg==", "***...."),
    ],
)  # fmt: skip
def test_of_given_words_names_of_options_switches_and_numbers_stay(tmp_path, word, shown):
    assert re.fullmatch(shown.replace("***", r"\*{3}"), Digests(tmp_path).of_word(word))


def test_digests_tell_a_change_to_all_who_share_the_folder(tmp_path):
    night = Digests(tmp_path / "baselines").of_word("a value")
    salt = (tmp_path / "baselines" / SALT_FILE).read_text(encoding="ascii")

    assert night == Digests(tmp_path / "baselines").of_word("a value")
    assert night != Digests(tmp_path / "baselines").of_word("another")
    assert night != Digests(tmp_path / "others").of_word("a value")
    assert len(set(salt)) > 8
    assert [file.name for file in (tmp_path / "baselines").iterdir()] == [SALT_FILE]
    # Too few digits to tell which of many guesses was right, even with the salt.
    guesses = [Digests(tmp_path / "baselines").of_word(f"guess {n}") for n in range(2_000)]
    assert len(set(guesses)) < len(guesses)


def test_without_a_place_for_a_salt_nothing_is_told(tmp_path):
    (tmp_path / "file").write_text("no folder")
    assert Digests(tmp_path / "file").of_word("--optimizer=adamw") == f"--optimizer={MASK}"


# ------------------------------------------------------------------------------- sessions


class Secrets:
    """More than 200 secrets of a night, as a user gives them."""

    def __init__(self, night):
        self.all: list[str] = []
        self._night = night
        variables = [re.sub(r"\W", "_", name) for name in NAMES]
        self.cluster = dict(zip(variables, self._some(len(variables)), strict=True))
        self.literal = [
            *(word for one in self._some(16) for word in ("--hf-token", one)),
            *(f"--api_key={one}" for one in self._some(16)),
        ]
        set_by_name = [f"env.OWN_{name}={self._some(1)[0]}" for name in variables]
        self.named = [*self.all]
        self.inherited = {f"MY_{n}_TOKEN": one for n, one in enumerate(self._some(16))}
        arguments = [
            *(word for one in self._some(16) for word in ("--unlock", one)),
            *(word for one in self._some(16) for word in ("-p", one)),
            *(f"-p{one}" for one in self._some(16)),
            *(f"--note={one}" for one in self._some(16)),
            *(f"https://store.example/?code={one}" for one in self._some(16)),
            *(f"me:{one}@store.example" for one in self._some(16)),
        ]
        self.set = [
            *set_by_name,
            *(f"env.SITE{n}={one}" for n, one in enumerate(self._some(16))),
            *(
                f"env.NCCL_{n}=https://me:{one}@net.example/"
                for n, one in enumerate(self._some(16))
            ),
            *(f"note{n}={one}" for n, one in enumerate(self._some(16))),
            f"extra_args={shlex.join(arguments)}",
        ]
        self.printed = [f"ghp_{one}{'0aB1' * 8}" for one in self._some(16)]
        self.printed += [f"amqp://me:{one}@queue.example/" for one in self._some(16)]

    def _some(self, count):
        begin = len(self.all)
        self.all += [f"plum{number:03}jam{self._night}" for number in range(begin, begin + count)]
        return self.all[begin:]


class Nights:
    """Sessions with secrets of their own; ``told`` is what others may read of them, by place."""

    def __init__(self, suite, monkeypatch):
        self._suite, self._monkeypatch = suite, monkeypatch
        notes = [f"note{number}" for number in range(16)]
        declared = [f"{note}: {{meaning: a note}}" for note in notes]
        used = [f'"{{{note}}}"' for note in (*notes, "open")]
        self.tiny = TinySystem(
            suite,
            topologies=["1n1g"],
            launch=[
                f"variables: {{{', '.join(declared)}, open: {{meaning: a name, public: true}}}}",
                f"arguments: [{', '.join(used)}, literal]",
            ],
        )
        accept(suite, {"1n1g": 1.0})
        self._declared = suite.path / "bench_tests" / "systems" / "own.yaml"
        self._cluster = suite.path / "baselines" / "local" / "cluster.yaml"
        self._template = self._declared.read_text(encoding="utf-8")
        self.results, self.page = suite.path / "r.json", suite.path / "p.html"
        self.told: dict[str, bytes] = {}

    def run(self, night, *more):
        """Run a session with the secrets of this night."""
        secrets, path = Secrets(night), self._suite.path
        for name, value in secrets.inherited.items():
            self._monkeypatch.setenv(name, value)
        self._monkeypatch.setenv("GITLAB_CI", "true")
        self._monkeypatch.setenv("CI_JOB_URL", f"https://me:{secrets.all[0]}@ci.example/job/1")
        variables = {"estimator": "steady", "vars": {SYSTEM: {"env": secrets.cluster}}}
        self._cluster.write_text(json.dumps(variables), encoding="utf-8")
        literal = ", ".join(map(json.dumps, secrets.literal))
        self._declared.write_text(
            self._template.replace("literal]", f"{literal}]"), encoding="utf-8"
        )
        given = [*secrets.set, "env.NCCL_DEBUG=INFO", f"open=site{night}", "env.ANY=4096"]
        result = self._suite.run(
            *("-vv", "-k", "tiny and throughput", *more),
            *("--dlperf-json", str(self.results), "--dlperf-history", f"{path}/h.sqlite3"),
            *("--junitxml", f"{path}/j.xml", "--dlperf-html", str(self.page)),
            *("--dlperf-markdown", f"{path}/m.md"),
            *(word for one in given for word in ("--dlperf-set", f"{SYSTEM}.{one}")),
        )
        self.told = {
            str(file): file.read_bytes()
            for file in path.rglob("*")
            if file.is_file()
            and stat.S_IMODE(file.stat().st_mode) & 0o044
            and file not in (self._cluster, self._declared)  # as the user wrote them
            and file.suffix not in (".log", ".arrivals", ".py")  # the trainer's own
        }
        self.told["terminal"] = f"{result.stdout}{result.stderr}".encode()
        return secrets

    def leaks(self, *nights):
        """The secrets that were told, by place."""
        secrets = re.compile("|".join(one for night in nights for one in night.all).encode())
        return {
            where: found for where, text in self.told.items() if (found := secrets.findall(text))
        }


@pytest.fixture
def nights(suite, monkeypatch):
    return Nights(suite, monkeypatch)


@pytest.mark.in_process
def test_no_secret_that_was_given_is_in_what_others_may_read(nights, monkeypatch, suite):
    with web_server() as web:
        monkeypatch.setenv("HOOK", f"{web.url}/hook")
        first = nights.run(0, "--dlperf-update-baselines")
        assert nights.leaks(first) == {}
        nights.tiny.behave("0.1")  # the second one is slower, and says what differs
        second = nights.run(1, "--dlperf-notify", "json=HOOK")
        nights.told |= {f"notice {n}": request.body for n, request in enumerate(web.asked)}

    assert len(first.all) > 200
    assert nights.leaks(first, second) == {}
    [launch] = [
        case["measurement"]["fingerprint"]["launch"]
        for case in json.loads(nights.results.read_text(encoding="utf-8"))["cases"]
    ]
    environment = launch["environment"]
    assert (environment["NCCL_DEBUG"], environment["ANY"]) == ("INFO", "4096")
    assert environment["NCCL_0"] == f"https://me:{MASK}@net.example/"
    # The last night says what it has in the place of the accepted number's.
    for word in ("site0", "site1", "SITE0", environment["SITE0"], "--note"):
        assert word in nights.page.read_text(encoding="utf-8")
    for record in suite.path.rglob("command.json"):
        text = record.read_text(encoding="utf-8")
        assert stat.S_IMODE(record.stat().st_mode) == 0o600
        assert [one for night in (first, second) for one in night.named if one in text] == []
        assert "--unlock" in text


# Not in this process, which knows secrets of other tests.
def test_no_secret_of_a_trainer_s_last_words_is_in_what_others_may_read(nights):
    (nights.tiny.folder / "train.py").write_text(
        "import os, sys\n"
        f"given = [*sys.argv[6:], *os.environ.values(), *{Secrets(0).printed!r}]\n"
        "given = [word for word in given if 'jam' in word]\n"
        "for at in range(0, len(given), 40): print('no login with', *given[at : at + 40])\n"
        "raise SystemExit('the last word')\n",
        encoding="utf-8",
    )

    secrets = nights.run(0, "-n", "1")

    assert nights.leaks(secrets) == {}
    for place in ("terminal", str(nights.results), str(nights.page)):
        assert b"the last word" in nights.told[place], place
        assert b"no login with *** *** ***" in nights.told[place], place


@pytest.mark.in_process
def test_a_dry_run_shows_all_but_what_is_named_as_a_secret(nights):
    secrets = nights.run(0, "--dlperf-dry-run")

    told = nights.told["terminal"].decode()
    assert [one for one in secrets.named if one in told] == []
    arguments = next(one for one in secrets.set if one.startswith("extra_args="))
    assert arguments.removeprefix("extra_args=") in told
    assert not (nights.page.parent / "baselines" / SALT_FILE).exists()
