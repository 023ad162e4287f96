# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
"""Movement, indexing, images, recurrent layers and control flow of MIL: what to build, and what it gives in NumPy."""

from __future__ import annotations

import numpy as np
from coreml_kit import IOS15, IOS16, IOS18, case, mb, numbers, whole
from coreml_references import channels, sampled, sigmoid

X = numbers(1, 4, 6, 8)

# Movement.
case("reshape", lambda x: mb.reshape(x=x, shape=[2, -1, 8]), X)
case("reshape", lambda x: mb.reshape(x=x, shape=[0, 0, -1]), X)
case(
    "reshape_like",
    lambda x, y: mb.reshape_like(x=x, ref_tensors=(y, y), begins=(0, 1), ends=(1, 0), end_masks=(False, True)),
    numbers(3, 8),
    numbers(2, 3, 4),
    expected=lambda x, y: x.reshape(2, 3, 4),
    target=IOS16,
)
case("expand_dims", lambda x: mb.expand_dims(x=x, axes=[0, -1]), numbers(2, 3))
case("squeeze", lambda x: mb.squeeze(x=x, axes=[0, 2]), numbers(1, 3, 1, 4))
case("squeeze", lambda x: mb.squeeze(x=x), numbers(1, 3, 1, 4))
case("flatten2d", lambda x: mb.flatten2d(x=x, axis=2), X)
case("transpose", lambda x: mb.transpose(x=x, perm=[0, 3, -2, 1]), X)
case("concat", lambda x, y: mb.concat(values=(x, y), axis=-1), numbers(2, 3), numbers(2, 4))
case(
    "concat",
    lambda x, y: mb.concat(values=(x, y), axis=1, interleave=True),
    numbers(2, 3, 2),
    numbers(2, 3, 2, seed=9),
    expected=lambda x, y: np.stack([x, y], 2).reshape(2, 6, 2),
)
case("split", lambda x: mb.split(x=x, num_splits=2, axis=1), X)
case("split", lambda x: mb.split(x=x, split_sizes=[1, 5], axis=2), X)
case("stack", lambda x, y: mb.stack(values=(x, y), axis=1), numbers(2, 3), numbers(2, 3, seed=9))
case(
    "stack",
    lambda x: mb.stack(values=(mb.reduce_sum(x=x, keep_dims=False), mb.reduce_max(x=x, keep_dims=False)), axis=0),
    numbers(2, 3),
    expected=lambda x: [np.array([x.sum(), x.max()])],
)
case("pad", lambda x: mb.pad(x=x, pad=[1, 2, 0, 1], mode="constant", constant_val=np.float32(3)), numbers(2, 3, 4))
case("pad", lambda x: mb.pad(x=x, pad=[1, 2, 0, 1], mode="reflect"), numbers(2, 3, 4))
case("pad", lambda x: mb.pad(x=x, pad=[1, 2, 0, 1], mode="replicate"), numbers(2, 3, 4))
case("slice_by_size", lambda x: mb.slice_by_size(x=x, begin=[0, 1, -3, 0], size=[1, 2, 2, -1]), X)
case(
    "slice_by_index",
    lambda x: mb.slice_by_index(
        x=x,
        begin=[0, 1, -4, 7],
        end=[1, 3, -1, 0],
        stride=[1, 1, 2, -2],
        begin_mask=[True, False, False, False],
        end_mask=[True, False, False, True],
    ),
    X,
)
case(
    "slice_by_index",
    lambda x: mb.slice_by_index(x=x, begin=[0, -1, 0, 2], end=[1, 0, 6, 8], squeeze_mask=[False, True, False, False]),
    X,
)
case("slice_by_index", lambda x: mb.slice_by_index(x=x, begin=[1], end=[2], squeeze_mask=[True]), numbers(4))


def updated(x, u, *slices):
    found = x.copy()
    found[slices] = u
    return found


