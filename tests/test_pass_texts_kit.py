"""How a pass is tested by text: short forms of the MLIR, an exact comparison of what comes out, and a table of cases.

A case feeds ops as text to one pass and says which text comes out. The texts are MLIR with three short forms:
``!2x4x4`` is ``tensor<1x1x2x4x4xf16>`` (five extents stand for themselves, ``xsi8`` names another format), ``L3`` is
``layer = 3, slot = "primary"`` and ``L3.goc`` its slot ``goc``, and ``#unit`` are the attributes of a convolution with
a 1 x 1 kernel. Values may have any names; ``: i64`` and ``: f64`` may be left out. All else has to be equal: op names,
operands, attributes, labels, types, locations and the order of ops. ``"$gain"`` stands for the key of a constant that
the pass makes; the case says which numbers it must hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from aneforge.chips import target
from aneforge.compiler.passes import PASSES, run_passes
from aneforge.compiler.pipeline import PIPELINE
from aneforge.compiler.refusal import CompileError
from aneforge.engine.interpret import interpret
from aneforge.engine.ir import Module
from aneforge.engine.text import parse, read, write
from aneforge.engine.verify import verify
from aneforge.graph.weights import intern_weight

assert set(PIPELINE) == set(PASSES)  # to import the pipeline is to register every pass
ALL = sorted({each for known in PASSES.values() for each in known.ensures})
"""Everything that a pass may require."""

UNIT = (
    "dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 0, 0], groups = 1, kernel_sizes = [1, 1, 1], "
    "strides = [1, 1, 1]"
)
_TYPE = re.compile(r"!(\d+(?:x\d+)*)(x[a-z]+\d+)?")
_LAYER = re.compile(r"\bL(\d+)(?:\.(\w+))?\b")
_STRING = r'"(?:[^"\\]|\\.)*"'
_OP = re.compile(
    rf'\s*(?:(?P<result>%\w+) = )?"(?P<name>anec\.\w+)"\((?P<operands>[^)]*)\)'
    rf"(?: \{{(?P<attributes>(?:{_STRING}|[^\"{{}}])*)\}})?"
    rf" : \((?P<taken>[^)]*)\) -> (?P<given>\(\)|tensor<[^>]*>)(?: loc\((?P<sources>(?:{_STRING}|[^\")])*)\))?"
)


def spelled_out(text):
    """A text without short forms."""

    def type_(match):
        extents = match[1].split("x")
        shape = extents if len(extents) == 5 else ["1", "1", *extents]
        return f"tensor<{'x'.join(shape)}{match[2] or 'xf16'}>"

    text = re.sub(r"//[^\n]*", "", text).replace("#unit", UNIT)
    text = _LAYER.sub(lambda match: f'layer = {match[1]}, slot = "{match[2] or "primary"}"', text)
    return _TYPE.sub(type_, text)


def ops_of(text):
    """One line for each op: values numbered, attributes in order, one space where the text has any."""
    text = " ".join(spelled_out(text).split()).replace("( ", "(").replace(" )", ")").replace("{ ", "{")
    numbers, lines, at = {}, [], 0
    while text[at:].strip():
        match = _OP.match(text, at)
        assert match is not None, f"no op: {text[at : at + 120]}"
        operands = re.sub(r"%\w+", lambda each: numbers[each[0]], match["operands"])
        head = ""
        if match["result"]:
            numbers[match["result"]] = f"%{len(lines)}"
            head = f"%{len(lines)} = "
        attributes = f" {{{', '.join(_attributes(match['attributes']))}}}" if match["attributes"] else ""
        sources = f" loc({match['sources']})" if match["sources"] else ""
        lines.append(
            f'{head}"{match["name"]}"({operands}){attributes} : ({match["taken"]}) -> {match["given"]}{sources}'
        )
        at = match.end()
    return lines


def _attributes(text):
    """Attributes by name, without the types of numbers."""
    found, depth = [""], 0
    for piece in re.findall(rf"{_STRING}|[^\"]", text):
        depth += {"[": 1, "]": -1}.get(piece, 0)
        if piece == "," and not depth:
            found.append("")
        else:
            found[-1] += piece
    return sorted(re.sub(r" : [if]64\b", "", each.strip()) for each in found)


def between_the_regions(text):
    """The ops of a module's text, without the two region ops around them."""
    lines = text.splitlines()
    assert [line.strip()[:2] for line in (*lines[:2], *lines[-2:])] == ['"b', '"a', "})", "})"]
    return "\n".join(lines[2:-2])


