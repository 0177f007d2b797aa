"""Steps of Slurm in containers of pyxis: its options, and what is looked at and ended.

pyxis itself is in no package. A program named ``srun`` stands in for it: it takes the options away
that pyxis would take, writes them down, has the environment of the image they name, and goes on as
Slurm's own.
"""

import os

import pytest
from clusters.requirements import command
from trainers import CASES, TinySystem, measurer

from pytest_dlperf.config.settings import parse_setting
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import SlurmLauncher
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import RunStatus

ONE_NODE, _, TWO_NODES = map(Case.from_id, CASES)
ALL = "--container-image=/images/tested.sqsh --container-mounts=/data:/data --mpi=none"


@pytest.fixture
def calls(suite, slurm, tmp_path, monkeypatch):
    """Two nodes that are allocated, and the file that has a line of every step's options."""
    del suite  # it clears the environment, so it comes first
    file = tmp_path / "calls"
    stand_in = tmp_path / "srun"
    # Words behind -- are the program's.
    stand_in.write_text(
        "#!/usr/bin/env python3\n"
        "import os, sys\n"
        "words = sys.argv[1:sys.argv.index('--')]\n"
        "program = sys.argv[sys.argv.index('--'):]\n"
        "taken = [word for word in words if word.startswith('--container-')]\n"
        "kept = [word for word in words if word not in taken]\n"
        f"with open({str(file)!r}, 'a') as calls:\n"
        "    print('look' if '--overlap' in words else 'run', *taken, file=calls)\n"
        "if any('accepted' in word for word in taken):\n"
        "    os.environ['TINY_SLOWER'] = '1.25'\n"
        f"os.execv({command('srun')!r}, ['srun', *kept, *program])\n"
    )
    stand_in.chmod(0o755)
    with slurm.allocation(2) as allocated:
        for name, value in allocated.environment.items():
            if name.startswith("SLURM"):
                monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        yield file


def on_slurm(suite, slurm):
    hosts = [
        Host(name=name, address=address, devices=2)
        for name, address in zip(slurm.names[:2], slurm.addresses[:2], strict=True)
    ]
    said = [parse_setting(f"*.slurm.srun={ALL}")]
    return measurer(suite, settings=said, launcher=SlurmLauncher(), hosts=hosts)


def test_every_step_has_the_options_and_another_image_is_another_arm(suite, slurm, calls):
    tiny = TinySystem(suite)
    options = "--container-image=/images/accepted.sqsh --mpi=none"

    found = on_slurm(suite, slurm).interleaved(
        TWO_NODES,
        hosts=slurm.names[:2],
        pairs=1,
        control=[parse_setting(f"*.slurm.srun={options}")],
    )

    assert [line.split()[3] for line in tiny.slower()] == ["1", "1", "1.25", "1.25"]
    images = {}
    for arm in (found.candidate, found.control):
        [run] = arm.runs
        assert (run.status, run.reason) == (RunStatus.OK, None)
        told = arm.fingerprint.launch.options["slurm.srun"]
        assert f"--container-image={arm.fingerprint.software['image']} " in told
        images[arm.fingerprint.software["image"]] = arm
    assert list(images) == ["/images/tested.sqsh", "/images/accepted.sqsh"]
    tested, accepted = (f"--container-image={image}" for image in images)
    mounts = "--container-mounts=/data:/data"
    assert sorted(calls.read_text().splitlines()) == sorted(
        f"{kind} {taken}"
        for taken in (f"{tested} {mounts}", accepted)
        for kind in ("look", "look", "run", "run")
    )


def test_what_a_killed_supervisor_has_left_is_looked_for_by_another_step(suite, slurm, calls):
    tiny = TinySystem(suite)
    trainer = tiny.folder / "train.py"
    trainer.write_text(
        "import os, signal, time\n"
        "supervisor = os.getppid()\n"
        "if not os.fork():  # this one does not die with its parent\n"
        "    os.kill(supervisor, signal.SIGKILL)\n"
        "time.sleep(600)\n"
    )

    found = on_slurm(suite, slurm).measure(ONE_NODE)

    assert found.runs[0].status is RunStatus.FAILED
    assert calls.read_text().splitlines()[-1].startswith("look ")
    assert slurm.processes() == []