case(
    "slice_update",
    lambda x, y: mb.slice_update(x=x, update=y, begin=[0, 1, 2, 0], end=[1, 3, 5, 8]),
    X,
    numbers(1, 2, 3, 8, seed=5),
    expected=lambda x, u: updated(x, u, 0, slice(1, 3), slice(2, 5)),
    target=IOS18,
)
case(
    "slice_update",
    lambda x, y: mb.slice_update(x=x, update=y, begin=[0, 0], end=[4, 6], stride=[2, 3]),
    numbers(4, 6),
    numbers(2, 2, seed=5),
    expected=lambda x, u: updated(x, u, slice(0, 4, 2), slice(0, 6, 3)),
    target=IOS18,
)
case(
    "slice_update",
    lambda x, y, z: mb.slice_update(x=x, update=y, begin=z, end=mb.add(x=z, y=np.int32([1, 6]))),
    numbers(4, 6),
    numbers(1, 6, seed=5),
    np.int32([2, 0]),
    expected=lambda x, u, z: updated(x, u, slice(2, 3)),
    target=IOS18,
)
case("reverse", lambda x: mb.reverse(x=x, axes=[1, -1]), X)
case("reverse", lambda x: mb.reverse(x=x), numbers(2, 3))
case(
    "reverse_sequence",
    lambda x: mb.reverse_sequence(x=x, lengths=[2, 4], seq_axis=1, batch_axis=0),
    numbers(2, 4, 3),
    expected=lambda x: np.stack([np.concatenate([x[0, :2][::-1], x[0, 2:]]), x[1, ::-1]]),
)
case("tile", lambda x: mb.tile(x=x, reps=[2, 1, 3]), numbers(2, 3, 1))
case("gather", lambda x: mb.gather(x=x, indices=[[0, 2], [1, 1]], axis=1), numbers(2, 3, 4))
case("gather", lambda x: mb.gather(x=x, indices=2, axis=0), numbers(3, 4))
case(
    "gather",
    lambda x: mb.gather(x=x, indices=[[0, 1], [2, 0]], axis=1, batch_dims=1),
    numbers(2, 3, 4),
    expected=lambda x: np.stack([x[0][[0, 1]], x[1][[2, 0]]]),
)
TABLE = numbers(50, 40, seed=6)
case("gather", lambda x: mb.gather(x=TABLE, indices=x, axis=0), whole(2, 5, below=50), expected=lambda x: TABLE[x])
case(
    "gather", lambda x, y: mb.gather(x=x, indices=y, axis=1), numbers(2, 5, 3), whole(4), expected=lambda x, i: x[:, i]
)
case(
    "gather_along_axis",
    lambda x: mb.gather_along_axis(x=x, indices=whole(2, 5, 4, below=3), axis=1),
    numbers(2, 3, 4),
    expected=lambda x: np.take_along_axis(x, whole(2, 5, 4, below=3), 1),
)
case(
    "gather_along_axis",
    lambda x, y: mb.gather_along_axis(x=x, indices=y, axis=1),
    numbers(2, 3, 4),
    whole(2, 5, 4, below=3),
    expected=lambda x, i: np.take_along_axis(x, i, 1),
)
case(
    "gather_nd",
    lambda x: mb.gather_nd(x=x, indices=[[0, 2], [1, 1]]),
    numbers(2, 3, 4),
    expected=lambda x: x[[0, 1], [2, 1]],
)
case(
    "gather_nd",
    lambda x, y: mb.gather_nd(x=x, indices=y, batch_dims=1),
    numbers(2, 3, 4),
    whole(2, 5, 1, below=3),
    expected=lambda x, i: np.take_along_axis(x, i, 1),
)


def scattered(x, places, updates, function):
    found = x.copy()
    for place, update in zip(places, updates, strict=True):
        found[place] = function(found[place], update)
    return found


