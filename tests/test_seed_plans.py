"""What the plans of the original benchmark's systems execute, held against its own settings."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_dlperf.config.launch_keys import Devices, StartOn, VariableKind
from pytest_dlperf.config.settings import parse_setting, resolve
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.files.masking import hide_variables, hide_words
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.launch.hosts import Host, Node
from pytest_dlperf.launch.plan import plan_run
from pytest_dlperf.model.case import SINGLE_DEVICE, Case, Topology
from pytest_dlperf.model.errors import CannotMeasureError

FOLDER = Path(__file__).parent.parent / "bench_tests" / "systems"
TRAINERS = FOLDER.parent / "trainers"
SYSTEMS = load_systems(sorted(FOLDER.glob("*.yaml")), BUILTIN_FORMATS)
SEEDS = (
    "paddle-resnet50",
    "ngc_pytorch-resnet50",
    "pytorch-resnet50",
    "paddle-arcface_r50",
    "tensorflow-bert_base",
)
TOPOLOGIES = ("1n1g", "1n2g", "1n4g", "1n8g", "2n8g", "4n8g")
SET = {
    "paddle-resnet50": {"checkout": "/paddle", "data": "/imagenet", "dali_extra": "/dali"},
    "ngc_pytorch-resnet50": {"checkout": "/ngc", "data": "/imagenet"},
    "pytorch-resnet50": {"checkout": "/examples", "data": "/imagenet"},
    "paddle-arcface_r50": {"checkout": "/plsc"},
    "tensorflow-bert_base": {"checkout": "/tf", "data": "/wiki", "bert_config": "/bert.json"},
}
# The addresses of the original cluster; ports that differ show whose port is meant.
ADDRESSES = ("10.11.0.2", "10.11.0.3", "10.11.0.4", "10.11.0.5")


def nodes_of(case, addresses=ADDRESSES):
    return tuple(
        Node(
            host=Host(name=f"v100-{rank}", address=addresses[rank]),
            port=20000 + rank,
            first_port=25000,
            device_ids=tuple(range(case.topology.devices_per_node)),
            folder=f"/own/{rank}",
        )
        for rank in range(case.topology.nodes)
    )


def plan(
    case,
    *more,
    addresses=ADDRESSES,
    given_values=None,
):
    system = SYSTEMS[case.system]
    assert system.launch is not None
    values = SET[case.system] if given_values is None else given_values
    said = [f"{system.id}.{name}={value}" for name, value in values.items()]
    variables = resolve(
        system.launch, system.id, [[parse_setting(text) for text in (*said, *more)]], case=case
    )
    return plan_run(
        system.launch,
        case=case,
        window=system.window,
        settling_steps=system.log_format.settling_steps,
        system_directory=system.file.parent,
        run=1,
        nodes=nodes_of(case, addresses),
        variables=variables,
        python="/usr/bin/python3",
        log=Path(f"/runs/{case.id}_1.log"),
    )


def cases_of(system):
    """Every training of a system at every topology, published or not."""
    variants = dict.fromkeys(replace(case, topology=SINGLE_DEVICE) for case in system.cases)
    topologies = [Topology.parse(text) for text in TOPOLOGIES]
    return [replace(one, topology=topology) for one in variants for topology in topologies]


def each_case_of(*names):
    """Run a test for each case of systems."""

    def of_each(test):
        def tested():
            for case in (case for name in names for case in cases_of(SYSTEMS[name])):
                try:
                    test(case)
                except AssertionError as error:
                    error.add_note(case.id)
                    raise

        return tested

    return of_each


def flags(arguments):
    """The options of a command line: ``--a=b``, ``--a b`` and ``--a`` alone; each stands once."""
    found = {}
    for argument, behind in zip(arguments, [*arguments[1:], "-"], strict=False):
        if not argument.startswith("-") or argument.lstrip("-")[:1].isdigit():
            continue
        name, equals, value = argument.partition("=")
        if not equals:
            is_flag = behind.startswith("-") and not behind.lstrip("-")[:1].isdigit()
            value = "" if is_flag else behind
        assert name not in found, f"{name} stands twice"
        found[name] = value
    return found


def check(arguments, expected):
    """The command line has exactly these options with these values."""
    assert flags(arguments) == dict(expected)


def sizes(case):
    """Batch per device, devices per node, nodes, and batch of all nodes."""
    nodes, devices = case.topology.nodes, case.topology.devices_per_node
    return case.batch_per_replica, devices, nodes, case.batch_per_replica * devices * nodes


def rate(batch_per_node):
    """A thousandth of the batch, as the original's awk prints it."""
    return f"{batch_per_node / 1000:g}"


# ------------------------------------------------------------------------- system by system


