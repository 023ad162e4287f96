"""The seeded small network of the parity experiment, and pictures of digits to train it on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aneforge.errors import AneforgeError, install_hint
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.ops.leaf import parameter
from aneforge.graph.ops.trainable import conv_block, conv_param
from aneforge.graph.tensor import Tensor
from aneforge.sim.inputs import read_arrays
from aneforge.train.losses import CEHandle, softmax_cross_entropy

CLASSES = 10
_NAMES = (("xtr", "x_train"), ("ytr", "y_train"), ("xte", "x_test"), ("yte", "y_test"))
"""What files of digits call their four arrays, in small letters."""
_TEST = 500  # samples of scikit-learn's digits that are kept for the test


@dataclass(frozen=True)
class Digits:
    """Pictures [N, 1, side, side] from 0 to 1, and their class numbers."""

    name: str
    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    @property
    def side(self) -> int:
        return self.images.shape[-1]

    @property
    def targets(self) -> np.ndarray:
        """The labels as rows of zeros with a one."""
        return np.eye(CLASSES, dtype=np.float32)[self.labels]


def read_digits(path: str | Path | None = None) -> Digits:
    """An ``.npz`` of MNIST (``x_train y_train x_test y_test``, or ``Xtr ytr Xte yte``); without a path the 1797 small
    digits that scikit-learn brings along."""
    return _from_sklearn() if path is None else _from_file(str(path))


def _from_sklearn() -> Digits:
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError:
        raise AneforgeError(
            f"digits: scikit-learn is not installed, and it brings the pictures. Install it with "
            f"{install_hint('examples')}, or pass --data mnist.npz."
        ) from None
    pictures, labels = (np.asarray(array) for array in load_digits(return_X_y=True))
    images = (pictures.astype(np.float32) / 16).reshape(-1, 1, 8, 8)
    labels = labels.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[_TEST:], order[:_TEST]
    return Digits("scikit-learn's digits", images[train], labels[train], images[test], labels[test])


def _from_file(path: str) -> Digits:
    arrays = {name.casefold(): array for name, array in read_arrays(path).items()}
    found = [next((arrays[name] for name in names if name in arrays), None) for names in _NAMES]
    for names, array in zip(_NAMES, found, strict=True):
        if array is None:
            raise AneforgeError(f"{path}: has no array {' or '.join(names)}; it has {', '.join(arrays) or 'none'}.")
    images, labels, test_images, test_labels = (np.asarray(array) for array in found)
    for pictures, numbers in ((images, labels), (test_images, test_labels)):
        whole = numbers.ndim == 1 and numbers.dtype.kind in "iu" and len(numbers) == len(pictures) > 0
        if not whole or numbers.min() < 0 or numbers.max() >= CLASSES:
            raise AneforgeError(f"{path}: labels must be whole numbers from 0 to 9, one for each picture.")
    return Digits(Path(path).name, _square(images, path), labels, _square(test_images, path), test_labels)


def _square(images: np.ndarray, path: str) -> np.ndarray:
    pixels = int(np.prod(images.shape[1:]))
    side = int(np.sqrt(pixels))
    if side * side != pixels or side < 4 or side % 4:
        raise AneforgeError(
            f"{path}: pictures of shape {list(images.shape[1:])}; they must be square, 4 times a number."
        )
    scale = 255.0 if images.dtype == np.uint8 else 1.0
    return (images.reshape(-1, 1, side, side) / scale).astype(np.float32)


@dataclass(frozen=True)
class DigitNet:
    """The graph, and what a trainer needs of it."""

    x: Tensor
    logits: Tensor
    objective: CEHandle
    params: tuple[Tensor, ...]


def digit_net(batch: int, side: int, seed: int = 0, windows: str = "slices") -> DigitNet:
    """Two blocks of a trained 3 x 3 convolution, group norm, relu and pooling (8 and 16 channels), and a linear layer;
    weights are drawn from ``seed`` by He's rule."""
    draw = np.random.default_rng(seed)

    def weights(*shape: int, fan_in: int, gain: float) -> np.ndarray:
        return draw.standard_normal(shape) * np.sqrt(gain / fan_in)

    x = graph_input((batch, 1, side, side), name="images")
    target = graph_input((batch, CLASSES), name="targets")
    params: list[Tensor] = []
    hidden, channels = x, 1
    for number, (width, groups) in enumerate(((8, 2), (16, 4)), 1):
        kernel = conv_param(weights(width, channels, 3, 3, fan_in=9 * channels, gain=2.0), name=f"conv{number}")
        gamma = parameter(np.ones((1, width, 1, 1)), name=f"gamma{number}")
        beta = parameter(np.zeros((1, width, 1, 1)), name=f"beta{number}")
        hidden, channels = conv_block(hidden, kernel, gamma, beta, groups, pool=2, windows=windows), width
        params += [kernel, gamma, beta]
    features = channels * (side // 4) ** 2
    matrix = parameter(weights(features, CLASSES, fan_in=features, gain=1.0), name="linear")
    bias = parameter(np.zeros((1, CLASSES)), name="bias")
    logits = (hidden.reshape(batch, features) @ matrix + bias).named("logits")
    return DigitNet(x, logits, softmax_cross_entropy(logits, target), (*params, matrix, bias))
