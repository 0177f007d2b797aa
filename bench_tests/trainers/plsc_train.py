"""Trains ArcFace with PaddlePaddle's PLSC 1.x on made-up faces, as paddle-arcface_r50 starts it.

It takes ``--loss_type``: ``arcface`` on one device, ``dist_arcface`` on several, where the classes
are spread over the devices. Backbone (ResNet-50), batch (128 for each device), classes (85742) and
learning rate are PLSC's own. It needs no data, writes no file, and goes on until it is ended.

It is for the Pythons that PaddlePaddle 1.8 has wheels for, up to 3.7.
"""

import argparse
import itertools
from typing import Iterator, Tuple  # noqa: UP035 - as said

from plsc import Entry

IMAGES = 256
"""So many faces are made up, and shown again and again."""
CLASSES = 85742
"""PLSC's own number of people; a face's owner is one of them."""


def faces() -> "Iterator[Tuple[object, int]]":  # noqa: UP006 - as said
    """Yield faces without end: three colours of 112 x 112 points, and whose face it is."""
    import numpy as np

    random = np.random.RandomState(0)
    images = random.uniform(-1, 1, (IMAGES, 3, 112, 112)).astype("float32")
    owners = random.randint(CLASSES, size=IMAGES)
    for number in itertools.cycle(range(IMAGES)):
        yield images[number], int(owners[number])


def main() -> None:
    """Train until somebody ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--loss_type", required=True, help="arcface on one device, dist_arcface on several"
    )
    given = parser.parse_args()
    entry = Entry()
    entry.set_class_num(CLASSES)
    entry.set_loss_type(given.loss_type)
    # The estimators go by a line for every tenth batch.
    entry.set_log_period(10)
    # An epoch ends with a test and a saved model, which need data and room.
    entry.set_with_test(False)
    entry.set_model_save_dir("")
    entry.train_reader = faces
    entry.train()


if __name__ == "__main__":
    main()