U24 = numbers(2, 4, seed=11)
for mode, function in {
    "update": lambda a, b: b,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}.items():
    case(
        "scatter",
        lambda x, y, mode=mode: mb.scatter(data=x, indices=[2, 0], updates=y, axis=0, mode=mode),
        numbers(3, 4),
        U24,
        expected=lambda x, u, f=function: scattered(x, [2, 0], u, f),
    )
case(
    "scatter",
    lambda x, y: mb.scatter(data=x, indices=[1, 0], updates=y, axis=1, mode="update"),
    numbers(4, 3),
    numbers(4, 2, seed=3),
    expected=lambda x, u: np.concatenate([u[:, ::-1], x[:, 2:]], 1),
)
case(
    "scatter",
    lambda x, y, z: mb.scatter(data=x, indices=z, updates=y, axis=0, mode="add"),
    numbers(3, 4),
    U24,
    np.int32([1, 1]),
    expected=lambda x, u, z: scattered(x, z, u, np.add),
)
case(
    "scatter_along_axis",
    lambda x, y: mb.scatter_along_axis(data=x, indices=[[0, 1, 1], [1, 0, 0]], updates=y, axis=0, mode="add"),
    numbers(3, 3),
    numbers(2, 3, seed=3),
    expected=lambda x, u: scattered(x, [(0, 0), (1, 1), (1, 2), (1, 0), (0, 1), (0, 2)], u.reshape(-1), np.add),
)
case(
    "scatter_nd",
    lambda x, y: mb.scatter_nd(data=x, indices=[[1, 0], [0, 2]], updates=y, mode="update"),
    numbers(2, 3, 4),
    U24,
    expected=lambda x, u: scattered(x, [(1, 0), (0, 2)], u, lambda a, b: b),
)
case(
    "depth_to_space",
    lambda x: mb.depth_to_space(x=x, block_size=2),
    numbers(1, 8, 2, 3),
    expected=lambda x: x.reshape(1, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6),
)
case(
    "space_to_depth",
    lambda x: mb.space_to_depth(x=x, block_size=2),
    numbers(1, 2, 4, 6),
    expected=lambda x: x.reshape(1, 2, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 3),
)
case(
    "pixel_shuffle",
    lambda x: mb.pixel_shuffle(x=x, upscale_factor=2),
    numbers(1, 8, 2, 3),
    expected=lambda x: x.reshape(1, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 4, 6),
)
case(
    "pixel_unshuffle",
    lambda x: mb.pixel_unshuffle(x=x, downscale_factor=np.uint32(2)),
    numbers(1, 2, 4, 6),
    expected=lambda x: x.reshape(1, 2, 2, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 8, 2, 3),
    target=IOS16,
)


