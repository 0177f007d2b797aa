"""What of a command and its environment may leave the session directory.

Others read results, baselines and reports. There a variable has its value only if its name is known
to be harmless; in the place of other values and of all secrets stands a digest, which shows whether
a value has changed, and not what it was.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_dlperf.config.options import DIGEST_KEY_VARIABLE
from pytest_dlperf.files.writing import make_folder
from pytest_dlperf.masking.masker import MASK, MASKER, Masker
from pytest_dlperf.masking.secret_names import is_secret, names_secret
from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_KEY_FILE: Final = Path("pytest-dlperf", "digest-key")
_KEY_LENGTH: Final = 32
"""Least characters of a key: a shorter one could be guessed from one known value."""
_OWN_KEY: Final = os.urandom(_KEY_LENGTH)
"""This process's key, where there is no other."""
_DIGITS: Final = 4
"""Hexadecimal digits of the key's name, and of a digest: enough to tell that a value has changed,
too few to confirm one of many guesses, even with the key."""

_TUNE_WHOLLY: Final = """
    ACCELERATE ASCEND CCL CUBLAS CUDA CUDNN DALI DEEPSPEED FI GLOO GOMP HCCL HIP HOROVOD HSA
    I_MPI KMP LIBTPU MEGATRON MIOPEN MKL MPICH MV2 NCCL NUMBA NUMEXPR NVIDIA NVSHMEM NVTE
    OMP OMPI_MCA OPENBLAS PET PJRT PMIX_MCA PSM2 PSM3 PT_HPU PYTORCH RCCL ROCR SHARP TF_CPP
    TF_CUDNN TF_ENABLE TF_FORCE TF_GPU TORCHDYNAMO TORCHELASTIC TORCHINDUCTOR TORCHTITAN TPU
    TRITON UCC UCX VECLIB XLA XPU ZE
"""
"""How names of libraries begin that users give to nothing of their own."""
_TUNE_BY_WORD: Final = {
    "DS": "ACCELERATOR BUILD DISABLE ENABLE ENV IGNORE SKIP",
    "FLAGS": "allocator benchmark call check cinn conv cublas cublaslt cudnn eager embedding enable"
    " fast flash fraction fuse gemm gpu init initial log max memory nccl new npu pir prim"
    " reallocate run selected set stop sync tracer use xpu",
    "GPU": "DEVICE DUMP ENABLE FORCE MAX NUM SINGLE USE",
    "JAX": "ALLOW CAPTURE CHECK COMPILATION COMPILER COORDINATION COORDINATOR CPU CUDA DEBUG"
    " DEFAULT DISABLE DISTRIBUTED DUMP ENABLE EXPERIMENTAL EXPLAIN INCLUDE LIBRARY LOCAL LOG"
    " LOGGING MOCK NUM NUMPY OPTIMIZATION PALLAS PERSISTENT PGLE PJRT PLATFORM PLATFORMS PLUGIN"
    " PROCESS RAISE ROCM THREEFRY TPU TRACEBACK TRACER TRANSFER USE VISIBLE XLA",
    "PADDLE": "CURRENT DIST DISTRI ELASTIC GLOBAL HOME JOB LOCAL LOG MASTER NNODES NODE PDX PORT"
    " POD RANK SIZE TRAINER TRAINERS TRAINING USE WITH WORLD",
    "PYTHON": "COLORS CPU GIL HISTORY JIT LAZY PERF",
    "RAY": "ADDRESS BACKEND CGRAPH CHDIR COLOR DEDUP DISABLE ENABLE EXPERIMENTAL GCS IGNORE LOG"
    " MEMORY NODE NUM OBJECT OVERRIDE PROFILING RAYLET RUNTIME SCHEDULER START TASK TMPDIR TRAIN"
    " USAGE USE WORKER",
    "TORCH": "ALLOW BLAS COMPILE CPP CUDA CUDNN DEVICE DISABLE DIST DISTRIBUTED DONT ENABLE"
    " EXTENSIONS FORCE FR GLOO HOME LOGS LINALG MKLDNN NCCL NNPACK NUM NVTX PROFILER ROCM SHOW"
    " SYMM TRACE USE WARN XLA XPU",
}
"""How names begin that users do give, with the next words of those that are the library's."""
_TUNES: Final = re.compile(
    rf"(?:{'|'.join(_TUNE_WHOLLY.split())})_.*|(?:"
    + "|".join(f"{name}_(?:{'|'.join(w.split())})" for name, w in _TUNE_BY_WORD.items())
    + r")(?:_.*)?"
    r"|DLPERF_STEPS.*|PADDLEFORMERS_DIST_LOG|PYTHON[A-Z0-9]*|COMPLIANCE_FILE|HF_DATASETS_OFFLINE"
    r"|HF_HOME|HF_HUB_OFFLINE|HOME"
    r"|LANG|LC_ALL|LD_LIBRARY_PATH|LD_PRELOAD|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|NNODES"
    r"|NODE_RANK|NPROC_PER_NODE|PATH|RANK|TF_DETERMINISTIC_OPS|TF_XLA_FLAGS|TMPDIR"
    r"|TOKENIZERS_PARALLELISM|TRANSFORMERS_OFFLINE|TZ|WANDB_DISABLED|WANDB_MODE|WORLD_SIZE"
    r"|XDG_CACHE_HOME"
)
"""Names of variables that tune a training, and hold no secret."""

