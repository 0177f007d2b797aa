"""Looks at a host before anything runs there; itself a program that is sent to it.

The order is a JSON object on standard input, the answer one on standard output. Like the supervisor
it has to run on Python 3.6 and imports the standard library only.
"""

import contextlib
import glob
import json
import os
import re
import subprocess
import sys

_TOOL_LIMIT_S = 8.0
_IMPORT_LIMIT_S = 40.0

# Runs on the trainer's own Python, which may be another one. A distribution's metadata is read in
# milliseconds; to import a framework takes seconds.
_VERSIONS = """
import importlib, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        from importlib.metadata import version
        found[name] = version(name)
    except Exception:
        try:
            module = importlib.import_module(name)
            found[name] = str(getattr(module, "__version__", "no version"))
        except Exception:
            found[name] = None
print("dlperf-versions", json.dumps(found))
"""


def order(
    *,
    python: str,
    folders: "list[str]",
    files: "list[str]",
    modules: "list[str]",
    lock: str,
) -> bytes:
    """What to look for: the trainer's Python, folders, files, and modules of that Python.

    The names of locks that runs hold on the host's devices begin with ``lock``.
    """
    return json.dumps(
        {"python": python, "folders": folders, "files": files, "modules": modules, "lock": lock}
    ).encode("ascii")


def look(wanted: "dict[str, object]") -> "dict[str, object]":
    """Answer an order."""
    folders, files, modules = wanted["folders"], wanted["files"], wanted["modules"]
    assert isinstance(folders, list)  # noqa: S101 - what order() has put there
    assert isinstance(files, list)  # noqa: S101 - as above
    assert isinstance(modules, list)  # noqa: S101 - as above
    python = str(wanted["python"])
    program, versions = _versions(python, modules)
    return {
        "missing": [path for path in folders if not os.path.isdir(path)]  # noqa: PTH112 - no pathlib
        + [path for path in files if not os.path.isfile(path)],  # noqa: PTH113 - as above
        "python": program,
        "versions": versions,
        "devices": _devices(),
        "used_by": [] if _is_locked(str(wanted["lock"]).encode("latin-1")) else _used_by(),
    }


def _versions(python: str, modules: "list[str]") -> "tuple[str | None, dict[str, str | None]]":
    """What is wrong with the trainer's Python, and the versions of modules in it."""
    code = _VERSIONS if modules else "print('dlperf-versions {}')"
    try:
        done = subprocess.run(  # noqa: S603, UP022 - the user's own choice; 3.6 cannot else
            [python, "-c", code, *modules],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_IMPORT_LIMIT_S,
            check=False,
        )
    except OSError as error:
        return os.strerror(error.errno or 0), {}
    except subprocess.TimeoutExpired:
        at = f" at the import of {', '.join(modules)}" if modules else ""
        return f"no answer for {_IMPORT_LIMIT_S:g} s{at}", {}
    printed = done.stdout.decode("utf-8", "replace")
    match = re.search(r"dlperf-versions (.*)", printed)
    if match is None:
        lines = done.stderr.decode("utf-8", "replace").split("\n")
        last = [line for line in lines if line.strip()][-1:]
        return "exit code {}: {}".format(done.returncode, "".join(last)), {}
    found = json.loads(match.group(1))
    return None, {str(name): found[name] for name in found}


def _output(*command: str) -> "list[str] | None":
    """The lines that a command prints; ``None`` where it is not there or fails."""
    try:
        done = subprocess.run(  # noqa: S603 - tools of the system
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TOOL_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return [line for line in done.stdout.decode("utf-8", "replace").split("\n") if line.strip()]


def _devices() -> int:
    """How many accelerators the machine shows: NVIDIA's by their tool, AMD's by the kernel."""
    listed = _output("nvidia-smi", "-L")
    if listed is not None:
        return len([line for line in listed if re.match(r"GPU \d+", line)])
    files = [name for name in _listdir("/dev") if re.match(r"nvidia\d+$", name)]
    if files:
        return len(files)
    count = 0
    for file in glob.glob("/sys/class/kfd/kfd/topology/nodes/*/gpu_id"):  # noqa: PTH207 - as above
        with contextlib.suppress(OSError, ValueError), open(file) as opened:  # noqa: PTH123
            count += int(opened.read()) != 0
    return count


def _listdir(folder: str) -> "list[str]":
    try:
        return os.listdir(folder)  # noqa: PTH208 - as above
    except OSError:
        return []


def _used_by() -> "list[str]":
    """Who computes on NVIDIA devices now."""
    query = ("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")
    return _output(*query) or []


def _is_locked(start: bytes) -> bool:
    """Whether a run of ours goes on, which the devices' use belongs to.

    Only looked at: to try the lock would keep others from it.
    """
    with contextlib.suppress(OSError), open("/proc/net/unix", "rb") as file:  # noqa: PTH123
        # The system writes the NUL in front of a name that lies in no folder as @.
        return any(line.split()[-1].startswith(b"@" + start[1:]) for line in file)
    return False


if __name__ == "__main__":
    sys.stdout.write("\ndlperf-probe " + json.dumps(look(json.loads(sys.stdin.read()))) + "\n")
