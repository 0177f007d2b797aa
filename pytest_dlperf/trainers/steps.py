"""Prints a line of each training step, for trainers that print nothing that could be measured.

Copy this file, or import it from ``pytest_dlperf.trainers``; ``sitecustomize.py`` adds it to a
trainer from outside. Both run on Python 3.7 and later. A loop of one's own makes a ``StepLog`` and
calls ``step`` for each step of the optimizer; trainers of others have a class of their own. Each
rank prints whole lines: the run, each step, and its end::

    dlperf run rank=0 world_size=2 nodes=1 devices_per_node=2 global_batch=16 precision=fp32
    dlperf step rank=0 step=12 time=3.456789 tokens=1024 loss=6.9078 peak_memory_mb=512.3
    dlperf end rank=0

Steps are the optimizer's, from 1. One of another batch than the first has a line ``dlperf run
rank=0 global_batch=6`` in front. ``time`` is in seconds, from a monotonic clock of the process, and
``tokens`` are this rank's, padding included. ``peak_memory_mb`` is the most that tensors had
allocated on the accelerator, on a CPU the largest resident size of the process (10^6 bytes).

An accelerator computes behind the host. A thread waits for it: a step's time is when the device had
done it. With ``DLPERF_STEPS_SYNCHRONIZE=1`` in the environment, the host waits in each step.
"""

from __future__ import annotations

import atexit
import functools
import os
import queue
import resource
import sys
import threading
import time
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SYNCHRONIZE = "DLPERF_STEPS_SYNCHRONIZE"

_LAUNCHERS = (
    # rank, world size, processes of the node, nodes
    ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"),  # torchrun, accelerate
    ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_LOCAL_SIZE", ""),  # paddle.distributed
    ("RANK", "WORLD_SIZE", "LOCAL_SIZE", "CROSS_SIZE"),  # deepspeed
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", ""),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", ""),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "", "SLURM_STEP_NUM_NODES"),
)
_PRECISIONS = {
    "fp64": ("float64", "64-true"),
    "fp32": ("float32", "32-true", "no"),
    "fp16": ("float16", "16-true", "16-mixed"),
    "bf16": ("bfloat16", "bf16-true", "bf16-mixed"),
}
"""How trainers call precisions that cases have a word for."""
_LONGEST_STEP_S = 300.0
"""Seconds that an exit waits for the next step: behind a broken collective it never comes."""


