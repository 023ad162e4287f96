# pyright: basic, reportMissingImports=false
"""Whole networks of other people through every exporter: they load, their numbers are right, and the answer does not
depend on the file's format. ``make test-models`` runs this; ``ANEFORGE_MODELS=all`` takes every architecture of the
catalogue, ``ANEFORGE_SNAPSHOT=write`` records regions and estimates anew.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aneforge as af

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import exporters  # noqa: E402

exporters.declare_vision_ops()
import catalogue  # noqa: E402

FOLDER = Path(os.environ.get("ANEFORGE_MODELS_FOLDER", HERE.parent.parent / ".models"))
SNAPSHOT = HERE / "snapshot.json"
CHIPS = ("m1", "m5")
LEAST_ERROR, TIMES_HALF = 0.02, 3.0
MOST_SPREAD = 1.05
EVERY = os.environ.get("ANEFORGE_MODELS") == "all"
NAMES = [name for name, architecture in catalogue.ALL.items() if architecture.tested or EVERY]


@pytest.fixture(scope="module")
def snapshot() -> dict[str, Any]:
    return json.loads(SNAPSHOT.read_text()) if SNAPSHOT.exists() else {}


def files_of(name: str) -> dict[str, Path]:
    """The files of an architecture, written on first use in a process of its own, because exporters leak memory."""
    folder = FOLDER / name
    if not (folder / "example.npz").exists():
        command = [sys.executable, str(HERE / "exporters.py"), str(FOLDER), name]
        subprocess.run(command, check=True, capture_output=True, timeout=1200)
    return {kind: folder / file for kind, file in exporters.FORMATS.items() if (folder / file).exists()}


def errors_of(outputs: list[np.ndarray], example: Any, key: str) -> list[float]:
    """How far each output is from PyTorch's in float32, relative to its size."""
    found = []
    for place, output in enumerate(outputs):
        want = np.asarray(example[f"output{place}"], np.float64).reshape(-1)
        given = output if key == "given" else example[f"{key}{place}"]
        found.append(float(np.linalg.norm(np.asarray(given, np.float64).reshape(-1) - want) / np.linalg.norm(want)))
    return found


def answers(graph: af.Graph) -> dict[str, Any]:
    """Regions and microseconds for each chip."""
    found = {}
    for chip in CHIPS:
        parts = af.partition(graph, chip).only
        found[chip] = {
            "regions": len(parts.regions),
            "host": len(parts.reasons),
            "us": round(sum(model.estimate().us for model in parts.models.values()), 1),
        }
    return found


@pytest.mark.parametrize("name", NAMES)
def test_one_answer_for_one_network(name: str, snapshot: dict[str, Any]) -> None:
    files = files_of(name)
    assert {"pt2", "dynamo"} & set(files), "no exporter wrote it"
    example = np.load(FOLDER / name / "example.npz")
    feeds = [example[key] for key in example.files if key.startswith("input")]
    count = sum(key.startswith("output") for key in example.files)
    half = errors_of([np.zeros(0)] * count, example, "half") if "half0" in example.files else [0.0] * count
    found: dict[str, dict[str, Any]] = {}
    for kind, path in files.items():
        graph = af.load(path)
        ports = [port for port in graph.inputs if port.name not in graph.states]
        empty = {port.name: np.zeros(port.shape) for port in graph.inputs if port.name in graph.states}
        given = dict(zip([port.name for port in ports], feeds, strict=True)) | empty
        outputs = af.evaluate(list(graph.outputs), given)[:count]
        for place, error in enumerate(errors_of(outputs, example, "given")):
            allowed = max(LEAST_ERROR, TIMES_HALF * half[place])
            assert error <= allowed, f"{kind}: output {place} is off by {error:.2%}; {allowed:.2%} is allowed"
        found[kind] = answers(graph)
    for chip in CHIPS:
        times = [answer[chip]["us"] for answer in found.values()]
        assert max(times) <= MOST_SPREAD * min(times), f"{chip}: { ({kind: a[chip] for kind, a in found.items()}) }"
    _compare(name, next(iter(found.values())), snapshot)


def _compare(name: str, answer: dict[str, Any], snapshot: dict[str, Any]) -> None:
    if os.environ.get("ANEFORGE_SNAPSHOT") == "write":
        with SNAPSHOT.open("a+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)  # several workers record
            stream.seek(0)
            recorded = {**json.loads(stream.read() or "{}"), name: answer}
            stream.truncate(0)
            stream.write(json.dumps(dict(sorted(recorded.items())), indent=1) + "\n")
        return
    assert name in snapshot, "record it: ANEFORGE_SNAPSHOT=write make test-models"
    assert answer == snapshot[name]


def dead_nodes(path: Path) -> set[str]:
    """The nodes of an ONNX file that no output needs, found in the file itself."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    needed = {output.name for output in graph.output}
    dead = set()
    for node in reversed(graph.node):
        if needed & set(node.output):
            inner = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
            needed |= {*node.input, *(name for body in inner for one in body.node for name in one.input)}
        else:
            dead.add(node.name)
    return dead


@pytest.mark.parametrize("name", NAMES)
def test_every_node_of_a_file_is_behind_a_layer_or_has_a_reason(name: str) -> None:
    for kind, path in files_of(name).items():
        graph = af.load(path)
        assert graph.file.nodes, kind
        assert all(node.origins for node in graph.operations), kind
        unread = {
            origin.name
            for origin, reason in graph.file.without_node(graph.nodes).items()
            if reason == "nothing reads its result"
        }
        dead = dead_nodes(path) if path.suffix == ".onnx" else set()
        assert unread <= dead, f"{kind}: lost {sorted(unread - dead)[:5]}"
        numbers = {origin.number for origin in graph.file.nodes}
        nodes = {node.name: {origin.number for origin in node.origins} for node in graph.nodes}
        assert set().union(*nodes.values()) <= numbers, f"{kind}: a node has a foreign origin"
        parts = af.partition(graph, "m1").only
        accounted = {name for model in parts.models.values() for name in model.program.lineage}
        hosted = {node.name for region in parts.regions if region.device == "host" for node in region.nodes}
        views = parts.cut.operations.views  # of whole numbers, which the host reads in place
        lost = [n.name for n in graph.operations if n.name not in accounted | hosted and n.uid not in views]
        assert not lost, f"{kind}: behind no layer and without a reason: {lost[:5]}"
        for model in parts.models.values():
            for layer in model.program.layers:
                assert set(layer.sources) <= set(nodes), f"{kind}: layer {layer.name} has a foreign source"
