"""Random graphs in the user's language, for properties that must hold for every program."""

from __future__ import annotations

import numpy as np

import aneforge as af


def random_graph(seed: int, steps: int = 14):
    """A graph of maps and rows with splits, merges, concats, norms, products, resizes and slices; and its input."""
    rng = np.random.default_rng(seed)
    channels, size = int(rng.choice([4, 6, 8])), int(rng.choice([8, 12, 16]))
    x = af.input((1, channels, size, size), name="x")
    values = [x]
    for _ in range(steps):
        value = values[int(rng.integers(max(0, len(values) - 3), len(values)))]
        values.append(_step(rng, value, values))
    tips = [value for value in values[-3:] if value is not x] or [values[-1]]
    return tips[-1] if rng.random() < 0.6 else tips, x


def _small(rng, *shape):
    return rng.normal(0, 0.4 / max(1, shape[-1]) ** 0.5, shape)


def _step(rng, y, values):
    n, c, h, w = y.shape
    kind = int(rng.integers(0, 16))
    if kind <= 3:
        out, kernel = int(rng.choice([4, 8, 12])), int(rng.choice([1, 3, 5]))
        stride = int(rng.choice([1, 1, 2, 4])) if h >= 8 else 1
        groups = 2 if c % 2 == 0 and out % 2 == 0 and rng.random() < 0.3 else 1
        bias = _small(rng, out) if rng.random() < 0.5 else None
        y = af.conv(y, _small(rng, out, c // groups, kernel, kernel), stride=stride, pad=kernel // 2, groups=groups,
                    bias=bias)  # fmt: skip
        return y.relu() if rng.random() < 0.5 else y
    if kind == 4:
        stats = 1 + 0.3 * rng.random((4, c))
        return af.batch_norm(y, *stats)
    if kind == 5:
        return (y * float(rng.normal()) + _small(rng, 1, c, 1, 1)).tanh()
    if kind == 6:
        mates = [v for v in values if v.shape == y.shape]
        return y + mates[int(rng.integers(len(mates)))]
    if kind == 7:
        mates = [v for v in values if v.shape[2:] == y.shape[2:]][-3:]
        joined = af.concat([y, mates[0]], axis=1)
        return joined.relu() if rng.random() < 0.5 else joined
    if kind == 8:
        return y.softmax(int(rng.choice([1, 3])))
    if kind == 9 and h >= 4:
        return y.max_pool(2, 2)
    if kind == 10 and h <= 8:
        return af.upsample_bilinear(y, 2) if rng.random() < 0.5 else y.upsample(2)
    if kind == 11:
        rows = y.reshape(c, h * w).linear(_small(rng, 10, h * w), _small(rng, 10)).gelu()
        return rows.linear(_small(rng, h * w, 10)).reshape(1, c, h, w)
    if kind == 12:
        return y.transpose([0, 1, 3, 2])
    if kind == 13 and w > 2:
        return y.slice_by_size([0, 0, 0, 1], [n, c, h, w - 1]).tanh()
    if kind == 14:
        return af.pad(y, ((0, 0), (0, 0), (1, 1), (1, 1))).avg_pool(3, 1)
    return y.sigmoid() * y


def rewritten_graph(seed: int, steps: int = 6):
    """A graph in which most nodes are rewritten or refused on some chip; and its input."""
    rng = np.random.default_rng(seed)
    x = af.input((1, 6, 8, 8), name="x")
    y = x
    for _ in range(steps):
        name = str(rng.choice(sorted(_LACKING)))
        y = _LACKING[name](rng, y)
        if y.shape[2] > 24 or y.shape[3] > 24 or y.shape[2] < 3 or y.shape[3] < 3:
            y = af.resize_nearest_neighbor(y, 8, 8)
    return y, x


_LACKING = {
    "sin": lambda rng, y: (y * 3.0).sin(),
    "tan": lambda rng, y: y.clip(-1.2, 1.2).tan(),
    "atan2": lambda rng, y: af.atan2(y, y.abs() + 0.5),
    "cosh": lambda rng, y: y.clip(-2.0, 2.0).cosh(),
    "gather": lambda rng, y: af.gather(y, [int(i) for i in rng.integers(0, y.shape[3], 5)], axis=3),
    "cumsum": lambda rng, y: y.cumsum(3) * 0.25,
    "band": lambda rng, y: af.band_part(y, 1, 2),
    "bilinear": lambda rng, y: af.upsample_bilinear(y, int(rng.choice([2, 3]))),
    "resize": lambda rng, y: af.resize_bilinear(y, int(rng.integers(5, 14)), int(rng.integers(5, 14))),
    "nearest": lambda rng, y: y.upsample(2),
    "mirror": lambda rng, y: af.pad(y, ((0, 0), (0, 0), (1, 2), (2, 1)), mode="reflect"),
    "stride": lambda rng, y: af.conv(
        y, _small(rng, 6, y.shape[1], 3, 3), stride=int(rng.choice([5, 6])), pad=3, bias=_small(rng, 6)
    ).relu(),
    "conv": lambda rng, y: af.conv(y, _small(rng, 6, y.shape[1], 3, 3), pad=1).relu(),
    "wide": lambda rng, y: af.conv(y, _small(rng, 6, y.shape[1], 1, 9), pad=(0, 0, 4, 4)).tanh(),
    "patch": lambda rng, y: af.conv(
        af.resize_nearest_neighbor(y, 32, 32), _small(rng, 6, y.shape[1], 16, 16), stride=4
    ),
    "divide": lambda rng, y: y / 3.0,
    "affine": lambda rng, y: af.affine(y, np.array([[1, 0, 0, 0, 1, 0]], float), 8, 8),
    "softmax": lambda rng, y: y.softmax(3),
    "matmul": lambda rng, y: (y.transpose([0, 1, 3, 2]) @ y).tanh(),
    "slice": lambda rng, y: y[:, :, :, 1:].relu(),
    "dropout": lambda rng, y: af.dropout(y, 0.25, seed=3),
}


def token_graph(seed: int, lead: tuple[int, ...] = (), steps: int = 10):
    """A graph over rows of features, [S, D] or with leading axes: products, norms, softmax, attention and sums."""
    rng = np.random.default_rng(seed)
    length, width = int(rng.choice([5, 16, 33])), int(rng.choice([8, 24, 48]))
    values = [af.input((*lead, length, width), name="x")]
    for _ in range(steps):
        value = values[int(rng.integers(max(0, len(values) - 2), len(values)))]
        values.append(_token_step(rng, value, values, lead))
    return values[-1], values[0]


def _token_step(rng, y, values, lead):
    *_, length, width = y.shape
    kind = int(rng.integers(0, 13))
    if kind <= 2:
        hidden = y.linear(_small(rng, 2 * width, width), _small(rng, 2 * width))
        hidden = (hidden.gelu, hidden.relu, hidden.tanh)[kind]()
        return hidden.linear(_small(rng, width, 2 * width), _small(rng, width) if rng.random() < 0.5 else None)
    if kind <= 4:
        return y.layer_norm(1 + _small(rng, width), _small(rng, width))
    if kind <= 6:
        return y + values[int(rng.integers(len(values)))]
    if kind == 7:
        return y + _small(rng, width)
    if kind == 8:
        return y + _small(rng, *lead, length, width)
    if kind == 9:
        return y.softmax(-1)
    if kind == 10:
        return y.sigmoid() * y
    return y + attention(rng, y, 2, masked=rng.random() < 0.5)


def attention(rng, y, heads, masked=False):
    """Self-attention as exporters write it: heads are split off, turned to the front, and turned back."""
    *lead, length, width = y.shape
    front = list(range(len(lead)))
    at = len(lead)
    turn = [*front, at + 1, at, at + 2]

    def split():
        projected = y.linear(_small(rng, width, width), _small(rng, width))
        return projected.reshape(*lead, length, heads, width // heads).transpose(turn)

    query, key, value = split(), split(), split()
    scores = (query @ key.transpose([*front, at, at + 2, at + 1])) * float((width // heads) ** -0.5)
    if masked:
        scores = scores + _small(rng, *(1,) * (at + 1), length, length)
    mixed = (scores.softmax(-1) @ value).transpose(turn).reshape(*lead, length, width)
    return mixed.linear(_small(rng, width, width), _small(rng, width))