class StepLog:
    """Prints the steps of this process; the first ``step`` also prints what is known of the run."""

    def __init__(self, **facts: Any) -> None:
        """Begin to count the time.

        The case is held to ``facts``: ``global_batch`` (samples of a step over all ranks) or
        ``batch_per_device``, ``precision`` (``bf16``), ``sequence_length``, ``tp``, ``pp``, ``cp``,
        ``ep``; without a launcher ``world_size``, ``nodes``, ``devices_per_node``.
        """
        self.facts = facts
        self.rank = self.count = 0  # and steps by now
        self._prints = True
        self._synchronize = os.environ.get(SYNCHRONIZE, "0") not in ("", "0")
        self._memory_mb: Callable[[], float] = _resident_mb
        self._tokens = self._samples = self._work = 0
        self.batches = 0  # micro batches of the next step
        self._loss: Any = None
        self._mark: Callable[[], Callable[[], object]] | None = None
        self._choose_device: Callable[[], object] = bool
        self._lines: queue.SimpleQueue[Any] = queue.SimpleQueue()  # that wait for the device
        self._printer: threading.Thread | None = None
        self._began = time.perf_counter()

    def take(self, batch: Any = None, loss: Any = None) -> None:
        """Take a micro batch of the next step, or its part of the step's loss."""
        self.batches += 1
        try:
            shape = batch["input_ids"].shape  # no value is read
            self._tokens += shape[0] * shape[1]
            self._samples += shape[0]
            if not self.count:
                self.facts.setdefault("sequence_length", shape[1])
        except (AttributeError, IndexError, KeyError, TypeError):
            pass  # it has no tokens
        if loss is not None:
            self._loss = loss if self._loss is None else self._loss + loss

    def on_backward(self, _result: object, loss: Any, *_: Any, **__: Any) -> None:
        """Take the loss that ``backward`` was called with; that of the last micro batch counts."""
        self._loss = loss.detach() if hasattr(loss, "detach") else loss
        self.batches += 1

    def step(self, loss: Any = None, tokens: int | None = None) -> None:
        """Say that a step of the optimizer has ended; JAX needs its loss, a number or a tensor."""
        loss = self._loss if loss is None else loss
        if loss is None and _is_jax():
            raise ValueError("pass the loss of each step: JAX returns before a step is done")
        self.count += 1
        head = self._first(loss) if self.count == 1 else self._other_work()
        wait, number = self._pending(loss)
        if self._synchronize and wait is not None:
            wait()
            wait = None
        step, tokens = self.count, tokens or self._tokens
        self._tokens, self._samples, self.batches, self._loss = 0, 0, 0, None
        self._print(lambda: self._line(head, step, tokens, number()), wait)

    def value(self, step: int, loss: float) -> None:
        """Print the loss of a step that was printed before."""
        self._print(lambda: f"dlperf value rank={self.rank} step={step} loss={loss:.6g}\n")

    def end(self) -> None:
        """Say that there are no more steps; those that are still computed are waited for."""
        self._print(lambda: f"dlperf end rank={self.rank}\n")
        self._finish()

    def _line(self, head: str, step: int, tokens: int, loss: float | None) -> str:
        line = f"{head}dlperf step rank={self.rank} step={step}"
        line += f" time={time.perf_counter() - self._began:.6f}"
        line += f" tokens={tokens}" if tokens else ""
        line += "" if loss is None else f" loss={loss:.6g}"
        return f"{line} peak_memory_mb={self._memory_mb():.1f}\n"

    def _print(self, text: Callable[[], str], wait: Callable[[], object] | None = None) -> None:
        """Print behind what was printed before, when ``wait`` returns; the host goes on."""
        if self._prints and wait is None and self._printer is None:
            write(text())
        elif self._prints:
            if self._printer is None:
                target = functools.partial(self._print_in_order, self._lines)
                self._printer = threading.Thread(target=target, daemon=True)
                self._printer.start()
                atexit.register(self._finish)
            self._lines.put((text, wait))

    def _print_in_order(self, lines: queue.SimpleQueue[Any]) -> None:
        try:
            self._choose_device()  # each thread has its own
            for text, wait in iter(lines.get, None):
                if wait is not None:
                    wait()
                write(text())
        except Exception:
            self._prints = False  # and hold no more results of steps
            raise

    def _finish(self) -> None:
        printer, lines, left = self._printer, self._lines, -1
        self._printer, self._lines = None, queue.SimpleQueue()
        lines.put(None)
        while printer is not None and printer.is_alive() and lines.qsize() != left:
            left = lines.qsize()
            printer.join(_LONGEST_STEP_S)

    def _first(self, loss: Any) -> str:
        """Find out what is known by now; give the line that says it."""
        self._work = self._samples or self.batches
        # The first in a process: a script may add what was added from outside, or train once more.
        self._prints = sys.__dict__.setdefault("dlperf_steps", self) is self
        facts = _place()
        facts.update((name, value) for name, value in self.facts.items() if value is not None)
        self.rank = facts.pop("rank", 0)
        precision = str(facts.get("precision", "")).replace("torch.", "")
        if precision:
            words = [word for word, theirs in _PRECISIONS.items() if precision in theirs]
            facts["precision"] = words[0] if words else precision
        self._memory_mb, self._mark, self._choose_device = _device(loss)
        said = "".join(f" {name}={value}" for name, value in facts.items())
        return f"dlperf run rank={self.rank}{said}\n"

    def _other_work(self) -> str:
        """Say the batch of a step that differs from the first one's, as the last of an epoch."""
        work, batch = self._samples or self.batches, self.facts.get("global_batch")
        if batch is None or work == self._work or not self._work:
            return ""
        return f"dlperf run rank={self.rank} global_batch={round(batch * work / self._work)}\n"

    def _pending(self, loss: Any) -> tuple[Callable[[], object] | None, Callable[[], float | None]]:
        """Say what waits for the step that the host has queued, and what gives its loss then."""
        wait = getattr(loss, "block_until_ready", None)  # of JAX
        kind = getattr(getattr(loss, "device", None), "type", None)
        if kind is not None and loss.numel() == 1 and (kind == "cpu" or self._mark is not None):
            # From a device into pinned memory, behind what computes it.
            loss = loss.detach().to("cpu", non_blocking=True) if kind != "cpu" else loss.item()
        elif getattr(loss, "size", 1) != 1 if wait else not isinstance(loss, (int, float)):
            loss = None
        if wait is None and self._mark is not None:
            wait = self._mark()
        return wait, lambda: loss.item() if hasattr(loss, "item") else loss


def write(text: str) -> None:
    """Write whole lines in one piece, so that those of several ranks never run into each other."""
    data = text.encode()
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        pass  # no one reads it; the training goes on


def _is_jax() -> bool:
    return "jax" in sys.modules and "torch" not in sys.modules


