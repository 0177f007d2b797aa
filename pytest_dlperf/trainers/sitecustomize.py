"""Has a trainer print its steps, without a change of any script.

Python imports a module of this name at each start. This one is written into a folder of the node
that a run is on, beside ``steps.py``, which is called ``dlperf_steps.py`` there; the folder stands
in front of ``PYTHONPATH``, and ``DLPERF_STEPS`` names the trainer. Once a program imports that
trainer, its class gets the callback. All other programs go on as without it: the ``sitecustomize``
that would have been found is run as well. It runs on Python 3.7 and later.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # to import typing takes longer than all that is done here
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

TRAINER = "DLPERF_STEPS"


def _huggingface(module: Any, steps: Any) -> None:
    def on_made(_result: object, trainer: Any, *_: Any, **__: Any) -> None:
        if not _has_steps(trainer.callback_handler.callbacks):
            trainer.add_callback(steps.HuggingFaceSteps(trainer))

    steps.after(module.Trainer, "__init__", on_made)


def _lightning(module: Any, steps: Any) -> None:
    def on_made(_result: object, trainer: Any, *_: Any, **__: Any) -> None:
        if not _has_steps(trainer.callbacks):
            trainer.callbacks.append(steps.LightningSteps())

    steps.after(module.Trainer, "__init__", on_made)


def _accelerate(module: Any, steps: Any) -> None:
    seen: list[object] = []

    def on_prepared(_result: object, accelerator: Any, *_: Any, **__: Any) -> None:
        if not seen and accelerator._optimizers:  # noqa: SLF001 - there is no public way to them
            seen.append(steps.AccelerateSteps(accelerator))

    steps.after(module.Accelerator, "prepare", on_prepared)


def _deepspeed(module: Any, steps: Any) -> None:
    def on_made(_result: object, engine: Any, *_: Any, **__: Any) -> None:
        steps.DeepSpeedSteps(engine)

    steps.after(module.DeepSpeedEngine, "__init__", on_made)


def _has_steps(callbacks: Any) -> bool:
    """Say whether the script has added its own."""
    return any(getattr(callback, "prints_steps", False) for callback in callbacks)


_TRAINERS = {
    "huggingface": (_huggingface, ("transformers.trainer",)),
    "lightning": (
        _lightning,
        ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"),
    ),
    "accelerate": (_accelerate, ("accelerate.accelerator",)),
    "deepspeed": (_deepspeed, ("deepspeed.runtime.engine",)),
}
"""What is done to which modules once they are imported, by the name of the trainer."""


class _Finder:
    """Finds a trainer's module as it would be found without it, and adds the steps to it."""

    adds_steps = True

    def __init__(self, trainer: str) -> None:
        self._trainer = trainer
        self._add, self._names = _TRAINERS[trainer]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find a module; none but the trainer's."""
        if name not in self._names:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None and spec.loader is not None:
                _steps().after(spec.loader, "exec_module", self._on_loaded)
                return spec
        return None

    def _on_loaded(self, _result: object, module: ModuleType) -> None:
        try:
            self._add(module, _steps())
        except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
            _steps().write(f"dlperf steps of {self._trainer} cannot be printed: {error!r}\n")
        else:
            _steps().write(f"dlperf steps of {self._trainer}: found {module.__name__}\n")


def _steps() -> Any:
    """Import what prints steps, from the folder of this file."""
    if "dlperf_steps" not in sys.modules:
        sys.path.insert(0, _FOLDER)
        try:
            import dlperf_steps  # type: ignore[import-not-found] # noqa: F401
        finally:
            sys.path.remove(_FOLDER)
    return sys.modules["dlperf_steps"]


def _hook(trainer: str) -> None:
    # Where nodes are one machine, PYTHONPATH may name the folders of several.
    is_there = any(getattr(finder, "adds_steps", False) for finder in sys.meta_path)
    if trainer in _TRAINERS and not is_there:
        sys.meta_path.insert(0, _Finder(trainer))


def _run_next() -> None:
    """Run the ``sitecustomize`` that would have been found without this one."""
    sys.path[:] = [folder for folder in sys.path if folder != _FOLDER]
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find and find("sitecustomize", None)
        if spec is not None and spec.loader is not None:
            module = sys.modules["sitecustomize"] = type(sys)("sitecustomize")
            module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
            spec.loader.exec_module(module)
            return


_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes long

if __name__ == "sitecustomize":
    _hook(os.environ.get(TRAINER, ""))
    _run_next()
