"""Traits of graph ops: what each says must fit the declaration, and readers ask for them instead of listing names."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge.compiler.legal.patterns import attention_extents
from aneforge.cost.parts import host_band
from aneforge.engine.native import layer_type
from aneforge.engine.spec import spec, spec_names
from aneforge.graph import builders, definitions
from aneforge.graph.node import ops_with
from aneforge.graph.ops.contraction import dynamic_conv
from aneforge.graph.ops.host import host
from aneforge.graph.spelling import spelling
from aneforge.graph.traits import GraphTrait
from aneforge.graph.views import does, hands_on, moves_only
from aneforge.train.loop import PRODUCT, spans_of


def named_operands(name):
    return {operand.strip("?*") for operand in definitions()[name].operands}


@pytest.mark.parametrize(
    ("trait", "operands", "attributes"),
    [
        (GraphTrait.LEAF, set(), set()),
        (GraphTrait.REDUCTION, {"x"}, {"axes"}),
        (GraphTrait.CONVOLUTION, {"x", "weight"}, {"stride", "pad", "dilation", "groups"}),
        (GraphTrait.POOL, {"x"}, {"kernel", "stride", "pad"}),
        (GraphTrait.ARITHMETIC, {"a", "b"}, set()),
    ],
)
def test_a_trait_promises_operands_and_attributes(trait, operands, attributes):
    for name in ops_with(trait):
        assert operands <= named_operands(name), name
        assert attributes <= set(definitions()[name].attributes), name


def test_narrower_traits_are_part_of_wider_ones():
    for narrow, wide in [
        (GraphTrait.PORT, GraphTrait.LEAF),
        (GraphTrait.STORED, GraphTrait.LEAF),
        (GraphTrait.CONVOLUTION, GraphTrait.PRODUCT),
        (GraphTrait.STORED_KERNEL, GraphTrait.PRODUCT),
        (GraphTrait.VIEW, GraphTrait.MOVEMENT),
        (GraphTrait.SLICE, GraphTrait.MOVEMENT),
        (GraphTrait.CENTRED, GraphTrait.NORMALISATION),
    ]:
        assert ops_with(narrow) < ops_with(wide), narrow


def test_the_axis_of_outputs_is_declared_with_the_kernel():
    with_axis = {name for name, declared in definitions().items() if declared.kernel_axis is not None}
    assert with_axis == ops_with(GraphTrait.STORED_KERNEL)
    with_bias = {name for name, declared in definitions().items() if "bias?" in declared.operands}
    assert all(definitions()[name].vector_axis is not None for name in with_bias)
    assert all(
        definitions()[name].vector_axis is not None
        for name in ops_with(GraphTrait.NORMALISATION)
        if "gamma" in definitions()[name].operands
    )


def test_every_product_holds_less_than_fp16():
    """The list of the loss scale had no einsum, which is a product as well."""
    spans = spans_of([(name, name) for name in definitions()], (), 1.0)
    assert spans == dict.fromkeys(ops_with(GraphTrait.PRODUCT), PRODUCT)


@pytest.mark.parametrize("step", [lambda s: builders.minimum(s, 5.0), lambda s: s.expand_dims(0), lambda s: s * 0.5])
def test_attention_is_seen_through_masks_and_views(step):
    q, k = (af.input((2, 4, 8), name=name) for name in "qk")
    scores = step(q @ k.transpose([0, 2, 1]))
    assert attention_extents(scores.softmax(-1)) == (4, 4)


def test_the_host_multiplies_in_every_convolution():
    x, weight = af.input((1, 16, 32, 32)), af.input((16, 16, 3, 3))
    stored = af.conv(x, np.ones((16, 16, 3, 3)), pad=1)
    assert host_band([dynamic_conv(x, weight, pad=1)]) == host_band([stored])


def test_ops_of_other_languages_have_traits_by_their_names():
    x = af.input((4, 8))

    def foreign(kind, inputs=1):
        return host([x] * inputs, language="onnx", kind=kind, body="", shape=(4, 8), reason="no form")

    assert moves_only(foreign("aten.permute.default"))
    assert moves_only(foreign("Reshape"))
    assert hands_on(foreign("aten.flip.default"))
    assert not moves_only(foreign("aten.flip.default"))
    assert moves_only(foreign("aten.select.int"))
    assert not moves_only(foreign("Select", inputs=3))
    assert does(foreign("Gemm"), GraphTrait.PRODUCT)
    assert not does(foreign("Gemm"), GraphTrait.CONVOLUTION)


def test_a_row_is_read_in_both_directions():
    row = spelling("Neuron x | Type=* alpha>EluAlpha=1.0 eps>Epsilon? axes>Dimension:axes", "clamped_relu")
    assert row.name == "Neuron"
    assert row.constants == {"Type": "ClampedRelu"}
    assert row.stated({"alpha": 2.0, "eps": 0.0, "axes": (1,)}) == {"Type": "ClampedRelu", "EluAlpha": 2.0}
    assert row.stated({"alpha": 2.0, "eps": 0.5})["Epsilon"] == 0.5
    assert row.read({"Type": "ClampedRelu"}) == {"alpha": 1.0, "eps": None}
    assert not row.is_plain


@pytest.mark.parametrize(
    "name", [name for name, declared in definitions().items() if declared.mil or declared.backend]
)
def test_rows_name_attributes_and_operands_of_the_op(name):
    declared = definitions()[name]
    for row in (declared.in_mil, declared.in_backend):
        if row is None:
            continue
        assert {setting.name for setting in row.renamed} <= set(declared.attributes)
        assert len(row.operands) >= len(declared.operands) or declared.variadic


@pytest.mark.parametrize("name", [name for name, declared in definitions().items() if declared.backend])
def test_rows_of_the_backend_name_its_ops_and_attributes(name):
    row = definitions()[name].in_backend
    kind, _, unit = row.name.partition(":")
    if unit:
        assert layer_type(unit).tag == unit
        return
    known = spec(f"anec.{kind}").attributes
    assert {setting.theirs for setting in row.settings if setting.theirs} <= set(known)


def test_rows_of_units_name_attributes_of_their_op():
    for name in spec_names():
        unit = spec(name).unit
        if unit is not None:
            assert {setting.name for setting in unit.settings if setting.name} <= set(spec(name).attributes)
            assert layer_type(unit.name).tag == unit.name


def names_in(node):
    """The strings of a literal list, or the words of a literal string."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)) and all(isinstance(part, ast.Constant) for part in node.elts):
        return [part.value for part in node.elts]
    return node.value.split() if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def test_no_list_of_ops_stands_outside_their_declarations():
    """A list of six ops or more is a property that a trait should say. Rows of a format name its own ops, the public
    names are what they are, the clock has words of its own for kinds of work, and a GPU has a kernel for some ops."""
    package, ops = Path(af.__file__).parent, {*definitions(), *(name.removeprefix("anec.") for name in spec_names())}
    elsewhere = [package / "graph" / "ops", package / "engine" / "spec.py", package / "formats", package / "cost"]
    elsewhere.append(package / "sim" / "gpu" / "rules.py")
    lists = []
    for file in sorted(package.rglob("*.py")):
        if file == package / "__init__.py" or any(file.is_relative_to(place) for place in elsewhere):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = names_in(node)
            if len(names) > 5 and ops.issuperset(names):
                lists.append(f"{file.relative_to(package)}:{getattr(node, 'lineno', 0)}")
    assert lists == []