@each_case_of("paddle-resnet50")
def test_paddle_resnet50(case):
    batch, devices, nodes, _ = sizes(case)
    is_fp16, with_dali = case.precision == "fp16", "dali" in case.options
    expected = {
        "-m": "paddle.distributed.launch",
        "--data_format": "NHWC" if is_fp16 else "NCHW",
        "--batch_size": str(batch * devices),
        "--max_iter": "120",
        "--print_step": "1",
        "--reader_thread": "10" if with_dali else "12" if devices == 4 else "8",
        "--use_dali": "true" if with_dali else "false",
        "--model": "ResNet50",
        "--class_dim": "1000",
        "--total_images": "1302936",
        "--image_shape": "3",
        "--lr": "0.001",
        "--momentum_rate": "0.875",
        "--l2_decay": "0.000030518",
        "--use_label_smoothing": "True",
        "--label_smoothing_epsilon": "0.1",
        "--validate": "False",
        "--data_dir": "/imagenet",
        # Not among what changes speed, but in the original's scripts.
        "--save_step": "10000",
        "--lr_strategy": "cosine_decay" if nodes == 1 else "piecewise_decay",
        "--warm_up_epochs": "1",
        "--use_mixup": "False",
    }
    environment = {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(devices))),
        "FLAGS_fraction_of_gpu_memory_to_use": "0.8" if with_dali else "0.98",
    }
    if is_fp16:
        expected |= {
            "--use_fp16": "True",
            "--use_dynamic_loss_scaling": (
                "false" if "static_loss_scale" in case.options else "true"
            ),
            "--scale_loss": "128.0",
            "--fuse_elewise_add_act_ops": "true",
            "--fuse_bn_act_ops": "true",
        }
        environment |= {
            "FLAGS_conv_workspace_size_limit": "4000",
            "FLAGS_cudnn_exhaustive_search": "1",
            "FLAGS_cudnn_batchnorm_spatial_persistent": "1",
        }
    if with_dali:
        environment["DALI_EXTRA_PATH"] = "/dali"
    for rank, node in enumerate(plan(case)):
        own = {**expected, "--started_port": "25000"}
        if nodes > 1:
            own["--cluster_node_ips"] = ",".join(ADDRESSES[:nodes])
            own["--node_ip"] = ADDRESSES[rank]
        check(node.arguments, {**own, "--model_save_dir": f"/own/{rank}/scratch"})
        shape = node.arguments.index("--image_shape")
        assert node.arguments[shape : shape + 4] == ("--image_shape", "3", "224", "224")
        assert node.arguments[:3] == ("/usr/bin/python3", "-m", "paddle.distributed.launch")
        launcher, program = node.arguments[3:], node.arguments.index("/paddle/train.py")
        # The addresses are the launcher's, all else is the trainer's.
        assert set(flags(launcher[: program - 3])) == set(own) - set(expected)
        assert node.environment == environment


@each_case_of("ngc_pytorch-resnet50")
def test_ngc_pytorch_resnet50(case):
    batch, devices, nodes, _ = sizes(case)
    for rank, node in enumerate(plan(case)):
        program = node.arguments.index("/ngc/main.py")
        assert node.arguments[:2] == ("/usr/bin/python3", "/ngc/multiproc.py")
        check(
            node.arguments[2:program],
            {
                "--nnodes": str(nodes),
                "--node_rank": str(rank),
                "--nproc_per_node": str(devices),
                "--master_addr": "10.11.0.2",
                "--master_port": "20000",
            },
        )
        check(
            node.arguments[program:-1],
            {
                "--data-backend": "dali-cpu",
                "-j8": "",
                "-p": "1",
                "-b": str(batch),
                "--lr": rate(batch * devices),
                "--prof": "126",
                "--arch": "resnet50",
                "-c": "fanin",
                "--label-smoothing": "0.1",
                "--lr-schedule": "cosine",
                "--mom": "0.125",
                "--wd": "3.0517578125e-05",
                "--optimizer-batch-size": "-1",
                "--warmup": "8",
                "--epochs": "1",
                "--training-only": "",
                "--no-checkpoints": "",
                "--workspace": f"/own/{rank}/scratch",
                "--raport-file": f"/own/{rank}/scratch/raport.json",
            },
        )
        assert node.arguments[-1] == "/imagenet"


def test_ngc_pytorch_in_mixed_precision_uses_amp():
    case = Case.from_id("ngc_pytorch-resnet50-amp-b256-2n8g")
    fp32 = Case.from_id("ngc_pytorch-resnet50-fp32-b256-2n8g")
    for amp, without in zip(plan(case), plan(fp32), strict=True):
        assert flags(amp.arguments[:-1]).items() - flags(without.arguments[:-1]).items() == {
            ("--amp", ""),
            ("--dynamic-loss-scale", ""),
        }


