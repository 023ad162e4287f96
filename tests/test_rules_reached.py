"""Every rule is reached by some graph, or is marked as knowledge about another route: rule by rule."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge.chips import all_targets, store
from aneforge.compiler.facts import facts_of
from aneforge.compiler.legal import judge, programs
from aneforge.compiler.legal.patterns import PATTERNS, convolution_runs, matched_patterns
from aneforge.compiler.legal.query import CHAIN, ROUTES, RUNTIMES
from aneforge.compiler.legal.rules import RULES
from aneforge.compiler.legal.rules.base import ANY, UNREACHED, limits_for, matches, rule_reads, rule_records
from aneforge.compiler.legal.rules.native import RAISED
from aneforge.compiler.legalise import kernels as program_size
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.ops.host import host
from aneforge.graph.origins import Origin
from aneforge.numerics.losses import LOSSES

PACKAGE = Path(af.__file__).parent


def x(*shape, **options):
    return af.input(shape, **options)


def weight(*shape):
    """Numbers that differ from one another, without drawing millions of them."""
    return (np.arange(np.prod(shape), dtype=np.uint32) % 7).reshape(shape).astype(np.float16)


def convolutions(count):
    tensor, kernel = x(1, 4, 1, 64), weight(4, 4, 1, 1)
    for _ in range(count):
        tensor = af.conv(tensor, kernel)
    return tensor


def gated(hidden):
    tensor = x(1, 1024, 1, 32)
    gate, up = (af.conv(tensor, weight(hidden, 1024, 1, 1)) for _ in range(2))
    return af.conv(gate.silu() * up, weight(1024, hidden, 1, 1))


def columns(axis):
    tensor = x(6, 6)
    pieces = [tensor[:, 3:4], tensor[:, 1:2]] if axis else [tensor[3:4], tensor[1:2]]
    return af.concat(pieces, axis)


def coded(scale):
    return af.dequantize(af.quantize(x(4, 8), scale), scale)


def clipped_product(clipped):
    """The cure of N78: the product is held to the range of its codes before it is quantised."""
    product = x(4, 8) * coded(0.0625)
    return af.quantize(product.clip(-128 * 0.125, 127 * 0.125) if clipped else product, 0.125)


def int8_product(bound):
    """By ``linear``: a program stores the right side of a ``matmul`` as fp16, in front of which nothing clamps."""
    return x(31, 15, max_abs=bound).linear(Encoded.affine(np.ones((16, 15), np.int8), 0.1))


def coded_sum(rows):
    """A sum of codes over 65,536 channels: it reaches 2^31 with two rows of the kernel."""
    codes = af.dequantize(af.quantize(x(1, 65536, rows, 1), 2.0**-8), 2.0**-8)
    return af.conv(codes, Encoded.affine(np.full((1, 65536, rows, 1), -128, np.int8), 2.0**-8))


def scaled(scales, table=None):
    """A convolution of 64 to 32 channels with a weight of codes and scales of a shape."""
    codes, scale = np.ones((32, 64, 1, 1), np.int8), np.full((*scales, 1, 1), 0.5, np.float16)
    if table is None:
        stored = Encoded.blockwise(codes, scale)
    else:
        stored = Encoded.palette(codes, np.ones((*table, 1, 1, 16, 1)), 4, scale=scale)
    return af.conv(x(1, 64, 1, 64), stored)


def palettes(table, scale=0.5):
    """Two convolutions with palettes, and int8 codes between them."""
    codes = np.ones((8, 8, 1, 1), np.int8)
    before, behind = (Encoded.palette(codes, np.arange(16) * table, 4) for _ in range(2))
    return af.conv(af.dequantize(af.quantize(af.conv(x(1, 8, 1, 64), before), scale), scale), behind)


def step(queries):
    """Attention of some queries over 128 keys that come in from a cache."""
    scores = (x(1, 8, queries, 64) @ x(1, 8, 64, 128)) * 0.125 + x(1, 1, queries, 128)
    return scores.softmax(-1) @ x(1, 8, 128, 64)


def masked_step():
    """The same with a mask that is computed, and selects."""
    scores = x(1, 8, 2, 64) @ x(1, 8, 64, 128)
    return af.where(x(1, 8, 2, 128).relu().greater(0.0), scores, -1e4).softmax(-1) @ x(1, 8, 128, 64)


def decoder(layers, queries=1):
    tensor, keys = x(1, 2, queries, 16), x(1, 2, 16, 32)
    for _ in range(layers):
        tensor = (tensor @ keys).softmax(-1) @ x(1, 2, 32, 16)
    return tensor


def attending(width, words):
    """Attention and a product with as many results as there are words."""
    return decoder(1, 32).linear(weight(width, 16)).reshape(64, width).linear(weight(words, width))


def classes(axis):
    channels = x(1, 4, 8, 8)
    return (channels.transpose([0, 2, 3, 1]) if axis else channels).reshape(64, 4).argmax(1)


def classifier(rank):
    tensor = x(1, 16).linear(weight(8, 16)) if rank == 2 else af.conv(x(1, 16, 1, 1), weight(8, 16, 1, 1))
    return tensor * tensor.sigmoid_hard(1 / 6, 0.5)


def cache_write(kind):
    operands = [x(1, 8, 64), x(1, 1, dtype="int32"), x(1, 1, 64)]
    return host(operands, language="onnx", kind=kind, body="", shape=(1, 8, 64), reason="its indices are computed")


def stateful(kind):
    """A cache of attention or a running sum that the program updates; a cache that the host writes."""
    cache = x(1, 2, 16, 32, name="cache")
    updated = (cache + x(1, 2, 16, 32)).named("next")
    attended = (x(1, 2, 8, 16) @ updated).softmax(-1) @ x(1, 2, 32, 16)
    outputs = [updated] if kind == "sum" else [attended, updated]
    return Graph(outputs) if kind == "host" else Graph(outputs, states={"cache": "next"})


def states(count):
    """Running sums that the program updates; of a negative count, each of another width."""
    inputs = [x(1, 2, 4, 16 + (8 * at if count < 0 else 0), name=f"s{at}") for at in range(abs(count))]
    sums = [(state + 1.0).named(f"n{at}") for at, state in enumerate(inputs)]
    return Graph(sums, states={f"s{at}": f"n{at}" for at in range(len(sums))})


def scores(keys):
    """The softmax of an attention of four queries, and nothing behind it."""
    return (x(4, 16) @ x(16, keys)).softmax(-1)


def products(count):
    """Products in a row of computed values, with sums between them."""
    tensor = x(48, 8, 8)
    for _ in range(count):
        tensor = (tensor + 1.0) @ x(48, 8, 8)
    return tensor


def joined(channels):
    """Two values side by side on the channels, by padding and a sum."""
    around = [(0, 0), (0, channels), (0, 0), (0, 0)], [(0, 0), (channels, 0), (0, 0), (0, 0)]
    return af.pad(x(1, channels, 1, 32), around[0]) + af.pad(x(1, channels, 1, 32), around[1])


def in_type(dtype):
    """A relu that a file computes in a type."""
    tensor = x(1, 8, 4, 4).relu()
    tensor.origins = (Origin(1, "relu", "relu", dtype=dtype),)
    return tensor


def compared(other):
    tensor = x(4, 8)
    return tensor.not_equal(x(4, 8) if other else tensor)


def attention(length):
    return af.sdpa(*(x(1, 1, length, 64) for _ in range(3)))


def determinant(language):
    settings = {"kind": "Det", "body": "", "shape": (1,), "reason": "no engine has it"}
    return host([x(4, 4)], language=language, **settings) if language else x(4, 4).relu()


def layer_norm(trained):
    gamma = weight(4096) if trained else np.ones(4096)
    return x(256, 4096).layer_norm(gamma, np.zeros(4096))


def runtime_kernel(runtime):
    tensor = x(1, 64, 1, 32)
    return af.dynamic_conv(tensor, x(64, 64, 1, 32)[..., :1]) if runtime else af.conv(tensor, weight(64, 64, 1, 1))


# The rule; a graph of one number; the number and the chip for which the rule speaks; those for which it does not.
REACHED = [
    ("fp32-program", in_type, ("fp32", "m4"), ("", "m4")),
    ("attention-history", scores, (32768, "m5"), (24576, "m5")),
    ("joined-by-padding", joined, (5632, "m5"), (4608, "m5")),
    ("matmul-rank", lambda n: af.matmul(x(*[1] * n, 8, 16), x(*[1] * n, 16, 8)), (3, "m1"), (2, "m1")),
    ("extent", lambda n: x(1, 1, 1, n).relu(), (16385, "m1"), (16384, "m1")),
    ("extent", lambda n: x(1, 1, 1, n).relu(), (16385, "m1"), (16385, "m4")),
    ("contraction-extent", lambda n: af.matmul(x(8, 8), weight(8, n)), (16385, "m1"), (16384, "m1")),
    (
        "matmul-runtime-contraction",
        lambda n: af.matmul(x(1, 16, n), x(1, n, 16)),
        (32769, "m4"),
        (32768, "m4"),
    ),
    ("matmul-row", lambda n: af.matmul(x(8, n), weight(n, 8)), (32769, "m4"), (32768, "m4")),
    (
        "group-norm-extent",
        lambda n: x(1, 32, 128, n).group_norm(np.ones(32), np.zeros(32), 32),
        (129, "m1"),
        (128, "m1"),
    ),
    ("narrow-surface", lambda n: x(1, 80, 1, n) * 2.0, (31, "m3"), (32, "m3")),
    ("narrow-surface", lambda n: x(1, 80, 1, n) * 2.0, (31, "m3"), (31, "m4")),
    # A stored kernel that is too large is rewritten; one that arrives at run time is refused.
    ("conv-kernel-width", lambda n: af.dynamic_conv(x(1, 8, 4, 64), x(8, 8, 1, n)), (14, "m1"), (13, "m1")),
    ("conv-kernel-height", lambda n: af.dynamic_conv(x(1, 8, 64, 4), x(8, 8, n, 1)), (30, "m1"), (29, "m1")),
    (
        "deconv-stride",
        lambda n: af.conv_transpose(x(1, 8, 5, 22), af.parameter(weight(8, 4, 16, 4)), stride=(n, 1)),
        (5, "m1"),
        (4, "m1"),
    ),
    ("runtime-weight-ignored", runtime_kernel, (True, "m3"), (False, "m3")),
    ("runtime-weight-ignored", runtime_kernel, (True, "m3"), (True, "m4")),
    ("pool-window", lambda n: x(1, 8, 64, 64).avg_pool((n, 3)), (32, "m5 direct"), (31, "m5 direct")),
    ("layer-norm-affine", layer_norm, (True, "m1"), (False, "m1")),
    ("layer-norm-affine", layer_norm, (True, "m1"), (True, "m5")),
    ("layer-norm-width", lambda n: x(4, n).layer_norm(np.ones(n), np.zeros(n)), (8193, "m5"), (8192, "m5")),
    ("layer-envelope", lambda n: af.lrn(x(1, n, 8, 8)), (16, "m5"), (15, "m5")),
    ("support-byte", lambda axis: af.minmax_norm(x(1, 8, 8, 16), axis), ("Channel", "m1"), ("Height", "m1")),
    (
        "resample-method",
        lambda how: af.resample(x(1, 8, 8, 8), x(1, 4, 4, 2), how),
        ("bilinear", "m5 direct"),
        ("nearest", "m5 direct"),
    ),
    (
        "sweep",
        lambda live: af.crop_resize(x(1, 8, 8, 8), x(2, 4) if live else np.zeros((2, 4)), 4, 4),
        (True, "m5"),
        (False, "m5"),
    ),
    (
        "image-format",
        lambda tag: af.image_input((1, 4 if "BGA" in tag else 1, 8, 8), format=tag)[0],
        ("&8f0", "m4"),
        ("&BGA", "m4"),
    ),
    ("topk-k", lambda n: af.topk(x(8, 16), n), (4, "m5"), (5, "m5")),
    ("arg-extent", lambda n: x(4, n).argmax(1), (2049, "m1"), (2048, "m1")),
    ("layer-envelope", lambda n: af.space_to_channel(x(1, 2, 4 * n, 4 * n), n), (5, "m5"), (6, "m5")),
    ("sdpa-length", attention, (512, "m5"), (511, "m5")),
    (
        "scaled-mult-scale",
        lambda scale: af.scaled_elementwise(x(1, 64), x(1, 64), "Mult", scale),
        (2.0, "m5"),
        (1.0, "m5"),
    ),
    ("layer-envelope", lambda n: af.fps(x(n, 3), 16), (8193, "m5"), (8192, "m5")),
    ("chain-depth", convolutions, (387, "m6"), (386, "m6")),
    ("chain-depth", convolutions, (387, "m6"), (387, "m5")),
    ("ffn-weights", gated, (8193, "m3"), (8192, "m3")),
    ("ffn-weights", gated, (8193, "m3"), (8193, "m4")),
    ("square-tiling", lambda n: x(1, n).square().exp(), (193, "m5"), (192, "m5")),
    ("square-tiling", lambda n: x(1, n).square().exp(), (193, "m5"), (193, "m3")),
    ("chain-pattern", columns, (1, "m1"), (0, "m1")),
    ("chain-pattern", columns, (1, "m1"), (1, "m5")),
    ("chain-pattern", lambda factor: x(4, 8).sum(1) * factor, (0.0, "m5"), (0.5, "m5")),
    ("chain-pattern", lambda factor: factor * x(4, 8).mean(1), (np.zeros((4, 1)), "m5"), (np.eye(4, 1), "m5")),
    ("chain-pattern", lambda op: getattr(x(4, 8), op)() * 2.0, ("round", "m5"), ("sign", "m5")),
    ("chain-pattern", lambda op: getattr(x(4, 8), op)() * 2.0, ("floor", "m5"), ("floor", "m3")),
    ("chain-pattern", lambda op: 2.0 * getattr(x(4, 8), op)(), ("ceil", "m5"), ("sign", "m5")),
    ("chain-pattern", lambda factor: x(4, 8).round() * factor, (2.0, "m5"), (weight(1, 8), "m5")),
    ("chain-pattern", lambda scale: af.quantize(x(4, 8) * coded(0.0625), scale), (0.125, "m5"), (0.0625, "m5")),
    ("chain-pattern", lambda scale: af.quantize(x(4, 8) * coded(0.0625), scale), (0.125, "m5"), (0.125, "m3")),
    ("chain-pattern", lambda scale: coded(scale) * coded(2.0), (0.5, "m5"), (2.0, "m5")),
    ("chain-pattern", clipped_product, (False, "m5"), (True, "m5")),
    ("grouped-scales", scaled, ((32, 2), "m4"), ((32, 1), "m4")),
    ("grouped-scales", scaled, ((1, 2), "m5"), ((1, 1), "m5")),
    ("grouped-scales", lambda groups: scaled((32, 1), (groups, 1)), (2, "m5"), (1, "m5")),
    ("chain-pattern", lambda groups: scaled((32, groups), (1, 1)), (2, "m5"), (1, "m5")),
    ("chain-pattern", lambda groups: scaled((32, groups), (1, 1)), (2, "m5"), (2, "m3")),
    ("chain-pattern", palettes, (1.0, "m5"), (0.3, "m5")),
    ("chain-pattern", classes, (1, "m5"), (0, "m5")),
    ("chain-pattern", classifier, (2, "m5"), (4, "m5")),
    ("chain-pattern", compared, (False, "m5"), (True, "m5")),
    ("few-queries", step, (3, "m5"), (4, "m5")),
    ("few-queries", step, (1, "m5"), (1, "m3")),
    ("decode-layers", decoder, (31, "m5"), (30, "m5")),
    ("decode-layers", lambda queries: decoder(31, queries), (1, "m5"), (4, "m5")),
    # With the ceilings of the fixture below: thousandths of the published ones.
    ("program-size", lambda n: af.conv(x(1, 1000, 1, 1), weight(n, 1000, 1, 1)), (1501, "m5"), (1500, "m5")),
    ("program-size", lambda n: attending(n, 1000), (355, "m5"), (354, "m5")),
    ("output-channels", lambda n: af.conv(x(1, 4, 1, 8), weight(n, 4, 1, 1)), (65537, "m5"), (65536, "m5")),
    ("state-update", stateful, ("cache", "m5"), ("sum", "m5")),
    ("state-update", stateful, ("cache", "m1"), ("host", "m1")),
    ("state-update", stateful, ("cache", "m1"), ("cache", "m4")),
    ("state-count", states, (3, "m4"), (2, "m4")),
    ("state-count", states, (-2, "m4"), (-1, "m4")),
    ("indexed-write", cache_write, ("ScatterND", "m5"), ("Det", "m5")),
    ("indexed-write", cache_write, ("index_copy", "m1"), ("index_select", "m1")),
    ("overflow", lambda bound: x(4, 8, max_abs=bound).reshape(8, 4).square(), (256, "m5"), (255, "m5")),
    ("overflow", lambda bound: x(4, 8, max_abs=bound).exp(), (12, "m5"), (11, "m5")),
    ("overflow", lambda bound: x(4, 8, max_abs=bound).softplus(), (10.5, "m5"), (10.3, "m5")),
    ("rounding", lambda bound: x(4, 8, max_abs=bound).round(), (1024, "m5"), (1023, "m5")),
    ("int8-activations", int8_product, (4095, "m5"), (4094, "m5")),
    ("accumulator", lambda bound: x(1, 130, max_abs=bound).linear(np.ones((1, 130))), (256, "m1"), (249, "m1")),
    ("integer-sum", coded_sum, (2, "m5"), (1, "m5")),
    ("variance", lambda bound: x(4, 8, max_abs=bound).layer_norm(np.ones(8), np.zeros(8)), (200, "m1"), (100, "m1")),
    ("underflow", lambda bound: x(4, 64, max_abs=bound).rms_norm(np.ones(64), 1e-12), (1e-4, "m5"), (1.0, "m5")),
    ("division", lambda offset: 1.0 / (x(4, 8, max_abs=1.0) + offset), (1.0, "m2"), (1.5, "m2")),
    ("host-op", determinant, ("onnx", "m5"), ("", "m5")),
    ("target-name", lambda n: x(n, n).relu(), (2, "h18c"), (2, "h18")),
    ("slice-saturation", lambda n: x(1, 8)[:, n:], (1, "m1"), (0, "m1")),
    ("slice-saturation", lambda bound: x(1, 8, max_abs=bound)[:, 1:], (4095, "m1"), (4094, "m1")),
    ("op-route", lambda n: af.sort(x(n, 16)), (8, "m1"), (8, "m2")),
    ("mil-floor", lambda n: x(n, n).relu(), (2, "h11"), (2, "h13")),
]

# Rules that a pass of phase 2 raises: the pass comes first.
REACHED_LATER = [
    ("check-floors minimum-family", lambda n: x(1, 8, n, n).amax((1,)), (4, "h11"), (4, "h13")),
    ("check-extents extent", lambda n: x(1, 1, 1, n).relu(), (65536, "u1"), (65535, "u1")),
    (
        "split-kernel-memory kernel-memory",
        lambda n: af.conv(x(1, n, 20, 20), weight(1, n, 13, 13)),
        (3000, "m1"),
        (300, "m1"),
    ),
    (
        "resize-strategies resize-unmapped",
        lambda n: af.resize_bilinear(x(1, n, 4, 4), 7, 7),
        (16385, "m1"),
        (16384, "m1"),
    ),
    (
        "legacy-forms legacy-reshape",
        lambda shape: x(1, 8, 4, 4).reshape(*shape).relu(),
        ((1, 4, 8, 4), "h11"),
        ((1, 128, 1, 1), "h11"),
    ),
    (  # with the limit of the fixture below: nobody wants two gigabytes in a test
        "check-program-size program-size",
        lambda n: af.conv(x(1, n, 1, 1), weight(n, n, 1, 1)),
        (1024, "m5"),
        (512, "m5"),
    ),
    (
        "legacy-forms legacy-broadcast",
        lambda truth: x(1, 8, 1, 4).greater(0.0).tile([1, 1, 4, 1]) if truth else x(1, 8, 1, 4).tile([1, 1, 4, 1]),
        (True, "h11"),
        (False, "h11"),
    ),
    (
        "legacy-forms legacy-divide",
        lambda stored: x(1, 8, 4, 4) / (4.0 if stored else x(1, 8, 4, 4)),
        (False, "h11"),
        (True, "h11"),
    ),
]


def reported(graph, chip):
    """The rules that preflight names in its lists of what fails or may be wrong."""
    name, _, route = chip.partition(" ")
    report = af.preflight(graph, name, route or "conversion")
    entries = (*report.reject, *report.oversize, *report.risk, *report.unknown, *report.placement)
    return {finding.rule for entry in entries for finding in entry.findings}


DIGITS = {"cancellation", "remainder", "infinite-constant"}
"""Losses of digits, which are for ``risks`` to tell."""


def case_ids(cases):
    return [f"{rule} {chip}" for rule, _, (_, chip), _ in cases]


@pytest.fixture
def small_programs(monkeypatch):
    """Ceilings that a test can afford: nobody wants gigabytes here."""

    def forget():
        for cached in (judge._plan, programs.least_ceiling):
            cached.cache_clear()

    for record in rule_records()["program-size"]:
        if "v" in record:
            monkeypatch.setitem(record, "v", record["v"] // 1000)
    forget()
    yield
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize(("rule", "build", "speaks", "silent"), REACHED, ids=case_ids(REACHED))
def test_a_graph_reaches_the_rule_and_one_beside_it_does_not(rule, build, speaks, silent, request):
    if rule == "program-size":
        request.getfixturevalue("small_programs")
    assert rule in reported(build(speaks[0]), speaks[1])
    assert rule not in reported(build(silent[0]), silent[1])


@pytest.mark.usefixtures("small_programs")
@pytest.mark.parametrize(
    ("chip", "width", "words", "core_ml"),
    [
        ("m5", 42, 16384, None),  # 1.38 MB here, for 1.38 GB
        ("m5", 43, 16384, "unknown"),
        ("m5", 57, 16384, "unknown"),
        ("m5", 58, 16384, "cpu"),
        ("m5", 58, 16383, None),  # no head of a vocabulary
        ("m4-max", 45, 16384, "unknown"),
        ("m4-max", 46, 16384, "cpu"),  # L16: a chip that was seen to fail at 1.5 GB
        ("a19-pro", 42, 16384, None),
        ("a19-pro", 43, 16384, "cpu"),
    ],
)
def test_a_decoder_with_its_head_has_a_ceiling_of_its_own_in_core_ml(chip, width, words, core_ml):
    """C88: 1.4 GB were seen to run, 1.9 GB not, and what lies between is unknown but where a chip was seen to fail."""
    report = af.preflight(attending(width, words), chip)
    findings = [finding for entry in (*report.placement, *report.unknown) for finding in entry.findings]
    told = {
        name: finding.verdict for finding in findings for name in finding.runtimes if finding.rule == "program-size"
    }
    assert told.get("coreml") == core_ml
    assert report.ok


@pytest.mark.parametrize(("rule", "build", "speaks", "silent"), REACHED_LATER, ids=case_ids(REACHED_LATER))
def test_a_graph_reaches_the_rule_of_a_pass(rule, build, speaks, silent, monkeypatch):
    run_by, name = rule.split()
    if name == "program-size":
        monkeypatch.setattr(program_size, "constant", lambda _: 1 << 20)

    def direct(chip):
        return f"{chip} direct" if chip == "h11" else chip

    assert name in reported(build(speaks[0]), direct(speaks[1]))
    assert name not in reported(build(silent[0]), direct(silent[1]))
    with pytest.raises(af.CompileError) as error:
        af.compile(build(speaks[0]), target=speaks[1])
    assert (error.value.refused_by, error.value.rule) == (run_by, name)


def test_every_rule_is_reached_or_says_where_else_it_is_known_from():
    """The two sets are apart, and together they are all rules."""
    declared = {("", name): rule.elsewhere for name, rule in RULES.items()}
    declared |= {("" if rule.raised_by == "check" else rule.raised_by, rule.id): rule.elsewhere for rule in RAISED}
    declared |= {("", rule): "" for rule in LOSSES if rule not in DIGITS}
    reached = {("", row[0]) for row in REACHED} | {tuple(row[0].split()) for row in REACHED_LATER}
    elsewhere = {key for key, route in declared.items() if route}
    assert reached | elsewhere == set(declared)
    assert not reached & elsewhere
    used = {*declared.values(), *(pattern.elsewhere for pattern in PATTERNS.values())}
    assert used - {""} == set(UNREACHED)


CALLS = (r"Refused\(\s*op,\s*", r"OpAnswer\(\s*[^,()]*,\s*", r"\b(?:Placement|Number)Finding\(\s*")


def test_the_list_of_raised_rules_is_what_the_code_raises():
    """Names in Refused, OpAnswer and Finding, read from the source."""
    written = set()
    for path in (PACKAGE / "compiler").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for call in CALLS:
            written |= set(re.findall(call + r'"([a-z][a-z0-9-]+)"', text))
    assert written == {rule.id for rule in RAISED}


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("joined-width-slices", lambda: columns(1)),
        ("reduction-times-zero", lambda: x(4, 8).amax(1) * 0.0),
        ("round-then-scale", lambda: 2.0 * x(4, 8).round()),
        ("floor-or-ceil-then-scale", lambda: 2.0 * x(4, 8).ceil()),
        ("square-before-a-function", lambda: x(4, 8).square().sqrt()),
        ("silu-by-name, gated-feed-forward", lambda: gated(8)),
        ("silu-by-name", lambda: x(4, 8).silu()),
        ("scales-along-the-input", lambda: scaled((32, 4))),
        ("palettes-of-codes-in-a-row", lambda: palettes(2.0)),
        ("attention-of-few-queries, softmax-between-products", lambda: step(2)),
        ("attention-of-few-queries, softmax-between-products", masked_step),
        ("softmax-between-products", lambda: decoder(1, 32)),
        ("attention-of-few-queries", lambda: af.sdpa(x(1, 2, 4, 8), x(1, 2, 16, 8), x(1, 2, 16, 8))),
        ("argmax-of-channels", lambda: classes(1)),
        ("argmax-of-channels", lambda: x(4, 8).argmax(0)),
        ("linear-before-hard-swish", lambda: classifier(2)),
        ("test-for-nan", lambda: compared(False)),
        ("attention-over-a-history, attention-of-few-queries", lambda: scores(32768)),
        ("products-of-products-in-a-row", lambda: products(3)),
        ("padded-values-added", lambda: joined(8)),
    ],
)
def test_every_pattern_has_a_graph(name, build):
    assert [match.pattern for match in matched_patterns(Graph([build()]))] == name.split(", ")


def test_every_pattern_is_matched_by_a_graph_or_known_from_elsewhere():
    recorded = {record["pattern"] for records in rule_records().values() for record in records if "pattern" in record}
    assert recorded == set(PATTERNS)
    assert all(bool(pattern.matcher) != bool(pattern.elsewhere) for pattern in PATTERNS.values())
    assert all(pattern.about for pattern in PATTERNS.values())


@pytest.mark.parametrize(
    "build",
    [
        lambda: af.concat([x(6, 6)[:, 3:4], x(6, 1)], 1),
        lambda: x(4, 8).relu() * 0.0,
        lambda: x(4, 8).sum(1) * x(4, 1),
        lambda: (x(4, 8).round() + 1.0) * 2.0,
        lambda: x(4, 8).square().relu(),
        lambda: x(1, 4, 1, 64).softmax(-1),
        lambda: (x(1, 4, 1, 64) * 0.5).softmax(-1),
        lambda: af.matmul(x(4, 8), weight(8, 16)).softmax(-1),
        lambda: (x(8, 4) @ x(4, 8)).softmax(-1) + x(8, 8),
        lambda: x(4, 8).sigmoid_hard(1 / 6, 0.5) * x(4, 8),
        lambda: af.conv(af.conv(x(1, 4, 1, 32), weight(8, 4, 1, 1)).gelu() * x(1, 8, 1, 32), weight(4, 8, 1, 1)),
        lambda: x(4, 8) * x(4, 8).sigmoid(),
        lambda: products(2),
        lambda: x(1, 8, 1, 32) + af.pad(x(1, 4, 1, 32), [(0, 0), (4, 0), (0, 0), (0, 0)]),
    ],
)
def test_what_is_almost_a_pattern_is_none(build):
    assert not list(matched_patterns(Graph([build()])))


def test_a_run_of_convolutions_is_cut_as_often_as_it_must_be():
    graph = Graph([convolutions(10)])
    order = [node.uid for node in graph.nodes if node.op == "conv"]
    cuts = [(order.index(node.uid), length) for node, length in convolution_runs(graph, 3)]
    assert cuts == [(3, 10), (6, 10), (9, 10)]
    broken = Graph([af.conv(convolutions(3).relu(), weight(4, 4, 1, 1))])
    assert not list(convolution_runs(broken, 3))
    long = af.preflight(convolutions(1000), "m6")
    assert [entry.extent for entry in long.oversize] == [1000, 1000]


def test_a_decoder_is_cut_as_often_as_it_must_be():
    graph = Graph([decoder(10)])
    order = [node.uid for node in graph.nodes if node.op == "softmax"]
    cuts = [(order.index(node.uid), length) for node, length in programs.decode_layers(graph, 3)]
    assert cuts == [(3, 10), (6, 10), (9, 10)]
    beside = af.concat([decoder(3), decoder(3)], 3)  # two that do not follow one another
    assert not list(programs.decode_layers(Graph([beside]), 3))
    cut = af.partition(decoder(62), "m5")
    softmaxes = [sum(node.op == "softmax" for node in region.nodes) for region in cut.regions]
    assert ([region.device for region in cut.regions], softmaxes) == (["engine"] * 3, [30, 30, 2])
    assert cut.verdict == "in 3 programs"


def test_no_record_is_dead():
    """Some op on some chip by some route is answered by each record of each rule, and by each answer for an op."""
    chips = {facts_of(chip, rule_reads()) for chip in all_targets()}
    asked = [(chip, route, runtime) for chip in chips for route in ROUTES for runtime in RUNTIMES]
    for name, records in rule_records().items():
        rule = RULES[name]
        named = [op for record in records for op in record.get("ops", ())]
        ops = [*(op for op in rule.ops if op != ANY), *named, "relu", f"{CHAIN}relu"]
        used = []
        for op in (op for op in ops if rule.concerns(op)):
            for chip, route, runtime in asked:
                limits = limits_for(name, op, chip, route, runtime)
                used += [limit.record for limit in (limits if rule.every_record else limits[:1])]
        for record in records:
            assert any(record is other for other in used), record
    for record in store.load("gate_limits")["ops"]:
        alike = [other for other in store.load("gate_limits")["ops"] if other["op"] == record["op"]]
        first = [
            next((other for other in alike if matches(other, record["op"], chip, route, runtime)), None)
            for chip, route, runtime in asked
        ]
        assert any(other is record for other in first), record


def test_no_placeholder_of_the_vendors_is_left_in_what_users_read():
    texts = [rule.template for rule in RULES.values()]
    texts += [str(value) for records in rule_records().values() for record in records for value in record.values()]
    assert not [text for text in texts if re.search(r"%(zd|zu|s|d|u|lu|lld)\b", text)]