def check_text(module, expected):
    """Compare the ops of a module with a text; the keys that its ``$names`` stand for come back."""
    found, wanted = ops_of(between_the_regions(str(module))), ops_of(expected)
    bound = {}
    for place, (one, two) in enumerate(zip(found, wanted, strict=False)):
        names = re.findall(r'"\$(\w+)"', two)
        pattern = re.sub(r'"\\\$\w+"', '"([0-9a-f]{32})"', re.escape(two))
        match = re.fullmatch(pattern, one)
        if names and match is not None:
            for name, key in zip(names, match.groups(), strict=True):
                bound.setdefault(name, key)
        wanted[place] = re.sub(r'"\$(\w+)"', lambda each: f'"{bound.get(each[1], each[0])}"', two)
    assert found == wanted
    return bound


def module_of(text, chip="h13", weights=None):
    """A module read from the full text of a program; its constants lie under the keys that the text has."""
    head, region, *tail = write(Module(), chip).splitlines()
    module, named = read("\n".join([head, region, spelled_out(text), *tail]))
    module.weights = {key: intern_weight(np.asarray(values, np.float64)) for key, values in (weights or {}).items()}
    assert named == chip
    return verify(module)


def run(module, name, chip):
    """Run one pass; what it leaves reads back from its text."""
    (log,) = run_passes(module, target(chip), [name], ensured=ALL)
    assert str(parse(str(module))) == str(module)
    return log


def after(name, text, chip, weights=None):
    """The ops that a pass makes of a text, for comparing two targets."""
    module = module_of(text, chip, weights)
    run(module, name, chip)
    return ops_of(between_the_regions(str(module)))


def _feeds(module):
    rng = np.random.default_rng(3)
    whole = {"ui8": (0, 256), "si8": (-128, 128), "i1": (0, 2)}
    return {
        op.attrs["name"]: rng.integers(*whole[op.type.dtype], op.shape)
        if op.type.dtype in whole
        else np.round(rng.normal(size=op.shape), 3)
        for op in module.inputs
    }


def _same_meaning(each, before, now):
    bound = 4e-3 if each.rounds else 1e-9
    assert list(before) == list(now)
    for name, value in before.items():
        np.testing.assert_allclose(now[name], value, rtol=0, atol=bound * max(1.0, np.abs(value).max()))


@dataclass(frozen=True, repr=False)
class Case:
    """A text for one pass: what it makes of it (None: nothing changes), or why it refuses it."""

    pass_name: str
    about: str
    before: str
    after: str | None = None
    chip: str = "h13"
    weights: Mapping[str, Any] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=dict)
    """The numbers of the constants that stand as ``$name`` in the result."""
    refused: str | None = None
    reject: str | None = None
    """How the compiler's own words begin."""

    def check(self):
        module = module_of(self.before, self.chip, self.weights)
        if self.refused is not None:
            self._check_refusal(module)
            return
        feeds = _feeds(module)
        means = interpret(module, feeds)
        log = run(module, self.pass_name, self.chip)
        bound = check_text(module, self.before if self.after is None else self.after)
        assert self.after is not None or log.changes == 0
        assert set(bound) == set(self.made)
        for name, values in self.made.items():
            stored = module.weights[bound[name]].array
            assert stored.dtype == np.float16
            np.testing.assert_array_equal(stored, np.asarray(values, np.float16), strict=True)
        _same_meaning(PASSES[self.pass_name], means, interpret(module, feeds))

    def _check_refusal(self, module):
        with pytest.raises(CompileError, match=self.refused) as caught:
            run(module, self.pass_name, self.chip)
        assert caught.value.refused_by == self.pass_name
        assert caught.value.target == self.chip
        assert (caught.value.reject or "")[: len(self.reject or "")] == (self.reject or "")
        assert (caught.value.reject is None) == (self.reject is None)