def _resident_mb() -> float:
    """Return the largest resident size of this process so far, in megabytes."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size * (1 if sys.platform == "darwin" else 1024) / 1e6  # macOS counts bytes


def _device(loss: Any) -> tuple[Callable[[], float], Any, Callable[[], object]]:
    """Find what tells a process's peak of memory, marks a place on its device, and chooses that."""
    for kind in ("cuda", "xpu", "npu"):
        module: Any = getattr(sys.modules.get("torch"), kind, None)
        if getattr(module, "is_initialized", bool)():
            place = getattr(loss, "device", None)  # a script may have chosen none
            place = place if getattr(place, "type", None) == kind else module.current_device()
            mark = functools.partial(_mark, module, place, kind)
            return _allocated(module, place), mark, functools.partial(module.set_device, place)
    if _is_jax():
        device = sys.modules["jax"].local_devices()[0]
        if "peak_bytes_in_use" in (device.memory_stats() or {}):
            return lambda: device.memory_stats()["peak_bytes_in_use"] / 1e6, None, bool
    return _resident_mb, None, bool


def _mark(module: Any, place: Any, kind: str) -> Any:
    # Who waits for an event of CUDA keeps a processor busy otherwise.
    event = module.Event(**({"blocking": True} if kind == "cuda" else {}))
    event.record(module.current_stream(place))
    return event.synchronize


def _allocated(module: Any, place: Any) -> Callable[[], float]:
    nested = getattr(module, "memory_stats_as_nested_dict", None)
    if nested is None:
        return lambda: module.max_memory_allocated(place) / 1e6
    # The same number; the other function flattens and sorts all statistics for it each time.
    return lambda: nested(place)["allocated_bytes"]["all"]["peak"] / 1e6


