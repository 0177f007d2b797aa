"""Where one process of PaddlePaddle is among all, as its launcher has told it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from seed_trainers.flags import expect
from seed_trainers.meeting import Meeting, endpoint_of, visible_devices


@dataclass(frozen=True, slots=True)
class PaddlePlace:
    """A process of a run: its rank, the endpoints of all, and its own device."""

    rank: int
    endpoints: tuple[tuple[str, int], ...]
    device: int

    @classmethod
    def told(cls) -> PaddlePlace:
        """What the environment says."""
        endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
        rank = int(os.environ["PADDLE_TRAINER_ID"])
        expect("PADDLE_TRAINERS_NUM", int(os.environ["PADDLE_TRAINERS_NUM"]), len(endpoints))
        expect("PADDLE_CURRENT_ENDPOINT", os.environ["PADDLE_CURRENT_ENDPOINT"], endpoints[rank])
        device = int(os.environ["FLAGS_selected_gpus"])  # noqa: SIM112 - its name
        return cls(rank, tuple(map(endpoint_of, endpoints)), visible_devices()[device])

    @classmethod
    def told_or_alone(cls) -> PaddlePlace:
        """What the environment says; else the only process, which no launcher has started."""
        if "PADDLE_TRAINER_ID" in os.environ:
            return cls.told()
        [device] = visible_devices()
        return cls(0, (("127.0.0.1", 0),), device)

    @property
    def world_size(self) -> int:
        """How many processes there are."""
        return len(self.endpoints)

    @property
    def hosts(self) -> list[str]:
        """The addresses of the nodes, in order."""
        return list(dict.fromkeys(host for host, _ in self.endpoints))

    @property
    def devices_per_node(self) -> int:
        """How many processes each node has."""
        return self.world_size // len(self.hosts)

    @property
    def topology(self) -> str:
        """Nodes and devices of a node."""
        return f"{len(self.hosts)}n{self.devices_per_node}g"

    @property
    def node(self) -> int:
        """Which node it is on."""
        return self.hosts.index(self.endpoints[self.rank][0])

    def met(self, case: str) -> Meeting:
        """Meet the others, who have to train the same case."""
        meeting = Meeting.at_endpoints(self.rank, self.endpoints)
        meeting.agree({"case": case}, place={"node": self.node, "device": self.device})
        return meeting
