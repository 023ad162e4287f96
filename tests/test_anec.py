"""The backend language: 94 ops from the data, text that comes back the same, a verifier that names the fault."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aneforge.chips import backend_ops
from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.engine.native import rank5
from aneforge.engine.spec import OPS, STRUCTURAL, spec, spec_names, structural_names
from aneforge.engine.tensor_type import Params
from aneforge.engine.text import parse, read, write
from aneforge.engine.verify import problems, verify
from aneforge.errors import UnknownNameError

F16 = TensorType((1, 1, 8, 4, 4))
VALUES = {
    "i": st.integers(-(2**40), 2**40),
    "f": st.floats(allow_nan=False),
    "s": st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12),
    "u": st.just(True),
    "i*": st.lists(st.integers(0, 9), max_size=5).map(tuple),
    "s*": st.lists(st.text('ab "\\%', max_size=4), max_size=3).map(tuple),
    "p": st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=5).map(tuple),
    "d": st.dictionaries(st.text('ab "\\%', max_size=4), st.integers() | st.floats(allow_nan=False) | st.text()).map(
        Params
    ),
}


def sized(kind):
    return VALUES[kind] if kind in VALUES else st.tuples(*[st.integers(0, 9)] * int(kind[1:]))


@st.composite
def modules(draw, name):
    """A module with one op of the given name, as its declaration has it; its types need not go together."""
    declared = spec(name)
    count = draw(st.integers(declared.fewest, declared.most if declared.most is not None else declared.fewest + 3))
    shape = st.tuples(*[st.integers(1, 9)] * 5)
    operands = [
        Op("anec.live_in", (), TensorType(draw(shape), draw(st.sampled_from(["f16", "i1", "ui8"]))), {"name": f"x{i}"})
        for i in range(count)
    ]
    attrs = {
        key: draw(sized(known.kind))
        for key, known in declared.attributes.items()
        if not known.optional or draw(st.booleans())
    }
    sources = tuple(draw(st.lists(st.text('abc_ "\\', min_size=1, max_size=6), max_size=3)))
    if name == "anec.live_out":
        return Module([*operands, Op(name, operands, None, attrs, sources)])
    op = Op(name, operands, TensorType(draw(shape)), attrs, sources)
    return Module([*operands, op, Op("anec.live_out", [op], None, {"names": ("y",)})])


@pytest.mark.parametrize("name", [*spec_names(), *structural_names()])
@settings(max_examples=15)
@given(data=st.data())
def test_every_op_prints_and_reads_back_the_same(name, data):
    module = data.draw(modules(name))
    target = data.draw(st.sampled_from(["h13", "h17s", None]))
    text = write(module, target)
    back, named = read(text)
    assert named == target
    assert write(back, named) == text
    assert [op.attrs for op in back] == [op.attrs for op in module]
    assert [op.sources for op in back] == [op.sources for op in module]
    assert write(module.clone(), target) == text
    assert str(module) == write(module)


@pytest.mark.parametrize("name", spec_names())
def test_an_mlir_reader_takes_the_text(name):
    from xdsl.context import Context
    from xdsl.dialects import builtin
    from xdsl.parser import Parser

    declared = spec(name)
    sample = {"i": 1, "f": 0.5, "s": "w", "u": True, "i*": (1, 2), "s*": ("a",), "p": ((0, 1),)}
    attrs = {k: sample.get(a.kind) or (1,) * int(a.kind[1:]) for k, a in declared.attributes.items()}
    operands = [Op("anec.live_in", (), F16, {"name": f"x{i}"}) for i in range(max(declared.fewest, 1))][
        : declared.fewest
    ]
    op = Op(name, operands, F16, attrs, ("node", "other"))
    module = Module([*operands, op, Op("anec.live_out", [op], None, {"names": ("y",)})])
    context = Context(allow_unregistered=True)
    context.load_dialect(builtin.Builtin)
    printed = str(Parser(context, write(module, "m5")).parse_module())
    assert f'"{name}"' in printed
    assert '"anec.A17"' in printed


def test_floor_and_engine_come_from_the_data():
    assert len(spec_names()) == 94
    for op in backend_ops():
        assert spec(op.name).floor == op.floor
        assert spec(op.name).engine == op.engine
    assert not set(OPS) & set(STRUCTURAL)
    assert {f"anec.{name}" for name in OPS} == set(spec_names())
    with pytest.raises(UnknownNameError, match="convolution"):
        spec("anec.convolutoin")


def test_layouts():
    assert rank5((2, 3, 4, 5)) == (2, 1, 3, 4, 5)
    assert rank5((2, 3, 6, 4, 5)) == (2, 6, 3, 4, 5)
    assert rank5((3, 4, 5)) == (1, 1, 3, 4, 5)
    assert rank5((7, 9)) == (1, 1, 7, 1, 9)
    assert rank5((9,)) == (1, 1, 1, 1, 9)
    assert rank5(()) == (1,) * 5
    assert TensorType((1, 1, 8, 4, 4)).bytes == 256


def chain():
    x = Op("anec.live_in", (), F16, {"name": "x"})
    y = Op("anec.relu", [x], F16)
    z = Op("anec.add", [y, y], F16)
    return Module([x, y, z, Op("anec.live_out", [z], None, {"names": ("z",)})])


def test_rewriting_keeps_the_use_lists():
    module = verify(chain())
    x, y, z, _ = module.ops
    assert y.users == {z: 2}
    fresh = Op("anec.tanh", [x], F16)
    module.ops.insert(2, fresh)
    y.replace_with(fresh)
    assert z.operands == [fresh, fresh]
    assert module.sweep() == 1
    assert [op.kind for op in verify(module)] == ["live_in", "tanh", "add", "live_out"]
    z.set_operand(1, x)
    verify(module)
    assert x.users[z] == 1
    with pytest.raises(AnecError, match="readers"):
        x.drop()


def spoil(action):
    module = chain()
    action(module)
    return module


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (lambda m: m.ops.pop(1), "not in the module"),
        (lambda m: m.ops.insert(0, m.ops.pop(2)), "which comes after it"),
        (lambda m: m.ops.append(m.ops[0]), "twice"),
        (lambda m: m.ops[1].users.clear(), "use list"),
        (lambda m: setattr(m.ops[1], "attrs", {"alpha": 1.0}), "attribute 'alpha' is unknown; the op has none"),
        (lambda m: setattr(m.ops[1], "name", "anec.elu"), "attribute 'alpha' is missing"),
        (lambda m: setattr(m.ops[1], "name", "anec.nope"), "nearest"),
        (lambda m: setattr(m.ops[1], "type", TensorType((1, 8, 4, 4))), "not NDCHW"),
        (lambda m: setattr(m.ops[1], "type", TensorType((1, 1, 0, 4, 4))), "below one"),
        (lambda m: setattr(m.ops[1], "type", None), "no result"),
        (lambda m: m.ops.pop(), "one live_out"),
        (lambda m: m.ops[2].operands.pop(), "but has 1 operands"),
        (lambda m: setattr(m.ops[0], "attrs", {"name": 3}), "not of kind 's'"),
    ],
)
def test_the_verifier_names_the_broken_rule(action, told):
    module = spoil(action)
    assert any(told in text for text in problems(module)), problems(module)
    with pytest.raises(AnecError, match="after pass 'fuse'"):
        verify(module, after="fuse")


HEAD = '"builtin.module"() ({\n  "anec.A13"() ({\n'
TAIL = '  }) {target = "h13"} : () -> ()\n}) : () -> ()\n'
LIVE = '%0 = "anec.live_in"() {name = "x"} : () -> tensor<1x1x8x4x4xf16>\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEAD + LIVE, "expected"),
        (HEAD + LIVE + '%1 = "anec.rellu"(%0) : (tensor<1x1x8x4x4xf16>) -> tensor<1x1x8x4x4xf16>' + TAIL, "anec.relu"),
        (
            HEAD + LIVE + '%1 = "anec.relu"(%7) : (tensor<1x1x8x4x4xf16>) -> tensor<1x1x8x4x4xf16>' + TAIL,
            "defined above",
        ),
        (HEAD + LIVE + LIVE + TAIL, "defined twice"),
        (
            HEAD + LIVE + '%1 = "anec.relu"(%0) : (tensor<1x1x8x4x5xf16>) -> tensor<1x1x8x4x4xf16>' + TAIL,
            "do not match",
        ),
        (HEAD + LIVE + '%1 = "anec.relu"(%0) : (tensor<1x1x8x4x4xf16>) -> ()' + TAIL, "needs both a name and a type"),
        (HEAD + LIVE + '%1 = "anec.relu"(%0) {a = } : () -> ()' + TAIL, "attribute value"),
        (HEAD + '%0 = "anec.live_in"() {name = "x"} : () -> tensor<?x4xf16>' + TAIL, "tensor type"),
        ('"builtin.module"() ({ "anec.B1"() ({' + LIVE + TAIL, "region op"),
        (HEAD + LIVE + "@@@" + TAIL, "expected a token of the language"),
        (HEAD + LIVE + TAIL + "extra", "end of the text"),
    ],
)
def test_a_fault_in_the_text_names_its_line(text, told):
    with pytest.raises(AnecError, match=r"line \d+: ") as error:
        parse(text)
    assert told in str(error.value)


def test_comments_and_bare_ops_are_read():
    module, named = read(
        f'// a comment\n{LIVE}"anec.live_out"(%0) {{names = ["x"]}} : (tensor<1x1x8x4x4xf16>) -> ()\n'
    )
    assert [op.kind for op in module] == ["live_in", "live_out"]
    assert named is None
