"""What the package exports, and who computes the ops of other languages. ``test_api_parity.py`` has the signatures."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import aneforge as af


def test_everything_exported_resolves():
    for name in af.__all__:
        assert getattr(af, name) is not None
    with pytest.raises(AttributeError, match="no attribute"):
        _ = af.no_such_name


def test_builders_hold_every_public_function_that_makes_a_node():
    """Readers of model files use this namespace; a builder that users have is there for them too."""
    from aneforge.graph import builders

    listed = [name for name, home in af._HOME_OF.items() if home.startswith("aneforge.graph.ops")]
    offered = [name for name in vars(builders) if not name.startswith("_") and name != "annotations"]
    assert sorted(listed) == sorted(offered)
    assert all(getattr(builders, name) is getattr(af, name) for name in listed)


def test_a_saved_graph_finds_who_computes_its_host_ops(tmp_path):
    """In a fresh process, which has read no model file: whoever loads the graph brings the evaluators along."""
    from aneforge.graph.ops.host import host

    shape = {"shape": (3,), "reason": "a test"}
    out = host([af.input((3,), name="x")], language="onnx", kind="Sinh", body="", **shape).relu()
    af.Graph.of(out).save(tmp_path / "hosted.aneg")
    code = f"""
import sys, types
import aneforge as af, numpy as np
graph = af.load_graph({str(tmp_path / "hosted.aneg")!r})
evaluator = types.ModuleType("aneforge.formats.onnx.host")  # in place of the real one, which needs onnx
evaluator.evaluate = lambda kind, body, operands, output: np.sinh(operands[0])
sys.modules[evaluator.__name__] = evaluator
(found,) = af.evaluate(graph, {{graph.inputs[0]: np.array([0.0, 1.0, 2.0])}})
print(*found.round(3).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert done.stdout.split() == ["0.0", "1.175", "3.627"]


def test_an_unknown_language_of_the_host_is_refused_where_it_is_computed():
    from aneforge.graph.ops.host import host

    x = af.input((3,))
    out = host([x], language="klingon", kind="Qapla", body="", shape=(3,), reason="a test")
    with pytest.raises(
        af.AneforgeError, match="host ops of 'klingon' have no evaluator; choose one: coreai, mil, onnx, torch"
    ):
        af.evaluate(out, {x: np.zeros(3)})