@each_case_of("pytorch-resnet50")
def test_pytorch_resnet50(case):
    batch, devices, nodes, _ = sizes(case)
    for rank, node in enumerate(plan(case)):
        with_dali = "dali" in case.options
        program = str(TRAINERS / "imagenet_dali.py") if with_dali else "/examples/main.py"
        assert node.arguments[:2] == ("/usr/bin/python3", program)
        check(
            node.arguments[2:-1],
            {
                "--arch": "resnet50",
                "--epochs": "1",
                "--workers": "48" if "workers48" in case.options else "8",
                "--momentum": "0.125",
                "--batch-size": str(batch * devices),
                "--lr": rate(batch * devices),
                "--print-freq": "1",
                "--multiprocessing-distributed": "",
                "--dist-backend": "nccl",
                "--dist-url": "tcp://10.11.0.2:20000",
                "--world-size": str(nodes),
                "--rank": str(rank),
            },
        )
        assert node.arguments[-1] == "/imagenet"
        assert node.environment == {
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(devices))),
            **({"PYTHONPATH": "/examples"} if with_dali else {}),
        }


@each_case_of("paddle-arcface_r50")
def test_paddle_arcface_r50(case):
    _, devices, nodes, _ = sizes(case)
    ids = ",".join(map(str, range(devices)))
    for rank, node in enumerate(plan(case)):
        if case.topology.world_size == 1:
            expected = (str(TRAINERS / "plsc_train.py"), "--loss_type=arcface")
        else:
            expected = (
                "-m",
                "paddle.distributed.launch",
                f"--cluster_node_ips={','.join(ADDRESSES[:nodes])}",
                f"--node_ip={ADDRESSES[rank]}",
                f"--selected_gpus={ids}",
                "--started_port=25000",
                str(TRAINERS / "plsc_train.py"),
                "--loss_type=dist_arcface",
            )
        assert node.arguments == ("/usr/bin/python3", *expected)
        assert node.environment == {"CUDA_VISIBLE_DEVICES": ids, "PYTHONPATH": "/plsc"}


@each_case_of("tensorflow-bert_base")
def test_tensorflow_bert_base(case):
    _, devices, nodes, global_batch = sizes(case)
    with_xla = "xla" in case.options
    environment = {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(devices))),
        "PYTHONPATH": "/tf",
    }
    if with_xla:
        environment["TF_XLA_FLAGS"] = "--tf_xla_cpu_global_jit"
    if nodes > 1:
        environment["NCCL_DEBUG"] = "INFO"
    hosts = ",".join(f"{ADDRESSES[rank]}:{20000 + rank}" for rank in range(nodes))
    for rank, node in enumerate(plan(case)):
        expected = {
            "--input_files": "/wiki/*.tfrecord",
            "--bert_config_file": "/bert.json",
            "--model_dir": f"/own/{rank}/scratch",
            "--train_batch_size": str(global_batch),
            "--num_steps_per_epoch": "120",
            "--num_train_epochs": "1",
            "--max_seq_length": "128",
            "--max_predictions_per_seq": "20",
            "--warmup_steps": "10000",
            "--use_next_sentence_label": "True",
            "--train_summary_interval": "0",
            "--optimizer_type": "adamw",
            "--num_gpus": str(devices),
            "--datasets_num_private_threads": "8",
            "--dtype": case.precision,
            "--enable_xla": "true" if with_xla else "false",
        }
        if nodes > 1:
            expected |= {
                "--distribution_strategy": "multi_worker_mirrored",
                "--worker_hosts": hosts,
                "--task_index": str(rank),
                "--all_reduce_alg": "nccl",
            }
        assert node.arguments[:2] == (
            "/usr/bin/python3",
            str(TRAINERS / "bert_pretraining.py"),
        )
        check(node.arguments[2:], expected)
        assert node.environment == environment


# ------------------------------------------------------------------------------ all of them


@pytest.mark.parametrize("name", SEEDS)
def test_nothing_of_a_command_is_taken_for_a_secret(name):
    for case in cases_of(SYSTEMS[name]):
        for command in plan(case):
            assert hide_words(command.arguments) == list(command.arguments)
            assert hide_variables(command.environment) == command.environment


@each_case_of(*SEEDS)
def test_every_node_has_its_own_command_and_log(case):
    commands = plan(case)
    assert [command.node_rank for command in commands] == list(range(case.topology.nodes))
    assert [command.host for command in commands] == [node.host.name for node in nodes_of(case)]
    assert len({command.log for command in commands}) == len(commands)
    # Nothing is left in a checkout, which may be read-only: each runs in a folder of its own.
    for rank, command in enumerate(commands):
        assert command.working_directory == f"/own/{rank}/scratch"


