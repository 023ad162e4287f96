"""One op as files of several formats: what two graphs must share, and the numbers that both give on two chips."""

from __future__ import annotations

from typing import Any

import numpy as np

import aneforge as af
from aneforge.graph.recognise import recognised

CHIPS = ("m1", "m5")


def described(graph: af.Graph) -> list[tuple[Any, ...]]:
    """Ops, attributes, constants and wiring; names aside."""
    places = {node.uid: place for place, node in enumerate(graph.nodes)}
    lines = []
    for node in graph.nodes:
        attrs = tuple((key, _plain(value)) for key, value in node.attrs.items() if key != "name")
        stored = None if node.weight is None else (node.weight.shape, node.weight.array.tobytes())
        lines.append((node.op, node.shape, node.dtype, attrs, stored, tuple(places[each.uid] for each in node.inputs)))
    return [*lines, ("outputs", *(places[each.uid] for each in graph.outputs))]


def _plain(value: Any) -> Any:
    return tuple(_plain(each) for each in value) if isinstance(value, (list, tuple)) else value


def assert_same(
    found: af.Graph, wanted: af.Graph, feeds: list[np.ndarray], chips: tuple[str, ...] = CHIPS, bits_only: bool = False
) -> None:
    """``bits_only``: the formats lay out the result differently, so that only the numbers can be the same. Both are
    compared in the spelling that loading gives them."""
    found, wanted = recognised(found).graph, recognised(wanted).graph
    assert bits_only or described(found) == described(wanted)
    for chip in chips:
        one, two = (af.compile(graph, target=chip)(*feeds) for graph in (found, wanted))
        listed = [each if isinstance(each, (list, tuple)) else [each] for each in (one, two)]
        for a, b in zip(*listed, strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), chip