def _place() -> dict[str, Any]:
    """Find out which rank this is, of how many, and on how many nodes."""
    if _is_jax():
        # What launchers count are processes, of which each may have several devices.
        jax = sys.modules["jax"]
        return {"rank": jax.process_index(), "world_size": jax.device_count()}
    place = {"rank": 0, "world_size": 1, "nodes": 1, "devices_per_node": 1}
    for names in _LAUNCHERS:
        found = [os.environ.get(name, "") for name in names]
        if found[0].isdigit() and found[1].isdigit() and (found[2] or found[3]).isdigit():
            rank, world = int(found[0]), int(found[1])
            nodes = int(found[3]) if found[3].isdigit() else max(world // int(found[2]), 1)
            place = {"rank": rank, "world_size": world, "nodes": nodes}
            place["devices_per_node"] = world // nodes
            break
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        known = {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
        place = {**place, **known} if known["world_size"] == place["world_size"] else known
    return place


def after(owner: Any, name: str, call: Callable[..., object]) -> None:
    """Have a function called with the result and the arguments of each call of a method."""
    original = getattr(owner, name)
    is_method = getattr(original, "__self__", None) is owner  # as torch's schedulers expect

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = original(*args[is_method:], **kwargs)
        call(result, *args[is_method:], **kwargs)
        return result

    setattr(owner, name, MethodType(wrapped, owner) if is_method else wrapped)


def _huggingface() -> type:
    from transformers import TrainerCallback

    class HuggingFaceSteps(TrainerCallback):
        """Prints the steps of a Trainer, without which only logged losses are known."""

        prints_steps = True

        def __init__(self, trainer: Any = None, **facts: Any) -> None:
            self._trainer = trainer
            self._log = StepLog(**facts)
            self._has_losses, self._begun_at = False, 0
            if trainer is not None:
                after(trainer, "training_step", self._on_batch)

        def _on_batch(self, loss: Any, _model: Any, inputs: Any, *_: Any, **__: Any) -> None:
            self._has_losses = True
            self._log.take(inputs, loss)

        def on_train_begin(self, args: Any, state: Any, *_: Any, **known: Any) -> None:
            """Find out what is known of the run."""
            self._begun_at = state.global_step - self._log.count
            facts = _huggingface_facts(self._trainer, args, known.get("model"))
            self._log.facts = {**facts, **self._log.facts}

        def on_step_end(self, *_: Any, **__: Any) -> None:
            """Print a step."""
            self._log.step()

        def on_log(self, _args: Any, state: Any, *_: Any, logs: Any = None, **__: Any) -> None:
            """Print the loss where nothing else tells it; it is a mean since the last one."""
            loss = (logs or {}).get("loss")
            if not self._has_losses and isinstance(loss, (int, float)):
                self._log.value(state.global_step - self._begun_at, loss)

        def on_train_end(self, *_: Any, **__: Any) -> None:
            """Print the end."""
            self._log.end()

    return HuggingFaceSteps


def _huggingface_facts(trainer: Any, args: Any, model: Any) -> dict[str, Any]:
    facts = {"batch_per_device": args.train_batch_size * args.gradient_accumulation_steps}
    if hasattr(trainer, "get_total_train_batch_size"):
        facts = {"global_batch": trainer.get_total_train_batch_size(args)}
    if hasattr(trainer, "get_tp_size"):
        facts.update(tp=trainer.get_tp_size(), cp=trainer.get_cp_size())
    half = "bf16" if args.bf16 else "fp16" if args.fp16 else None
    facts["precision"] = half or getattr(model, "dtype", None)
    return facts


def _lightning() -> type:
    if "pytorch_lightning" in sys.modules:
        from pytorch_lightning import Callback
    else:
        try:
            from lightning.pytorch import Callback
        except ImportError:
            from pytorch_lightning import Callback

    class LightningSteps(Callback):
        """Prints the steps of a Lightning trainer: ``Trainer(callbacks=[LightningSteps()])``."""

        prints_steps = True

        def __init__(self, **facts: Any) -> None:
            self._log = StepLog(**facts)
            self._last = self._batch = 0

        def on_train_start(self, trainer: Any, *_: Any) -> None:
            """Find out what is known of the run."""
            self._last = trainer.global_step
            facts = {"world_size": trainer.world_size, "nodes": trainer.num_nodes}
            facts.update(devices_per_node=trainer.num_devices, precision=trainer.precision)
            batch = getattr(trainer.train_dataloader, "batch_size", None)
            if isinstance(batch, int):
                sampling = getattr(trainer.strategy, "distributed_sampler_kwargs", None) or {}
                self._batch = batch * sampling.get("num_replicas", 1)
            self._log.facts = {**facts, **self._log.facts}

        def on_train_batch_end(self, trainer: Any, _: Any, outputs: Any, *batch: Any) -> None:
            """Print a step if there was one; the loss is that of its last batch."""
            self._log.take(batch[0])
            if trainer.global_step != self._last:
                self._last = trainer.global_step
                if self._batch:  # how many are accumulated, callbacks may change
                    self._log.facts.setdefault("global_batch", self._batch * self._log.batches)
                loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
                self._log.step(loss)

        def on_train_end(self, *_: Any) -> None:
            """Print the end."""
            self._log.end()

    return LightningSteps


class AccelerateSteps:
    """Prints the steps of the first optimizer that an Accelerator has prepared by now."""

    def __init__(self, accelerator: Any, **facts: Any) -> None:
        state = accelerator.gradient_state
        facts.setdefault("world_size", accelerator.num_processes)
        mixed = accelerator.mixed_precision
        weight = accelerator._optimizers[0].param_groups[0]["params"][0]  # noqa: SLF001 - as below
        facts.setdefault("precision", weight.dtype if mixed == "no" else mixed)
        log = StepLog(**facts)

        def on_step(*_: Any, **__: Any) -> None:
            if state.sync_gradients:
                count, told = log.batches, accelerator.gradient_accumulation_steps
                batch = getattr(state.active_dataloader, "total_batch_size", None)
                if batch and count in (1, told):
                    log.facts.setdefault("global_batch", batch * count)
                log.batches = min(count, told)  # some steps may have more losses than others
                log.step()

        after(accelerator, "backward", log.on_backward)
        after(accelerator._optimizers[0], "step", on_step)  # noqa: SLF001 - no public way to them
        self.end = log.end


class DeepSpeedSteps:
    """Prints the steps of a DeepSpeed engine: ``DeepSpeedSteps(engine)``."""

    def __init__(self, engine: Any, **facts: Any) -> None:
        facts.setdefault("global_batch", engine.train_batch_size())
        half = "bf16" if engine.bfloat16_enabled() else "fp16" if engine.fp16_enabled() else None
        mixes = getattr(engine, "torch_autocast_enabled", bool)()
        facts.setdefault("precision", half or (engine.torch_autocast_dtype() if mixes else "fp32"))
        log = StepLog(**facts)
        self._last = engine.global_steps

        def on_step(loss: Any, *_: Any, **__: Any) -> None:
            # Of a pipeline, train_batch makes the step, and returns the loss.
            if engine.global_steps != self._last:
                self._last = engine.global_steps
                log.batches = 0  # the engine itself holds to its batch
                log.step(loss)

        after(engine, "backward", log.on_backward)
        after(engine, "step", on_step)
        if hasattr(engine, "train_batch"):
            after(engine, "train_batch", on_step)
        self.end = log.end


_MADE = {"HuggingFaceSteps": _huggingface, "LightningSteps": _lightning}


def __getattr__(name: str) -> type:
    if name not in _MADE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = _MADE[name]()
    return made