def to_batch(x, b, pads):
    x = np.pad(x, ((0, 0), (0, 0), *pads))
    n, c, h, w = x.shape
    return x.reshape(n, c, h // b, b, w // b, b).transpose(3, 5, 0, 1, 2, 4).reshape(n * b * b, c, h // b, w // b)


case(
    "space_to_batch",
    lambda x: mb.space_to_batch(x=x, block_shape=[2, 2], paddings=[[1, 1], [0, 2]]),
    numbers(1, 2, 4, 6),
    expected=lambda x: to_batch(x, 2, ((1, 1), (0, 2))),
)
case(
    "batch_to_space",
    lambda x: mb.batch_to_space(x=x, block_shape=[2, 2], crops=[[0, 0], [1, 0]]),
    numbers(4, 2, 3, 3),
    expected=lambda x: x.reshape(2, 2, 1, 2, 3, 3).transpose(2, 3, 4, 0, 5, 1).reshape(1, 2, 6, 6)[..., 1:],
)
case(
    "fill_like",
    lambda x: mb.add(x=x, y=mb.fill_like(ref_tensor=x, value=np.float32(2))),
    X,
    expected=lambda x: x + 2,
    target=IOS16,
)
case("fill", lambda x: mb.add(x=x, y=mb.fill(shape=mb.shape(x=x), value=np.float32(2))), X, expected=lambda x: x + 2)
case(
    "shape",
    lambda x: mb.reshape(
        x=x, shape=mb.concat(values=(mb.slice_by_index(x=mb.shape(x=x), begin=[0], end=[2]), np.int32([-1])), axis=0)
    ),
    X,
    expected=lambda x: x.reshape(1, 4, 48),
)
case(
    "range_1d",
    lambda x: mb.add(x=x, y=mb.cast(x=mb.range_1d(start=0, end=8, step=1), dtype="fp32")),
    X,
    expected=lambda x: x + np.arange(8),
)
case("crop", lambda x: mb.crop(x=x, crop_height=[1, 2], crop_width=[0, 3]), X, expected=lambda x: x[:, :, 1:4, :5])
case("band_part", lambda x: mb.band_part(x=x, lower=1, upper=0), numbers(2, 4, 4))
case(
    "one_hot",
    lambda x: mb.one_hot(indices=x, one_hot_vector_size=5, on_value=np.float32(2), off_value=np.float32(-1)),
    whole(3, 2),
    expected=lambda x: np.where(x[..., None] == np.arange(5), 2.0, -1.0),
)
case(
    "one_hot",
    lambda x: mb.one_hot(indices=mb.reduce_argmax(x=x, axis=1, keep_dims=False), one_hot_vector_size=4, axis=0),
    numbers(3, 4),
    expected=lambda x: np.arange(4)[:, None] == x.argmax(1),
)
case(
    "non_zero",
    lambda x: mb.gather(x=x, indices=mb.squeeze(x=mb.non_zero(x=np.float32([0, 3, 0, 5])), axes=[1]), axis=0),
    numbers(4, 2),
    expected=lambda x: x[[1, 3]],
)
case(
    "sliding_windows",
    lambda x: mb.sliding_windows(x=x, axis=1, size=3, stride=2),
    numbers(2, 7, 3),
    expected=lambda x: np.stack([x[:, i : i + 3] for i in (0, 2, 4)], 1),
)

# Images.
case(
    "upsample_nearest_neighbor",
    lambda x: mb.upsample_nearest_neighbor(x=x, scale_factor_height=2, scale_factor_width=3),
    X,
    expected=lambda x: x.repeat(2, 2).repeat(3, 3),
)
case(
    "resize_nearest_neighbor",
    lambda x: mb.resize_nearest_neighbor(x=x, target_size_height=9, target_size_width=4),
    X,
    expected=lambda x: x[:, :, np.arange(9) * 6 // 9][..., np.arange(4) * 2],
)
case(
    "upsample_bilinear",
    lambda x: mb.upsample_bilinear(x=x, scale_factor_height=2, scale_factor_width=2, align_corners=True),
    X,
    expected=lambda x: sampled(x, [np.linspace(0, 5, 12), np.linspace(0, 7, 16)]),
)
case(
    "upsample_bilinear",
    lambda x: mb.upsample_bilinear(x=x, scale_factor_height=1.5, scale_factor_width=2.0, align_corners=False),
    X,
    expected=lambda x: sampled(x, [(np.arange(9) + 0.5) * 6 / 9 - 0.5, (np.arange(16) + 0.5) / 2 - 0.5]),
)
GRIDS = {
    "STRICT_ALIGN_CORNERS": lambda n, m: np.arange(m) * (n - 1) / (m - 1),
    "ALIGN_CORNERS": lambda n, m: np.arange(m) * (n - 1) / (m - 1),
    "DEFAULT": lambda n, m: np.arange(m) * n / m,
    "OFFSET_CORNERS": lambda n, m: (np.arange(m) + 0.5) * max(1, n - 1) / m,
    "UNALIGN_CORNERS": lambda n, m: (np.arange(m) + 0.5) * n / m - 0.5,
}
for mode, points in GRIDS.items():
    case(
        "resize_bilinear",
        lambda x, mode=mode: mb.resize_bilinear(x=x, target_size_height=9, target_size_width=5, sampling_mode=mode),
        X,
        expected=lambda x, p=points: sampled(x, [p(6, 9), p(8, 5)]),
        target=IOS16,
    )
case(
    "resize",
    lambda x: mb.resize(x=x, shape=[9, 0], resized_dims=np.uint32(2), sampling_mode="UNALIGN_CORNERS"),
    X,
    expected=lambda x: sampled(x, [GRIDS["UNALIGN_CORNERS"](6, 9), np.arange(8)]),
)
case(
    "crop_resize",
    lambda x: mb.crop_resize(
        x=x,
        boxes=np.float32([[0, 1, 4, 5]]),
        box_indices=np.int32([0]),
        target_height=3,
        target_width=3,
        sampling_mode="ALIGN_CORNERS",
    ),
    X,
    expected=lambda x: x[:, :, [0, 2, 4]][..., [1, 3, 5]],
)
case(
    "crop_resize",
    lambda x: mb.crop_resize(
        x=x,
        roi=np.float32([0, 0, 1, 1]).reshape(1, 1, 4, 1, 1),
        target_height=6,
        target_width=8,
        normalized_coordinates=True,
        sampling_mode="STRICT_ALIGN_CORNERS",
    ),
    X,
    expected=lambda x: x[None],
    target=IOS15,
)
case(
    "affine",
    lambda x: mb.affine(
        x=x,
        transform_matrix=np.float32([[-1, 0, 0, 0, 1, 0]]),
        output_height=6,
        output_width=8,
        sampling_mode="bilinear",
        padding_mode="constant",
        padding_value=np.float32(0),
        coordinates_mode="normalized_minus_one_to_one",
        align_corners=True,
    ),
    X,
    expected=lambda x: x[..., ::-1],
)
POINTS = np.stack(np.meshgrid([0, 2.5, 7, 9], [-1, 0.5, 5]), -1)[None].astype(np.float32)


def resampled(x, points):
    wide = np.pad(x, ((0, 0), (0, 0), (2, 3), (2, 3)))
    return np.stack([sampled(wide, [points[0, i, :1, 1] + 2, points[0, i, :, 0] + 2])[:, :, 0] for i in range(3)], 2)


case(
    "resample",
    lambda x, y: mb.resample(
        x=x,
        coordinates=y,
        sampling_mode="bilinear",
        padding_mode="constant",
        padding_value=np.float32(0),
        coordinates_mode="unnormalized",
        align_corners=True,
    ),
    X,
    POINTS,
    expected=resampled,
)


# Recurrent ops.
SEQ, H0, C0 = numbers(4, 2, 3), numbers(2, 5, seed=1), numbers(2, 5, seed=2)
WI, WH, WB = numbers(20, 3, seed=3) / 2, numbers(20, 5, seed=4) / 2, numbers(20, seed=5) / 2
ACTS = {"sigmoid": sigmoid, "tanh": np.tanh, "relu": lambda v: np.maximum(v, 0)}


def lstm(x, h, c, acts=("sigmoid", "tanh", "tanh"), peep=None, clip=None, backwards=False):
    inner, cell, outer = (ACTS[each] for each in acts)
    out = []
    for step in x[::-1] if backwards else x:
        i, f, o, z = np.split(step @ WI.T + h @ WH.T + WB, 4, axis=1)
        if peep is not None:
            i, f = i + peep[:5] * c, f + peep[5:10] * c
        c = inner(f) * c + inner(i) * cell(z)
        c = c if clip is None else np.clip(c, -clip, clip)
        o = o if peep is None else o + peep[10:] * c
        h = inner(o) * outer(c)
        out.append(h)
    return np.stack(out[::-1] if backwards else out), h, c


def mil_lstm(x, y, z, **settings):
    told = {"weight_ih": WI, "weight_hh": WH, "bias": WB, "output_sequence": True} | settings
    return mb.lstm(x=x, initial_h=y, initial_c=z, **told)


PEEP = numbers(15, seed=6)
case("lstm", mil_lstm, SEQ, H0, C0, expected=lstm)
case("lstm", lambda x, y, z: mil_lstm(x, y, z)[0], SEQ, H0, C0, expected=lambda *a: lstm(*a)[0])
case(
    "lstm",
    lambda x, y, z: mil_lstm(x, y, z, output_sequence=False)[:2],
    SEQ,
    H0,
    C0,
    expected=lambda *a: [lstm(*a)[1][None], lstm(*a)[1]],
)
case(
    "lstm",
    lambda x, y, z: mil_lstm(x, y, z, direction="reverse"),
    SEQ,
    H0,
    C0,
    expected=lambda *a: lstm(*a, backwards=True),
)
case(
    "lstm",
    lambda x, y, z: mil_lstm(
        x, y, z, recurrent_activation="tanh", cell_activation="relu", peephole=PEEP, clip=np.float32(0.5)
    ),
    SEQ,
    H0,
    C0,
    expected=lambda *a: lstm(*a, acts=("tanh", "relu", "tanh"), peep=PEEP, clip=0.5),
)


def both_ways(x, h, c):
    runs = [lstm(x, h[:, :5], c[:, :5]), lstm(x, h[:, 5:], c[:, 5:], backwards=True)]
    return [np.concatenate([a, b], -1) for a, b in zip(*runs, strict=True)]


case(
    "lstm",
    lambda x, y, z: mil_lstm(x, y, z, direction="bidirectional", weight_ih_back=WI, weight_hh_back=WH, bias_back=WB),
    SEQ,
    numbers(2, 10, seed=1),
    numbers(2, 10, seed=2),
    expected=both_ways,
)


def gru(x, h):
    out = []
    for step in x:
        (rx, ox, zx), (rh, _, zh) = np.split(step @ WI[:15].T + WB[:15], 3, 1), np.split(h @ WH[:15].T, 3, 1)
        z = sigmoid(zx + zh)
        o = np.tanh(ox + (sigmoid(rx + rh) * h) @ WH[5:10].T)
        h = (1 - z) * o + z * h
        out.append(h)
    return np.stack(out), h


case(
    "gru",
    lambda x, y: mb.gru(x=x, initial_h=y, weight_ih=WI[:15], weight_hh=WH[:15], bias=WB[:15], output_sequence=True),
    SEQ,
    H0,
    expected=gru,
)


def rnn(x, h, function=np.tanh):
    out = []
    for step in x:
        h = function(step @ WI[:5].T + h @ WH[:5].T + WB[:5])
        out.append(h)
    return np.stack(out), h


for name in ("tanh", "relu"):
    case(
        "rnn",
        lambda x, y, name=name: mb.rnn(
            x=x, initial_h=y, weight_ih=WI[:5], weight_hh=WH[:5], bias=WB[:5], output_sequence=True, activation=name
        ),
        SEQ,
        H0,
        expected=lambda x, h, name=name: rnn(x, h, ACTS[name]),
    )

# Control flow, lists, and whole numbers.
case(
    "cond",
    lambda x: mb.cond(pred=np.bool_(True), _true_fn=lambda: mb.relu(x=x), _false_fn=lambda: mb.exp(x=x)),
    X,
    expected=lambda x: np.maximum(x, 0),
)


def branches(x):
    positive_sum = mb.greater(x=mb.reduce_sum(x=x, keep_dims=False), y=np.float32(0))
    return mb.cond(pred=positive_sum, _true_fn=lambda: mb.relu(x=x), _false_fn=lambda: mb.exp(x=x))


case("cond", branches, numbers(3, 4), expected=lambda x: np.maximum(x, 0) if x.sum() > 0 else np.exp(x))
case("cond", branches, -np.abs(numbers(3, 4)), expected=np.exp)


def counted(x):
    start = mb.const(val=np.int32(0))
    return mb.while_loop(
        _cond=lambda i, v: mb.less(x=i, y=np.int32(3)),
        _body=lambda i, v: (mb.add(x=i, y=np.int32(1)), mb.mul(x=v, y=np.float32(2))),
        loop_vars=(start, x),
    )[1]


case("while_loop", counted, X, expected=lambda x: x * 8)


def listed(x):
    items = mb.make_list(init_length=2, dynamic_length=False, elem_shape=(4,))
    items = mb.list_write(ls=items, index=np.int32(0), value=mb.gather(x=x, indices=np.int32(1), axis=0))
    items = mb.list_write(ls=items, index=np.int32(1), value=mb.gather(x=x, indices=np.int32(0), axis=0))
    return mb.list_gather(ls=items, indices=np.int32([0, 1])), mb.list_read(ls=items, index=np.int32(1))


case("list_gather", listed, numbers(2, 4), expected=lambda x: [x[[1, 0]], x[0]])
case(
    "add", lambda x: mb.add(x=mb.mul(x=x, y=np.int32(3000)), y=np.int32(1)), whole(3), expected=lambda x: x * 3000 + 1
)
case(
    "floor_div",
    lambda x: mb.cast(x=mb.floor_div(x=x, y=np.int32(2)), dtype="fp32"),
    whole(5, below=9),
    expected=lambda x: x // 2,
)
case(
    "quantize",
    lambda x: mb.dequantize(
        input=mb.quantize(input=x, scale=np.float32(0.125), zero_point=np.int8(3), output_dtype="int8"),
        scale=np.float32(0.125),
        zero_point=np.int8(3),
    ),
    X * 20,
    expected=lambda x: (np.clip(np.round(x / 0.125) + 3, -128, 127) - 3) * 0.125,
)
case(
    "quantize",
    lambda x: mb.quantize(input=x, scale=np.float32([0.5, 1, 2, 4]), axis=1, output_dtype="uint8"),
    X,
    expected=lambda x: np.clip(np.round(x / channels(np.array([0.5, 1, 2, 4]))), 0, 255),
)
BOXES = np.float32([[[1, 1, 2, 2], [1.2, 1, 2, 2], [5, 5, 2, 2], [9, 9, 1, 1]]])
SCORES = np.float32([[[0.5], [0.75], [0.25], [0.125]]])
case(
    "non_maximum_suppression",
    lambda x, y: mb.non_maximum_suppression(
        boxes=x, scores=y, iou_threshold=np.float32(0.5), score_threshold=np.float32(0.2), max_boxes=3
    ),
    BOXES,
    SCORES,
    expected=lambda b, s: [
        np.stack([b[0, 1], b[0, 2], 0 * b[0, 0]])[None],
        np.float32([[[0.75], [0.25], [0]]]),
        np.array([[1, 2, -1]]),
        np.array([2]),
    ],
    target=IOS15,
)
LONG = np.random.default_rng(0).permutation(5000).reshape(1, 5000).astype(np.float32)
case("reduce_argmax", lambda x: mb.reduce_argmax(x=x, axis=1, keep_dims=True), LONG)
case("topk", lambda x: mb.topk(x=x, k=3, axis=1), LONG)


def chosen(x, y):
    over = mb.greater(x=x, y=np.float32(0))
    return mb.select(cond=mb.greater(x=x, y=y), a=over, b=mb.logical_not(x=over))


case(
    "select",
    chosen,
    numbers(3, 4),
    numbers(3, 4, seed=5),
    expected=lambda x, y: np.where(x > y, x > 0, ~(x > 0)),
)
case("select", lambda x: mb.select(cond=np.array([True, False, True]), a=x, b=np.float32(-1)), numbers(4, 3))
