"""``aneforge validate``: the compiler's answer to every layer of a network, or to one layer, on each chip."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aneforge import text
from aneforge.chips.chip import Target
from aneforge.chips.names import chip_label, with_label
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile
from aneforge.engine.native import layer_type, layer_types
from aneforge.errors import AneforgeError, UnknownNameError, nearest
from aneforge.formats.arguments import chips_of
from aneforge.study.validate.layer import LayerVerdict, validate_layer
from aneforge.study.validate.network import validate_all
from aneforge.text import wrapped


def run(
    model: ModelFile,
    chips: str,
    route: str,
    params: str | None,
    shapes: str | None,
    bonded: bool,
    as_json: bool,
    everything: bool,
) -> int:
    """The answer to one layer where its type was named, else to the network in the file."""
    if _is_layer(model.path):
        return layer(model.path, params, shapes, chips, route, as_json)
    if params is not None or shapes is not None:
        raise AneforgeError("--params and --shapes: they describe one layer, and a file was named. Leave them out.")
    return network(model, chips, route, bonded, as_json, everything)


def network(model: ModelFile, chips: str, route: str, bonded: bool, as_json: bool, everything: bool) -> int:
    """Print the table of layers by chips; 1 if a chip rejects anything."""
    with working(f"validating {model.name} on {chips}"):
        result = validate_all(model.path, chips, route, bonded=bonded, **model.options)
        answer = text.as_json(result.to_json()) if as_json else result.text(everything)
    print(answer)
    return 0 if result.ok else 1


def _is_layer(name: str) -> bool:
    """Whether the argument is the type of a layer and not a file; refused where it can be neither."""
    if Path(name).exists():
        return False
    try:
        layer_type(name)
    except UnknownNameError:
        if not re.fullmatch(r"\w+", name):
            return False  # a dot or a folder: a file is meant, and the reader says what is wrong with it
        near = ", ".join(nearest(name, (known.tag for known in layer_types()))) or "SDPA, TopK, Conv"
        raise AneforgeError(f"{name}: neither a file nor a type of layer; nearest: {near}.") from None
    return True


def layer(name: str, params: str | None, shapes: str | None, chips: str, route: str, as_json: bool) -> int:
    """Print the verdict of each chip on one layer; 1 if one rejects it."""
    bottoms, stated = _shapes(shapes), _params(params)
    asked = chips_of(chips)
    verdicts = {chip: validate_layer(name, stated, bottoms, target, route) for chip, target in asked.items()}
    if as_json:
        print(
            text.as_json({"layer": name, "targets": {chip: verdict.to_json() for chip, verdict in verdicts.items()}})
        )
    else:
        print(_told(name, route, verdicts, asked))
    return 0 if all(verdict.accepted for verdict in verdicts.values()) else 1


def _told(name: str, route: str, verdicts: Mapping[str, LayerVerdict], asked: Mapping[str, Target]) -> str:
    rows = [(chip_label(chip), *_words(verdict)) for chip, verdict in verdicts.items()]
    refused: dict[str, None] = {}
    warned: dict[str, None] = {}
    for chip, verdict in verdicts.items():
        lines = dict.fromkeys([verdict.message, verdict.reason] if not verdict.accepted else ())
        if lines:
            refused[with_label("\n  ".join(lines), asked[chip], chip_label(chip))] = None
        warned |= dict.fromkeys(finding.message for finding in verdict.findings if finding.verdict != "reject")
    table = text.columns(("chip", "verdict", "stage", "evidence"), rows)
    parts = [f"{name} by the {route} route\n\n{table}"]
    parts += ["\n".join(wrapped(line, "  ") for line in message.splitlines()) for message in refused]
    parts += [wrapped(f"warning: {message}") for message in warned]
    return "\n\n".join(parts)


def _words(verdict: LayerVerdict) -> tuple[str, str, str]:
    return "accept" if verdict.accepted else "reject", verdict.stage, verdict.evidence.label()


def _shapes(shapes: str | None) -> list[tuple[int, ...]]:
    """``1x4x1x16,1x1x1x6``: one shape for each bottom."""
    if not shapes:
        return []
    listed = shapes.split(",")
    for shape in listed:
        if not re.fullmatch(r"\d+(x\d+)*", shape.strip()):
            raise AneforgeError(f"--shapes {shapes}: {shape!r} is not a shape. Write for instance 1x4x1x16,1x1x1x6.")
    return [tuple(map(int, shape.split("x"))) for shape in listed]


def _params(params: str | None) -> dict[str, Any]:
    try:
        stated = json.loads(params) if params else {}
    except ValueError as error:
        raise AneforgeError(f"--params: not JSON ({error}). Write for instance '{{\"K\": 5}}'.") from None
    if not isinstance(stated, dict):
        raise AneforgeError("--params: expected a JSON object. Write for instance '{\"K\": 5}'.")
    return stated
