"""Write ``attention.plist`` and ``convnet.plist``, two netplists, with their weight files beside them.

The first is the fused attention layer of listings 26.1 and 26.3, written as a person would: a property list of
dictionaries. The channels of a port hold the sequence and its height the heads. The second is a graph of Python that
``af.save_netplist`` writes. Its weights are random.

``python examples/write_netplists.py`` needs nothing but aneforge.
"""

from __future__ import annotations

import plistlib
from pathlib import Path

import numpy as np

import aneforge as af

FOLDER = Path(__file__).parent
SEQUENCE, HEADS, FEATURES = 197, 8, 64


def port(name: str) -> dict[str, object]:
    sizes = {"BatchSize": 1, "InputChannels": SEQUENCE, "InputDepth": 1, "InputHeight": HEADS, "InputWidth": FEATURES}
    return {"InputName": name, "InputType": "Float16", "InputInterleave": 1, **sizes}


def attention() -> None:
    unit = {
        "Type": "SDPA",
        "Bottom": ["q", "k", "v", "scale"],
        "Params": {"SubtractMax": True},  # the default is false, which overflows
        "OutputType": "Float16",
    }
    scale = {"ConstantName": "scale", "ConstantType": "Float16", "ConstantIndex": 0, "ConstantByteOffset": 0}
    network = {
        "Units": ["attn"],
        "Constants": ["scale"],
        "Weights": ["attention.weights.bin"],
        "attn": unit,
        "scale": scale,
    }
    procedure = {
        "Name": "main",
        "InputList": [port(name) for name in "qkv"],
        "OperationList": [{"NetworkName": "net", "OperationName": "op"}],
        "OutputList": [{"OutputName": "attn", "OutputType": "Float16"}],
    }
    document = {"Version": "1.0.10", "Networks": ["net"], "ProcedureList": [procedure], "net": network}
    (FOLDER / "attention.plist").write_bytes(plistlib.dumps(document, sort_keys=False))
    (FOLDER / "attention.weights.bin").write_bytes(np.float16(1 / np.sqrt(FEATURES)).tobytes())


def convnet() -> None:
    draw = np.random.default_rng(20)

    def weight(*shape: int) -> np.ndarray:
        return (draw.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float16)

    image = af.input((1, 3, 32, 32), name="image")
    stem = af.conv(image, weight(16, 3, 3, 3), bias=weight(16, 1).reshape(-1), stride=2, pad=1).named("stem")
    act = stem.relu().named("act")
    wide = af.conv(act, weight(16, 16, 3, 3), pad=1).named("wide")
    pooled = act.avg_pool(3, 1, 1).named("pooled")
    joined = af.concat([wide, pooled], axis=1).named("joined")
    mixed = af.conv(joined, weight(8, 32, 1, 1)).gelu().named("mixed")
    scores = mixed.mean((2, 3)).named("scores")
    af.save_netplist([scores.softmax(1).named("classes")], FOLDER / "convnet.plist", overwrite=True)


if __name__ == "__main__":
    attention()
    convnet()