def parameters(cases):
    """Cases for ``pytest.mark.parametrize``."""
    return [pytest.param(case, id=f"{case.pass_name}: {case.about}") for case in cases]


# The comparison itself: it lets spelling pass and nothing else.

CLEAN = """
    %x = "anec.live_in"() {name = "x"} : () -> !2x4x4
    %k = "anec.const_in"() {weight = "kernel"} : () -> !2x1x2x1x1
    %conv = "anec.convolution"(%x, %k) {#unit, L0, data_path = "dma"} : (!2x4x4, !2x1x2x1x1) -> !2x4x4 loc("c")
    %relu = "anec.clamped_relu"(%conv) {L0.post_activation, max_val = 6.0, min_val = -1.0} : (!2x4x4) -> !2x4x4
    "anec.live_out"(%relu) {names = ["y"]} : (!2x4x4) -> ()
"""


def test_spelling_does_not_matter():
    module = module_of(CLEAN)
    check_text(module, write(module, "h13").partition('"anec.A13"() ({')[2].partition("}) {target")[0])
    check_text(
        module,
        CLEAN.replace("%conv", "%7")
        .replace("#unit, L0,", "L0,\n#unit,   ")
        .replace("6.0", "6.0 : f64")
        .replace("(%x", "( %x"),
    )


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("clamped_relu", "n_relu"),
        ("(%relu)", "(%conv)"),
        ("max_val = 6.0", "max_val = 6.5"),
        ("max_val = 6.0", "max_val = 6"),
        (", min_val = -1.0", ""),
        ("L0.post", "L1.post"),
        ("post_activation", "pre_activation"),
        ('data_path = "dma"', 'data_path = "crop"'),
        (') {names = ["y"]} : (!2x4x4)', ') {names = ["y"]} : (!2x4x4xf32)'),
        (') -> !2x4x4 loc("c")', ') -> !4x4x2 loc("c")'),
        ('loc("c")', 'loc("d")'),
        ('loc("c")', ""),
        ('"kernel"', '"other"'),
        ('"kernel"', '"$key"'),
        ("strides = [1, 1, 1]", "strides = [1, 1, 2]"),
    ],
)
def test_everything_else_does(one, two):
    assert one in CLEAN.replace("#unit", UNIT)
    with pytest.raises(AssertionError):
        check_text(module_of(CLEAN), CLEAN.replace("#unit", UNIT).replace(one, two))


def test_one_name_is_one_constant():
    module = module_of(CLEAN.replace('"kernel"', f'"{"0f" * 16}"'))
    assert check_text(module, CLEAN.replace('"kernel"', '"$key"')) == {"key": "0f" * 16}
    two = CLEAN.replace("    %conv", '    %n = "anec.const_in"() {weight = "other"} : () -> !1x1x1\n    %conv')
    other = module_of(two.replace('"kernel"', f'"{"0f" * 16}"').replace('"other"', f'"{"1e" * 16}"'))
    check_text(other, two.replace('"kernel"', '"$one"').replace('"other"', '"$two"'))
    with pytest.raises(AssertionError):
        check_text(other, two.replace('"kernel"', '"$one"').replace('"other"', '"$one"'))


def test_a_case_can_fail():
    relu = '%y = "anec.relu"(%x) : (!2x4x4) -> !2x4x4'
    ports = """
        %x = "anec.live_in"() {{name = "x"}} : () -> !2x4x4
        {}
        "anec.live_out"(%y) {{names = ["y"]}} : (!2x4x4) -> ()
    """
    twice = ports.format(relu.replace("%y", "%a") + "\n" + relu.replace("%x", "%a"))
    Case("merge-activations", "", twice, ports.format(relu)).check()
    for wrong in (
        Case("merge-activations", "", twice),
        Case("merge-activations", "", twice, ports.format(relu.replace("relu", "abs"))),
        Case("merge-activations", "", twice, ports.format(relu), made={"gain": [1.0]}),
        Case("drop-copies", "", twice, ports.format(relu)),
    ):
        with pytest.raises(AssertionError):
            wrong.check()
    with pytest.raises(pytest.fail.Exception):
        Case("check-floors", "", twice, refused="starts at").check()
