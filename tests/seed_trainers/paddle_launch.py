"""In the place of ``paddle.distributed.launch`` of PaddlePaddle 1.8."""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser

from seed_trainers.meeting import visible_devices
from seed_trainers.processes import run_all, script

_OWN_MACHINE = "127.0.0.1"


def main() -> None:
    """Start the script once for each device of this node.

    Raises:
        SystemExit: The arguments cannot be, or a process failed.
    """
    parser = ArgumentParser(allow_abbrev=False)
    parser.add_argument("--cluster_node_ips", default=_OWN_MACHINE)
    parser.add_argument("--node_ip", default=_OWN_MACHINE)
    # Without it the original takes 6070 and so on, as every other run on a host would.
    parser.add_argument("--started_port", type=int, required=True)
    parser.add_argument("--selected_gpus")
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=REMAINDER)
    given = parser.parse_args()
    hosts = given.cluster_node_ips.split(",")
    if len(set(hosts)) != len(hosts) or given.node_ip not in hosts:
        parser.error(f"{given.node_ip} cannot be one node of {hosts}")
    devices = visible_devices()
    chosen = [int(text) for text in (given.selected_gpus or "").split(",") if text] or devices
    if not set(chosen) <= set(devices):
        parser.error(f"of {chosen} only {devices} are visible")
    ports = range(given.started_port, given.started_port + len(chosen))
    endpoints = [f"{host}:{port}" for host in hosts for port in ports]
    first = hosts.index(given.node_ip) * len(chosen)
    sys.stdout.write("-----------  Configuration Arguments -----------\n")
    run_all(
        script(
            [given.training_script, *given.training_script_args],
            {
                "FLAGS_selected_gpus": str(devices.index(device)),
                "PADDLE_TRAINER_ID": str(first + number),
                "PADDLE_TRAINERS_NUM": str(len(endpoints)),
                "PADDLE_CURRENT_ENDPOINT": endpoints[first + number],
                "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
            },
        )
        for number, device in enumerate(chosen)
    )
