"""Kernels, strides and windows beyond a chip's caps: each form is the op within its bound, and the chip takes it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aneforge as af
from aneforge.compiler.compile import resolve_target
from aneforge.compiler.legal.passes import rewritten_for
from aneforge.graph import Graph, evaluate

QUICK = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)
CHIPS = ("h13", "h14", "h15", "h17s", "h18g")


def kernel(*shape):
    return np.random.default_rng(1).normal(0, 0.1, shape).astype(np.float16)


def rewrites(out, chip):
    return [record.rewrite for record in rewritten_for(Graph.of(out), resolve_target(chip)).records]


def check(out, x, chips=CHIPS):
    """The rewritten graph gives the numbers of the op in float64, no rule refuses it, and it is stable."""
    data = np.random.default_rng(2).normal(size=x.shape).astype(np.float16).astype(np.float64)
    (want,) = evaluate([out], {x: data})
    seen = set()
    for chip in chips:
        draft = rewritten_for(Graph.of(out), resolve_target(chip))
        seen |= {record.rewrite for record in draft.records}
        if draft.records:
            (got,) = evaluate(list(draft.graph.outputs), {x: data})
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-11 * max(1.0, np.abs(want).max()))
            assert rewritten_for(draft.graph, resolve_target(chip)).records == []
        route = "direct" if chip == "h12" else "conversion"
        report = af.preflight(out, chip, route)
        assert report.ok, str(report)
        assert [entry.rewrite for entry in report.decompose if entry.rewrite in seen] == [
            record.rewrite for record in draft.records
        ]
    return seen


@given(st.data())
@QUICK
def test_convolutions_of_any_size(data):
    """Strides, dilation, groups, bias and paddings that do not fit, on kernels up to three times the cap."""
    draw = data.draw
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    height, width = draw(st.integers(1, 34)), draw(st.integers(1, 40))
    stride = draw(st.tuples(st.integers(1, 17), st.integers(1, 17)) | st.integers(1, 17).map(lambda s: (s, s)))
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 3)]))
    pad = draw(st.tuples(*[st.integers(0, 9)] * 4))
    reach = [rate * (size - 1) + 1 for rate, size in zip(dilation, (height, width), strict=True)]
    shape = [max(1, reach[i] - pad[2 * i] - pad[2 * i + 1]) + draw(st.integers(0, 30)) for i in (0, 1)]
    x = af.input((draw(st.integers(1, 2)), 2 * groups, *shape))
    bias = np.linspace(-1, 1, 3 * groups).astype(np.float16) if draw(st.booleans()) else None
    out = af.conv(x, kernel(3 * groups, 2, height, width), stride, pad, dilation, groups, bias)
    check(out, x)


@given(st.data())
@QUICK
def test_transposed_convolutions_of_any_size(data):
    draw = data.draw
    groups = draw(st.sampled_from([1, 2]))
    size = draw(st.tuples(st.integers(1, 20), st.integers(1, 40)))
    stride = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 3)]))
    shape = draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    full = [(shape[i] - 1) * stride[i] + dilation[i] * (size[i] - 1) + 1 for i in (0, 1)]
    pad = [draw(st.integers(0, min(11, (full[i] - 1) // 2))) for i in (0, 0, 1, 1)]
    x = af.input((draw(st.integers(1, 2)), 2 * groups, *shape))
    bias = np.linspace(-1, 1, 3 * groups).astype(np.float16) if draw(st.booleans()) else None
    check(af.conv_transpose(x, kernel(2 * groups, 3, *size), stride, pad, dilation, groups, bias), x)


@given(st.data())
@QUICK
def test_max_pools_of_any_size(data):
    draw = data.draw
    size = draw(st.tuples(st.integers(1, 20), st.integers(1, 30)))
    stride = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    pad = [draw(st.integers(0, size[i] - 1)) for i in (0, 0, 1, 1)]
    shape = [max(1, size[i] - pad[2 * i] - pad[2 * i + 1]) + draw(st.integers(0, 20)) for i in (0, 1)]
    x = af.input((1, 2, *shape))
    check(x.max_pool(size, stride, pad, draw(st.booleans())), x, ("h13", "h17s", "h18g"))


PATCHES = [(16, "h13", "patch-blocks"), (14, "h15", "patch-blocks"), (32, "h17s", "patch-blocks"), (16, "h17s", None)]


@pytest.mark.parametrize(("size", "chip", "name"), PATCHES)
def test_patches_of_vision_transformers(size, chip, name):
    """C16: 13 columns is the widest kernel of h13 to h15; 16 x 16 compiles on A16 and stays as it is (M6.disp)."""
    x = af.input((1, 3, 2 * size, 3 * size))
    out = af.conv(x, kernel(8, 3, size, size), size)
    assert rewrites(out, chip) == ([] if name is None else [name])
    check(out, x, ("h12", *CHIPS))


AUDIO = {
    "wav2vec2 positions": ((1, 32, 1, 49), (32, 2, 1, 128), 1, (0, 0, 64, 64), 16, "kernel-pieces"),
    "conformer": ((1, 12, 1, 50), (12, 1, 1, 31), 1, (0, 0, 15, 15), 12, "kernel-pieces"),
    "a spectrogram": ((1, 1, 1, 1600), (40, 1, 1, 400), (1, 160), 0, 1, "patch-blocks"),
    "a learned filter bank": ((1, 1, 1, 800), (8, 1, 1, 251), (1, 10), 0, 1, "patch-blocks"),
    "a large kernel by channel": ((1, 4, 40, 40), (4, 1, 31, 31), 1, 15, 4, "kernel-pieces"),
}


@pytest.mark.parametrize("case", AUDIO)
def test_wide_kernels_of_audio_models(case):
    shape, size, stride, pad, groups, name = AUDIO[case]
    x = af.input(shape)
    out = af.conv(x, kernel(*size), stride, pad, 1, groups)
    assert rewrites(out, "h13") == [name]
    assert check(out, x) == {name}


def test_what_a_chip_takes_stays_as_it_is():
    """13 columns and 29 rows are measured to compile on an M1 (G17), 15 columns and 31 rows on an M4 (M6.disp)."""
    x = af.input((1, 4, 40, 40))
    for chip, size in (("h13", (29, 13)), ("h15", (31, 13)), ("h17s", (31, 15))):
        assert rewrites(af.conv(x, kernel(4, 4, *size)), chip) == []
        for more in ((size[0] + 1, size[1]), (size[0], size[1] + 1)):
            assert rewrites(af.conv(x, kernel(4, 4, *more)), chip) == ["kernel-pieces"]


def test_a_kernel_that_arrives_at_run_time_is_refused_as_before():
    x, weight = af.input((1, 2, 1, 40)), af.input((2, 2, 1, 20))
    report = af.preflight(af.dynamic_conv(x, weight), "m1")
    assert [entry.rule for entry in report.oversize] == ["conv-kernel-width"]


def test_no_part_reads_inside_the_width():
    """Such a slice clamps large values on A13 and A14 (C22), so a rewrite must not bring one in."""
    x = af.input((1, 4, 3, 60))
    draft = rewritten_for(Graph.of(af.conv(x, kernel(4, 4, 1, 40))), resolve_target("h13"))
    slices = [node for node in draft.graph.nodes if node.op == "slice_by_size"]
    assert slices
    assert all(node.attrs["begin"][-1] == 0 for node in slices)


def test_the_numbers_of_a_run():
    """Through the whole compiler and the simulator, against the reference."""
    x = af.input((1, 3, 32, 32), name="x")
    out = af.conv(x, kernel(8, 3, 16, 16), 16, bias=kernel(8)).relu().named("y")
    data = np.random.default_rng(3).normal(size=x.shape).astype(np.float16)
    (want,) = evaluate([out], {x: data.astype(np.float64)})
    got = np.asarray(af.compile(out, target="m1").run({"x": data}).outputs["y"], np.float64)
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)