_MIN_KNOWN: Final = 6
"""Characters of a secret that is masked wherever a program prints it."""


class _Harmless(NamedTuple):
    names: frozenset[str]
    prefixes: tuple[str, ...]

    def allows(self, name: str) -> bool:
        """Say whether values of a name may be shown; of a secret's only if it is named in full."""
        tunes = _TUNES.fullmatch(name) or name.startswith(self.prefixes)
        return name in self.names or (bool(tunes) and not names_secret(name))


IN_REASONS: Final = Masker(may_be_shown=_Harmless(frozenset(), ()).allows)
"""Masks what programs have printed: no two nights are compared by it, so it takes no key."""


def in_reasons(arguments: Iterable[str], environment: Mapping[str, str]) -> Masker:
    """Return what also masks the secrets that a program was given, or inherited from this one."""
    named = (*environment.items(), *os.environ.items())
    commands = ([*arguments], *([value] for value in environment.values()))
    given = chain.from_iterable(map(MASKER.secrets_of, commands))
    found = (*given, *(value for name, value in named if is_secret(name, value)))
    return IN_REASONS._replace(known=frozenset(one for one in found if len(one) >= _MIN_KNOWN))


def published(key: bytes, public: Collection[str] = ()) -> Masker:
    """Return what masks all that leaves the session directory.

    ``public`` are further names of variables whose values may be shown, or how names begin and
    ``*``.
    """
    prefixes = tuple(sorted({name[:-1] for name in public if name.endswith("*")}))
    key_name = hashlib.sha256(b"name of " + key).hexdigest()[:_DIGITS]

    def digest(secret: str) -> str:
        content = secret.encode("utf-8", "surrogateescape")
        return f"{MASK}{key_name}{hmac.new(key, content, 'sha256').hexdigest()[:_DIGITS]}"

    return Masker(digest, _Harmless(frozenset(public), prefixes).allows)


def digest_key(environment: Mapping[str, str] = os.environ) -> bytes:
    """Return the key of digests: a variable's, or that of a file of the user's own.

    Digests of one key can be compared. The file is made where it is missing. Where that fails, the
    key is this process's: then no night tells by a digest that something has changed.

    Raises:
        UsageError: The key is too short, or others may read or have chosen the file.
    """
    key = environment.get(DIGEST_KEY_VARIABLE, "").strip().encode("utf-8", "surrogateescape")
    place = DIGEST_KEY_VARIABLE
    if not key:
        try:
            folder = Path(environment.get("XDG_CONFIG_HOME", ""))
            file = (folder if folder.is_absolute() else Path("~/.config").expanduser()) / _KEY_FILE
            key = _key_of(file)
        except (OSError, RuntimeError):  # a user without a home folder, for one
            return _OWN_KEY
        place = str(file)
    if len(key) < _KEY_LENGTH:
        raise UsageError(
            f"{place} holds a key of {len(key)} characters; it takes at least {_KEY_LENGTH}, such "
            "as 'openssl rand -hex 32' prints"
        )
    return key


def _key_of(file: Path) -> bytes:
    """Read the key, after making one where there is none."""
    if not file.exists():
        make_folder(file.parent)
        place = file.parent / f".{file.name}-{os.urandom(8).hex()}"
        place.touch(mode=0o600, exist_ok=False)
        try:
            place.write_text(f"{os.urandom(_KEY_LENGTH).hex()}\n", encoding="ascii")
            with suppress(FileExistsError):
                os.link(place, file)  # whole from the start, and of two sessions one's
        finally:
            place.unlink()
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:
        status = os.fstat(opened.fileno())
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not is_own or status.st_mode & 0o077:
            raise UsageError(
                f"{file} has to be yours, and not readable by others; remove it, or chmod 600"
            )
        return opened.read(1024).strip()