@pytest.mark.parametrize("name", SEEDS)
def test_a_seed_runs_on_gpus_of_every_node_with_pauses_as_long_as_the_original_s(name):
    spec = SYSTEMS[name].launch
    assert (spec.devices, spec.start_on) == (Devices.GPU, StartOn.EVERY_NODE)
    assert (spec.pause_s, spec.run_to_end, spec.retries) == (20, False, 0)


@pytest.mark.parametrize("name", SEEDS)
def test_folders_that_a_seed_needs_are_known_to_be_folders(name):
    system = SYSTEMS[name]
    assert system.launch.variables["checkout"].kind is VariableKind.FOLDER
    for case in system.cases:
        needed = system.launch.variables_of(case)
        # A program of the user's own needs no checkout around it.
        assert "checkout" in needed
        assert ("dali" in case.options) == any("dali" in variable for variable in needed)


@pytest.mark.parametrize("name", SEEDS)
def test_what_a_seed_needs_is_told_with_what_it_means_and_how_it_is_set(name):
    system = SYSTEMS[name]
    with pytest.raises(CannotMeasureError) as caught:
        resolve(system.launch, name, [], case=system.cases[0])
    assert f"checkout ({system.launch.variables['checkout'].meaning})" in str(caught.value)
    assert f"--dlperf-set {name}.checkout=FOLDER" in str(caught.value)


ROUGH = (
    "a b",
    "'",
    '"',
    '" --evil="',
    "$(touch x)",
    "`touch x`",
    "; rm -rf x #",
    "a\nb",
    "a\tb",
    "{steps}",
    "{{",
    "}",
    "{unknown}",
    "--evil",
    "-x",
    "*",
    "\\",
    "%s",
    "ü ☃",
    "",
)


@pytest.mark.parametrize("name", SEEDS)
def test_no_value_or_address_gets_out_of_its_argument(name):
    for rough in ROUGH:
        for case in (SYSTEMS[name].cases[0], *cases_of(SYSTEMS[name])[-1:]):
            assert_same_shape(case, rough)


@given(
    name=st.sampled_from(SEEDS),
    rough=st.text(st.characters(exclude_characters="\0", codec="utf-8")),
)
def test_no_text_at_all_gets_out_of_its_argument(name, rough):
    assert_same_shape(cases_of(SYSTEMS[name])[-1], rough)


def assert_same_shape(case, rough):
    """With ``rough`` in every value and address, each argument differs by this text alone."""
    mark = "MARK"

    def with_text(text):
        values = dict.fromkeys(SET[case.system], f"/{text}")
        return plan(
            case,
            addresses=[text] * 4,
            given_values=values,
        )

    for plain, changed in zip(with_text(mark), with_text(rough), strict=True):
        brackets = f"[{rough}]:" if ":" in rough else f"{rough}:"

        def expected(text, brackets=brackets):
            return text.replace(f"{mark}:", brackets).replace(mark, rough)

        assert changed.arguments == tuple(expected(text) for text in plain.arguments)
        assert changed.environment == {
            key: expected(text) for key, text in plain.environment.items()
        }


@each_case_of(*SEEDS)
def test_extra_arguments_and_environment_reach_every_node(case):
    name = case.system
    more = [f"{name}.extra_args=--flag 'two words'", f"{name}.env.NCCL_SOCKET_IFNAME=ib0"]
    for plain, node in zip(plan(case), plan(case, *more), strict=True):
        at = node.arguments.index("--flag")
        assert node.arguments[at : at + 2] == ("--flag", "two words")
        assert (*node.arguments[:at], *node.arguments[at + 2 :]) == plain.arguments
        assert node.environment == {**plain.environment, "NCCL_SOCKET_IFNAME": "ib0"}


def test_the_smoke_training_runs_on_any_machines_and_takes_a_network_interface():
    system = SYSTEMS["pytorch-resnet18"]
    assert system.launch.devices is Devices.CPU
    case = Case.from_id("pytorch-resnet18-fp32-b8-2n1g")
    first, second = plan(case, "pytorch-resnet18.env.GLOO_SOCKET_IFNAME=eth0", given_values={})
    for node in (first, second):
        assert node.arguments[:3] == ("/usr/bin/python3", "-m", "torch.distributed.run")
        assert node.environment["GLOO_SOCKET_IFNAME"] == "eth0"
        assert flags(node.arguments[3:])["--master-addr"] == "10.11.0.2"
    assert flags(second.arguments[3:])["--node-rank"] == "1"
