"""Trains by run_pretraining.py of tensorflow/models r2.3.0 on several nodes, and with XLA.

The script takes --worker_hosts, --task_index, --all_reduce_alg and --enable_xla, but makes no use
of them; here its strategy does. The checkout has to be in PYTHONPATH and stays as it is, and so do
the script's arguments.
"""

from typing import Any

from absl import app, flags
from official.nlp.bert import run_pretraining
from official.utils.misc import distribution_utils, keras_utils

_get_strategy = distribution_utils.get_distribution_strategy


def get_strategy(**settings: Any) -> Any:
    """Return the script's strategy for all workers, after XLA is on where it is wanted."""
    given = flags.FLAGS
    keras_utils.set_session_config(enable_xla=given.enable_xla)
    # The strategy finds the workers in TF_CONFIG, so that has to be there first.
    distribution_utils.configure_cluster(given.worker_hosts, given.task_index)
    settings.setdefault("all_reduce_alg", given.all_reduce_alg)
    return _get_strategy(**settings)


if __name__ == "__main__":
    distribution_utils.get_distribution_strategy = get_strategy
    app.run(run_pretraining.main)
