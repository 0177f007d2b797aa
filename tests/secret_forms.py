"""Commands that hold a secret, in the forms in which people give them, and some that hold none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

NAMES: Final = (
    "hf_token", "HF_TOKEN", "hfToken", "hftoken", "slack_webhook", "SLACK_WEBHOOK_URL", "userpass",
    "USERPASS", "dbpw", "DB_PW", "bearer", "BEARER", "privkey", "PRIVKEY", "wandb-key", "WANDB_KEY",
    "api_key", "apiKey", "APIKEY", "password", "Password", "db_passwd", "ssh-passphrase",
    "my_secret", "aws_secret_access_key", "AWS_ACCESS_KEY_ID", "github_pat", "GITHUB_PAT",
    "npm_auth", "sentry_dsn", "GIT_CREDENTIALS", "creds", "ci_job_jwt", "GITHUB_TOKEN_READONLY",
    "DOCKER_PASSWORD_2", "token_for_hub", "HF_TOKENS", "db_pswd", "oauth2", "PGPASSWORD",
    "azure_storage_connection_string", "MYSQL_PWD", "card_pin",
    "ak", "VOLC_SK", "SessionID",
)  # fmt: skip
"""Names that say that something is a secret."""

FORMS: Final = (
    ("--{name}", "{secret}"),
    ("--{name}={secret}",),
    ("-{name}", "{secret}"),
    ("{name}={secret}",),
    ("+hub.{name}={secret}",),
    ("hub.{name}={secret}",),
    ("-Dhub.{name}={secret}",),
    ("--set-string={name}={secret},lr=1",),
    ("mpirun", "-x", "{name}={secret}"),
    ("mpirun", "-genv", "{name}", "{secret}"),
    ("srun", "--export=ALL,{name}={secret}"),
    ("docker", "run", "--env={name}={secret}", "image"),
    ("curl", "-H", "{name}: {secret}"),
    ("curl", "https://site.example/?x=1&{name}={secret}&y=2"),
    ('--config={{"lr": 1, "{name}": "{secret}"}}',),
    ("--config={{'{name}': '{secret}'}}",),
    ("aws", "configure", "set", "{name}", "{secret}"),
    ("sh", "-c", "{name}={secret} exec train --lr 1"),
    ("sh", "-c", "export A=1 {name}='{secret} and more'; train"),
    ("bash", "-lc", "train --{name} {secret} --lr 1"),
    ("bash", "-lc", 'train --{name} \\\n  "{secret}" --lr 1'),
    ("bash", "-c", "bash -c 'train --{name} \"{secret}\"'"),
    ("bash", "-lc", 'curl -H "{name}: {secret}" https://site.example'),
    ("ssh", "host", "{name}={secret} train"),
    ("python", "-c", "login({name}='{secret}')"),
    ("python", "-c", "os.environ['{name}'] = '{secret}'"),
    ("train.py", "hub.{name}", "{secret}"),
    ("fish", "-c", "set -gx MY_{name} {secret}; train"),
    ("sh", "-c", "echo ${{{name}:-{secret}}}"),
    ("train.py", '{name} = "{secret}"'),
    ("train.py", '{{\\"{name}\\": \\"{secret}\\"}}'),
    ("python", "-c", "os.environ.setdefault('{name}', '{secret}')"),
    ("train.py", "<{name}>{secret}</{name}>"),
    ('--config={{"{name}": ["{secret}", "x"]}}',),
)
"""Forms in which a name comes with its secret."""

PLACES: Final = (
    ("curl", "-u", "me:{secret}", "https://site.example"),
    ("curl", "-ume:{secret}", "https://site.example"),
    ("curl", "--user=me:{secret}", "https://site.example"),
    ("curl", "--proxy-user", "me:{secret}"),
    ("curl", "-E", "cert.pem:{secret}"),
    ("curl", "-H", "Authorization: Bearer {secret}"),
    ("curl", "-H", "authorization: token {secret}"),
    ("curl", "-H", "Proxy-Authorization: Basic {secret}"),
    ("curl", '-HAuthorization: Digest username="me", response="{secret}"'),
    ("curl", "-H", "Cookie: theme=dark; id={secret}"),
    ("curl", "--oauth2-bearer", "{secret}"),
    ("wget", "--header=Authorization: Bearer {secret}"),
    ("--url=https://me:1?2/#{secret}@site.example/",),
    ("mysql", "-p", "-{secret}", "runs"),
    ("me:1:{secret}@site.example",),
    ("sh", "-c", "train ${{HF_TOKEN:-'{secret}'}}"),
    ("smbclient", "-U", "me%{secret}", "//host/share"),
    ("mysql", "-u", "root", "-p{secret}", "runs"),
    ("env", "A=1", "/usr/bin/mysqldump", "-p{secret}"),
    ("mongodump", "-p", "{secret}"),
    ("sshpass", "-p", "{secret}", "ssh", "host"),
    ("/usr/bin/sshpass", "-p{secret}", "ssh", "host"),
    ("7z", "x", "-p{secret}", "data.7z"),
    ("unzip", "-P", "{secret}", "data.zip"),
    ("ldapsearch", "-D", "cn=me", "-w", "{secret}"),
    ("redis-cli", "-a", "{secret}", "ping"),
    ("openssl", "enc", "-k", "{secret}"),
    ("openssl", "rsa", "-passin", "pass:{secret}"),
    ("docker", "login", "-u", "me", "-p", "{secret}", "registry.example"),
    ("az", "login", "--service-principal", "-p", "{secret}"),
    ("wandb", "login", "{secret}"),
    ("wandb", "login", "--relogin", "{secret}"),
    ("wandb", "login", "--host=https://wandb.example", "{secret}"),
    ("python", "-m", "wandb", "login", "{secret}"),
    ("vault", "login", "{secret}"),
    ("huggingface-cli", "login", "--token", "{secret}"),
    ("kubectl", "create", "secret", "generic", "hub", "--from-literal=plain={secret}"),
    ("git", "config", "--global", "hub.token", "{secret}"),
    ("git", "clone", "https://me:{secret}@git.example/code"),
    ("pip", "install", "--index-url=http://{secret}@wheels.example/all"),
    ("redis-cli", "redis://:{secret}@cache.example/0"),
    ("npm", "config", "set", "//registry.example/:_authToken", "{secret}"),
    ("keytool", "-storepass", "{secret}"),
    ("http", "POST", "site.example", "X-Auth-Token:{secret}"),
    ("git", "clone", "https://{secret}@git.example/code"),
    ("--database=postgres://me:{secret}@db/runs?a=b",),
    ("--database=postgres://me:{secret}/x@db:5432/runs",),
    ("--database=Server=db;User=me;Password={secret};Encrypt=yes",),
    ("--database", "host=db password={secret} user=me"),
    ("me:{secret}@db:5432/runs",),
    ("--notify=https://hooks.slack.com/services/T0/B0/{secret}",),
    ("--notify=https://discord.com/api/webhooks/1/{secret}",),
    ("--notify=https://chat.example/hooks/{secret}",),
    ("--notify=https://acme.webhook.office.com/webhookb2/{secret}/x",),
    ("--notify=https://api.telegram.org/bot1:{secret}/sendMessage",),
    ("--notify=https://hc-ping.com/{secret}",),
    ("--sas=https://store.example/c?sv=1&sig={secret}&se=2",),
    ("sh", "-c", "wandb login {secret} && train --lr 1"),
    ("sh", "-c", "cd /code; curl -u me:{secret} https://site.example"),
    ("sh", "-c", "mysql -p{secret} runs < in.sql"),
    ("sh", "-c", "echo {secret} | docker login --password-stdin registry.example"),
    ("sh", "-c", "docker login --password-stdin registry.example <<< {secret}"),
    ("sh", "-c", "export A=$(echo {secret}); train"),
    ("sh", "-c", "echo machine hub login me password {secret} > ~/.netrc"),
    ("htpasswd", "-b", "file", "me", "{secret}"),
    ("ssh-keygen", "-N", "{secret}"),
    ("curl", "-b", "session={secret}", "https://site.example"),
    ("det", "user", "login", "me", "{secret}"),
    ("sh", "-c", "printf %s '{secret}' | gh auth login --with-token"),
    ("sh", "-c", "curl -H Authorization:\\ Bearer\\ {secret} https://site.example"),
    ("srun", "bash", "-lc", "sh -c 'wandb login {secret}'"),
    ("ssh", "host", "wandb login {secret}"),
    ("curl", "-sSfu", "me:{secret}", "https://site.example"),
    ("curl", "-sSume:{secret}", "https://site.example"),
    ("lftp", "-u", "me,{secret}", "host"),
    ("twine", "upload", "-p", "{secret}"),
    ("xfreerdp", "/p:{secret}"),
    ("mc", "alias", "set", "store", "http://host:9000", "admin", "{secret}"),
    ("train.py", "--api-keys", "one", "{secret}", "--lr", "1"),
    ("ssh", "-o", "ProxyCommand=sshpass -p {secret} ssh jump", "host"),
    ("mount", "//me:{secret}@host/share"),
    ("--notify=slack://T/B/{secret}",),
    ("--notify=tgram://{secret}/1",),
    ("--notify=discord://1/{secret}",),
    ("python", "-c", "from huggingface_hub import login; login('{secret}')"),
    ("python", "-c", 'import wandb; wandb.login("never", "{secret}")'),
    ("sh", "-c", "echo {secret} > ~/.hf_token"),
    ("bash", "-c", "bash -c 'bash -c \"wandb login {secret}\"'"),
    ("train.py", "--hFtOkEn", "{secret}"),
    ("train.py", "Hub.ToKen={secret}"),
)
"""Commands in which the place says that something is a secret."""

VARIABLES: Final = (
    *(
        "SLACK_WEBHOOK",
        "hf_token",
        "USERPASS",
        "DB_PW",
        "BEARER",
        "PRIVKEY",
        "sentry_dsn",
        "Api_Key",
    ),
    *("MYTHING", "FOO", "data_root", "SITE", "NCCL_TOKEN", "TORCH_HUB_SECRET", "NVIDIA_API_KEY"),
    *("TF_VAR_db", "MODEL", "x", "GREETING", "WANDB_ENTITY_KEY"),
    *("PADDLE_CLOUD_AK", "PADDLEX_ACCESS", "RAY_SHARED", "PYTHON_WHO", "FLAGS_magic", "TORCH_HF"),
    *("JAX_SHARED", "GPU_SERVER_LOGIN", "DS_PHRASE", "Hf_ToKeN"),
)
"""Variables whose values others must not read, whatever they are."""

IN_VALUES: Final = (
    ("NCCL_NET", "https://me:{secret}@net.example/"),
    ("XLA_FLAGS", "--xla_dump_to=https://store.example/?sig={secret}"),
    ("OMPI_MCA_mca_base_env_list", "FOO={secret};BAR=1"),
    ("TORCH_LOGS", "hub.token={secret}"),
    ("PYTHONSTARTUP", "sh -c 'wandb login {secret}'"),
)
"""Variables of harmless names, with a secret in their values."""

HARMLESS: Final = (
    "--tokenizer=bert-large-uncased --tokenizer-model /models/llama3/tokenizer.model",
    "--tokenizer gpt2 --max-tokens 4096 --tokens-per-batch 65536 --pad-token [PAD]",
    "--eos_token=</s> --image_token <image> --pass_at_k 1 -e HF_TOKEN",
    "--num-query-token 32 --calculate-per-token-loss --moe-token-dispatcher-type alltoall",
    "--primary-key-column=sample_id --image-key jpg --json-keys text --sort-key name",
    "--author A --use-auth --epochs 3 --passes=3 --password-file /run/secrets/db --keyframes 2",
    "--hash=0123456789abcdef0123456789abcdef01234567",
    "--id=1b671a64-40d5-491e-99b0-da01ff1f3341 --sort_keys=true",
    "torchrun --rdzv-endpoint=10.0.0.1:29500 --nnodes=4 -m train data=s3://bucket/a@b",
    "docker run --env HF_TOKEN --volume /data:/data:ro nvcr.io/nvidia/pytorch:26.01-py3",
    "docker run -u 1000:1000 -p 8080:80 -v /run/secrets:/run/secrets:ro --shm-size=1g image",
    "--lr 3e-4 --lr=0.00015 --weight-decay 0.1 --betas 0.9,0.95 --warmup-ratio 0.03 --seed 1234",
    "--data-path /data/wikitext-103/train --data /mnt/imagenet --output-dir {run_directory}/out",
    "NCCL_DEBUG=INFO OMP_NUM_THREADS=4 CUDA_VISIBLE_DEVICES=0,1,2,3 python -u train.py --bf16",
    "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true,--xla_a=b MASTER_ADDR=node-1 train",
    "mpirun -np 8 -H a:4,b:4 -x NCCL_DEBUG=WARN -x LD_LIBRARY_PATH --bind-to none",
    "srun --signal=B:INT@300 -N 2 --mpi=pmix --container-image=nvcr.io#nvidia/nemo:25.04",
    "trainer.max_steps=100 model.optim.lr=1e-4 +model.tokenizer.type=unigram ~model.key_value",
    "--key-value-channels 128 --num-key-value-heads 8 --attention-key-size 64 --kv-channels=128",
    "--model Qwen2-VL-7B-Instruct-GPTQ-Int4 --run-name Llama3_8B_seq4096_bs16_TP2_PP4 --tag v1.2.3",
    "accelerate launch --config_file /etc/accelerate.yaml --main_process_port 29500 run.py --fp16",
    "https://huggingface.co/datasets/wikitext/resolve/main/data.zip?download=true&rev=main",
    "--monkey-patch on --compass-rose --bypass-cache --pin-memory true --authors bert",
    "--max-new-tokens 128 --stop-tokens a,b --keys a,b --tokens c --exclude-keys a --max-token 64",
    "-c 1 -p 4 -u -k 2 -x -e -P 8 -a b -w 2",
    "-gpu a:b -it -output file:x --num-heads 4 --task 1 --maxNewTokens 5 numQueryToken=32",
    "s3://bucket/x hdfs://name:8020/x tcp://10.0.0.1:29500 slack <pad> <image>a</image> //host/a",
    "docker run -e HF_TOKEN nvcr.io/nvidia/pytorch:26.01-py3",
    "pip install torch==2.13.0 git+https://github.com/acme/trainer@v1.2 git@github.com:acme/x.git",
)  # fmt: skip
"""Commands of which nothing is a secret."""


def secret_commands(
    change: Callable[[str], str] = lambda name: name,
) -> Iterator[tuple[str, list[str]]]:
    """Yield each command with a secret of its own; ``change`` is done to the names of secrets."""
    forms = [(form, name) for name in NAMES for form in FORMS]
    for number, (form, name) in enumerate([*forms, *((form, "") for form in PLACES)]):
        secret = f"plum{number:04}jam"
        yield secret, [part.format(name=change(name), secret=secret) for part in form]


def secret_variables() -> Iterator[tuple[str, str, str]]:
    """Yield variables, each with a secret of its own: that, the name and the value."""
    for number, name in enumerate(VARIABLES):
        yield f"pear{number:04}tart", name, f"pear{number:04}tart"
    for number, (name, value) in enumerate(IN_VALUES):
        secret = f"fig{number:04}roll"
        yield secret, name, value.format(secret=secret)
