"""Units with drawn parameters and shapes: a refusal of one line, or a graph that comes back from a file unchanged."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from netplist_kit import bits, constant, readable_tags, unit, written

import aneforge as af
from aneforge.engine.native import layer_type
from aneforge.errors import AneforgeError
from aneforge.formats.exports import ExportError

COUNT = int(os.environ.get("ANEFORGE_MUTATIONS", "40"))
SHAPES = [(1, 4, 6, 8), (2, 4, 6, 8), (1, 3, 1, 16), (1, 3, 1, 1), (1, 1, 6, 6), (1, 1, 1, 1), (1, 8, 1, 1)]
VALUES = {
    "int": [1, 1, 1, 2, 2, 3, 4, 8, 0, -1],
    "half": [0, 1, bits(1), bits(0.3), bits(-2), 0x7C00, 0xFC00, 0x7E00],
    "float": [0.0, 1.0, 0.75, -1.0, 2, 1e30, float("nan"), float("inf")],
    "bool": [True, False],
}
NOTHING = "the graph has no layers"  # a tile by one, a reshape to the same shape


def value(draw, param):
    if param.kind == "enum":
        return draw.choice(param.values) if param.values and draw.random() < 0.95 else "Depth"
    if param.kind != "array":
        return draw.choice(VALUES[param.kind])
    count = draw.choice([1, 1, 2, 2, 3, 0])
    if param.fields:
        return [{each.key: value(draw, each) for each in param.fields} for _ in range(count)]
    if param.values:
        return [draw.choice(param.values) for _ in range(count)]
    return draw.choice([[1] * count, [2] * count, [0], ["Width"], ["Width", "Height"]])


def drawn(folder, tag, draw):
    """A netplist of one unit."""
    known = layer_type(tag)
    bottoms, shape = draw.randint(known.fewest, known.most or 3), draw.choice(SHAPES)
    inputs = {f"x{number}": shape if draw.random() < 0.7 else draw.choice(SHAPES) for number in range(bottoms)}
    names, constants = list(inputs), {}
    stored = {"Gather": 1, "SDPA": 3}.get(tag, draw.randrange(1, 8))  # which bottom is a constant, if it has so many
    if stored < bottoms:
        kind = "UInt16" if tag == "Gather" else "Float16"
        del inputs[names[stored]]
        names[stored] = "k"
        constants["k"] = constant("k", draw.choice([(1, 1, 1, 1), (1, 4, 1, 1), (1, 1, 3, 1)]), ConstantType=kind)
    params = {key: value(draw, each) for key, each in known.params.items() if each.required or draw.random() < 0.3}
    params |= {"SubtractMax": True} if tag == "SDPA" else {}
    fields = (
        {"OutputChannels": draw.choice([1, 4, 8]), "NumGroups": draw.choice([1, 1, 2, 4])} if tag == "Conv" else {}
    )
    return written(folder, {"u": unit(tag, names, params, **fields)}, inputs, {"y": "u"}, ["w.bin"], constants)


def comes_back(file, seed) -> bool:
    """Whether a file is a graph, which then comes back; every refusal is one line."""
    try:
        graph = af.load(file)
    except AneforgeError as error:
        assert "\n" not in str(error)  # noqa: PT017 - most draws are refused
        return False
    try:
        saved = af.save_netplist(graph, file.with_name("again.plist"), overwrite=True)
    except ExportError as error:
        assert NOTHING in str(error), file.read_text()  # noqa: PT017 - few others are
        return False
    back = af.load(saved.path)
    data = [np.random.default_rng(seed).standard_normal(port.shape) for port in graph.inputs]
    with np.errstate(all="ignore"):
        before, after = af.evaluate(graph, data)[0], af.evaluate(back, data)[0]
    np.testing.assert_array_equal(before.reshape(-1), after.reshape(-1), err_msg=file.read_text())
    return True


@pytest.mark.filterwarnings("ignore")
def test_drawn_units_come_back(tmp_path):
    (tmp_path / "w.bin").write_bytes(np.arange(512, dtype="<u2").tobytes() * 8)
    reached = set()
    for tag in readable_tags():
        for seed in range(COUNT):
            draw = random.Random(seed)  # noqa: S311 - examples, not a secret
            if comes_back(drawn(tmp_path, tag, draw), seed):
                reached.add(tag)
    assert len(reached) > 20
