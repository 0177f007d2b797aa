"""Trains a small language model with JAX, on all devices of all processes."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pytest_dlperf.trainers import StepLog

LENGTH = 32
VOCABULARY = 128


def read(first: int, samples: int) -> Any:
    """The sequences of one device."""
    time.sleep(samples * float(os.environ.get("SECONDS_PER_SAMPLE", "0")))  # as a slow disk would
    return (np.arange(first, first + samples)[:, None] + np.arange(LENGTH + 1)) % VOCABULARY


def loss_of(weights: dict[str, jax.Array], tokens: jax.Array) -> jax.Array:
    scores = jax.nn.log_softmax(weights["in"][tokens[:, :-1]] @ weights["out"])
    return -jnp.take_along_axis(scores, tokens[:, 1:, None], axis=2).mean()


def descend(
    weights: dict[str, jax.Array], tokens: jax.Array
) -> tuple[dict[str, jax.Array], jax.Array]:
    loss, gradients = jax.value_and_grad(loss_of)(weights, tokens)
    return jax.tree.map(lambda weight, slope: weight - 0.3 * slope, weights, gradients), loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int, help="sequences per device")
    given = parser.parse_args()
    jax.distributed.initialize(
        os.environ["JAX_COORDINATOR_ADDRESS"],
        int(os.environ["JAX_NUM_PROCESSES"]),
        int(os.environ["JAX_PROCESS_ID"]),
    )
    mesh = Mesh(jax.devices(), ("data",))
    shares = NamedSharding(mesh, PartitionSpec("data"))
    one, other = jax.random.split(jax.random.key(0))
    weights = {
        "in": jax.random.normal(one, (VOCABULARY, 64)),
        "out": jax.random.normal(other, (64, VOCABULARY)) / 8,
    }
    weights = jax.device_put(weights, NamedSharding(mesh, PartitionSpec()))
    train_step = jax.jit(descend)
    log = StepLog(global_batch=given.batch * jax.device_count(), sequence_length=LENGTH)
    for step in range(given.steps):
        mine = np.tile(read(step, given.batch), (jax.local_device_count(), 1))
        weights, loss = train_step(weights, jax.make_array_from_process_local_data(shares, mine))
        log.step(loss=loss)
    log.end()


if __name__ == "__main__":
    main()
