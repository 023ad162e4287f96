"""Netplists for tests, written by hand as dictionaries."""

from __future__ import annotations

import plistlib

import numpy as np

from aneforge.engine.authoring.build import build_layer
from aneforge.engine.native import ParamError, layer_types
from aneforge.errors import AneforgeError

RNG = np.random.default_rng(2)


def bits(value):
    """A number as the schema wants it: the bit pattern of fp16."""
    return int(np.array(value, np.float16).view(np.uint16))


def half(*shape):
    return (RNG.standard_normal(shape) * 0.5).astype(np.float16)


def port(name, shape, **keys):
    """An input port; a shape of rank 5 has its depth after the channels."""
    n, c, *depth, h, w = shape
    sizes = {"BatchSize": n, "InputChannels": c, "InputDepth": depth[0] if depth else 1}
    return {"InputName": name, "InputType": "Float16", **sizes, "InputHeight": h, "InputWidth": w, **keys}


def unit(kind, bottom, params=None, **keys):
    return {"Type": kind, "Bottom": bottom, "Params": params or {}, "OutputType": "Float16", **keys}


def constant(name, shape=(1, 1, 1, 1), offset=0, **keys):
    n, c, h, w = shape
    sizes = {"ConstantBatchSize": n, "ConstantChannels": c, "ConstantHeight": h, "ConstantWidth": w}
    return {"ConstantName": name, "ConstantType": "Float16", **sizes, "ConstantByteOffset": offset, **keys}


def document(units, inputs, outputs, weights=(), constants=None, **extra):
    """A netplist of one network and one procedure. ``outputs`` gives the unit behind each name."""
    network = {"Units": list(units), "Weights": list(weights), "Constants": list(constants or {}), **units}
    network |= {name: {"Bottom": source} for name, source in outputs.items() if name != source} | (constants or {})
    procedure = {
        "Name": "main",
        "InputList": [port(name, shape) for name, shape in inputs.items()],
        "OperationList": [{"NetworkName": "net", "OperationName": "op"}],
        "OutputList": [{"OutputName": name, "OutputType": "Float16"} for name in outputs],
    }
    return {"Version": "1.0.10", "Networks": ["net"], "ProcedureList": [procedure], "net": network, **extra}


def save(file, content, binary=False):
    file.write_bytes(plistlib.dumps(content, fmt=plistlib.FMT_BINARY if binary else plistlib.FMT_XML))
    return file


def written(tmp_path, units, inputs, outputs, weights=(), constants=None, binary=False, **extra):
    return save(tmp_path / "net.plist", document(units, inputs, outputs, weights, constants, **extra), binary)


def refusal(tag):
    """What is said of an empty unit; None where there is a rule, which then asks for parameters or bottoms."""
    try:
        build_layer(tag, [], {})
    except ParamError:
        return None
    except AneforgeError as error:
        return None if "0 bottoms" in str(error) else str(error)
    return None


def readable_tags():
    """The types of units that a netplist can state and the reader builds."""
    return sorted(layer.tag for layer in layer_types() if refusal(layer.tag) is None)
