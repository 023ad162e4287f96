"""Products and convolutions with weights that are laid out once, against the plain forms: the same bits on every path,
or no answer where a sum might leave the range."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aneforge as af
from aneforge.sim import convolution, native
from aneforge.sim.engine import Engine
from aneforge.sim.half import Window, patches_plain
from aneforge.sim.mac import accumulate_plain, products
from aneforge.sim.rules import planar
from aneforge.sim.rules.moves import clamping
from aneforge.sim.stored import convolution_form, matrix_form

pytestmark = pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")

PATHS = native.paths()
EVERY = np.arange(65536, dtype=np.uint16).view(np.float16)
SIZES = [(1, 1, 1), (1, 40, 70), (2, 33, 31), (3, 600, 33), (4, 64, 16), (5, 513, 17), (8, 32, 32), (13, 1030, 65)]
SIZES += [(40, 7, 300), (129, 31, 5)]
SAME, STRIDED = {"before": (1, 1), "after": (1, 1)}, {"stride": (2, 2), "before": (1, 1), "after": (1, 1)}
CONVOLUTIONS = [
    (5, 3, (9, 11), Window((3, 3), **SAME)),
    (33, 16, (14, 14), Window((3, 3), **STRIDED)),
    (9, 70, (7, 7), Window((3, 3), **SAME)),
    (16, 8, (6, 5), Window((1, 1))),
    (16, 8, (9, 8), Window((1, 1), (2, 2))),
    (4, 3, (30, 31), Window((7, 7), (2, 2), before=(3, 3), after=(3, 3))),
    (4, 3, (20, 23), Window((3, 2), (1, 3), (2, 2), before=(2, 0), after=(1, 2))),
    (3, 2, (1, 40), Window((1, 3))),
    (2, 200, (3, 3), Window((3, 3))),
]
DEPTHWISE = [
    (5, 1, (9, 11), Window((3, 3), **SAME)),
    (3, 2, (14, 15), Window((3, 3), **STRIDED)),
    (4, 1, (30, 31), Window((5, 5), (1, 1), (2, 2), before=(4, 4), after=(4, 4))),
    (4, 3, (7, 7), Window((3, 3), **SAME)),
    (8, 1, (6, 2), Window((1, 2))),
    (2, 1, (1, 1), Window((1, 1))),
    *((3, 1, (4, width), Window((3, 3), **SAME)) for width in (30, 31, 32, 33, 64)),  # blocks of 16, whole and cut
    *((3, 1, (5, width), Window((3, 3), **STRIDED)) for width in (30, 31, 32, 33, 64)),
    (3, 1, (9, 50), Window((3, 3), (1, 2), before=(1, 1), after=(1, 1))),
    (3, 1, (9, 50), Window((3, 3), (2, 1), before=(1, 1), after=(1, 1))),
    (3, 1, (9, 52), Window((3, 2), (3, 3), (2, 2), before=(2, 2), after=(0, 1))),
    (2, 1, (3, 5), Window((3, 3), (2, 2), before=(20, 20), after=(20, 20))),
]


def numbers(rng, shape, scale, zeros=0.3):
    drawn = (rng.standard_normal(shape) * scale).astype(np.float16)
    drawn[rng.random(shape) < zeros] = 0
    return drawn


def halves(rng, shape, fields):
    """Random significands and signs, with exponent fields from a range; some zeros of both signs."""
    bits = rng.integers(0, 1024, shape) | rng.integers(*fields, shape) << 10 | rng.integers(0, 2, shape) << 15
    bits[rng.random(shape) < 0.1] &= 0x8000
    return bits.astype(np.uint16).view(np.float16)


def bits_equal(found, want, message=""):
    assert found is not None, message
    assert found.dtype == want.dtype
    found, want = (np.ascontiguousarray(part).view(np.uint8) for part in (found, want))
    np.testing.assert_array_equal(found, want, err_msg=message)


def plain(a, b, bias=None):
    with np.errstate(all="ignore"):
        return accumulate_plain(a, b, bias).settled_plain()


def plain_convolution(x, kernel, bias, window, groups=1):
    plane, outputs, inputs = window.outputs(x.shape[1:]), len(kernel) // groups, len(x) // groups
    parts = []
    for group in range(groups):
        read = patches_plain(x[group * inputs : (group + 1) * inputs], window, 0, plane[0])
        own = slice(group * outputs, (group + 1) * outputs)
        start = None if bias is None else bias[own, None]
        parts.append(plain(kernel[own].reshape(outputs, -1), read, start).reshape(outputs, *plane))
    return np.concatenate(parts)


# Products.


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", [1.0, 0.05, 1e-3, 1e-5])
def test_a_stored_matrix_gives_the_sums_of_the_plain_form(path, size, scale):
    """From no dropped product to nearly all of them."""
    rows, depth, columns = size
    rng = np.random.default_rng(rows + depth)
    a, lines = numbers(rng, (rows, depth), scale), numbers(rng, (columns, depth), 0.7)
    stored = native.store_matrix(lines, path=path)
    for bias in (None, numbers(rng, columns, 3.0), numbers(rng, 1, 3.0, 0)):
        want = plain(a, np.ascontiguousarray(lines.T), bias)
        for workers in (1, 3):
            bits_equal(native.multiply(a, stored, bias, workers=workers), want, f"{path} {workers}")
    swapped = native.store_matrix(a, path=path)
    bits_equal(native.multiply(lines, swapped, None), plain(lines, np.ascontiguousarray(a.T)))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("fields", [((0, 12), (0, 12)), ((0, 6), (4, 18)), ((5, 9), (4, 10)), ((0, 17), (0, 12))])
def test_every_exponent_around_the_limit_of_dropping(path, fields):
    """Subnormals, sums of exponents on both sides of -17, and ties of products."""
    rng = np.random.default_rng(fields[0][1])
    for rows, depth, columns in ((9, 260, 40), (3, 70, 33), (16, 40, 64)):
        a, b = halves(rng, (rows, depth), fields[0]), halves(rng, (depth, columns), fields[1])
        a[:, ::5] = np.float16(2.0**-9)  # times odd multiples of powers of two: ties
        want = plain(a, b)
        bits_equal(native.multiply(a, native.store_matrix(b.T, path=path), None), want)
        bits_equal(native.products_inside(a[None], b[None], path=path), want[None])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("limit", [0.2, 1.0, 3.0, 5.0, 7.0, 7.9])
def test_stretches_of_every_length(path, limit):
    """Sums of one sign that grow as fast as their bound, and products up to 62."""
    rng = np.random.default_rng(9)
    depth = 260 if limit < 7.5 else 500
    a = (limit * (1 - rng.random((9, depth)) / 64)).astype(np.float16)
    b = (limit * (1 - rng.random((depth, 33)) / 64)).astype(np.float16)
    for sign in (1, -1):
        bits_equal(native.multiply(a, native.store_matrix(sign * b.T, path=path), None), plain(a, sign * b))


@pytest.mark.parametrize("path", PATHS)
def test_sums_up_to_the_ceiling_and_none_beyond_it(path):
    """The bound of 32 thousand and a bias is below 2^15; that of 1024 products of 32 is not."""
    a = np.full((1, 1024), 32.0, np.float16)
    column = np.ones((1024, 3), np.float16)
    a[:, 1000:] = 0
    bias = np.array([700.0, 750.0, -750.0], np.float16)
    found = native.multiply(a, native.store_matrix(column.T, path=path), bias)
    bits_equal(found, plain(a, column, bias))
    a[:, 1000:] = 32
    assert native.multiply(a, native.store_matrix(column.T, path=path), None) is None
    form = matrix_form(Engine.of(af.target("m4")), column.T)
    bits_equal(form(a, None), plain(a, column))
    assert np.isinf(form(a, None)).all()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 65504.0])
def test_infinities_and_products_too_large_get_no_answer(path, bad):
    rng = np.random.default_rng(3)
    a, lines = numbers(rng, (9, 40), 1.0), numbers(rng, (20, 40), 1.0)
    x, kernel = numbers(rng, (3, 6, 7), 1.0), numbers(rng, (4, 3, 3, 3), 1.0)
    for fast in (False, True) if not np.isfinite(bad) else (False,):
        for of_data in (False, True):
            some, matrix, image, weights = (part.copy() for part in (a, lines, x, kernel))
            (some if of_data else matrix)[3, 3] = (image if of_data else weights)[1, 2, 2] = bad
            window = Window((3, 3))
            stored = native.store_kernels([weights.reshape(4, -1)], path=path)
            assert native.multiply(some, native.store_matrix(matrix, path=path), None, fast) is None
            assert native.products_inside(some[None], matrix.T.copy()[None], fast, path=path) is None
            assert native.convolve(stored, image, window, None, fast) is None
            narrow = weights[:3, :1].reshape(1, 3, -1).copy()
            narrow[0, 1, 5] = narrow[0, 1, 5] if of_data else bad
            assert native.depthwise(narrow, image, window, None, fast, path=path) is None
    engine = Engine.of(af.target("m4"))
    matrix = lines.copy()
    matrix[3, 3] = bad
    bits_equal(matrix_form(engine, matrix)(a, None), plain(a, np.ascontiguousarray(matrix.T)))


def test_stacks_are_their_products():
    rng = np.random.default_rng(4)
    a, b = numbers(rng, (5, 7, 20), 0.2), numbers(rng, (5, 20, 37), 1.0)
    bits_equal(native.products_inside(a, b), np.stack([plain(*pair) for pair in zip(a, b, strict=True)]))


# Convolutions.


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", range(len(CONVOLUTIONS)))
def test_stored_kernels_give_the_sums_of_the_plain_form(path, case):
    outputs, inputs, extent, window = CONVOLUTIONS[case]
    rng = np.random.default_rng(case)
    for scale in (0.2, 1e-4):
        x, kernel = numbers(rng, (inputs, *extent), 1.0), numbers(rng, (outputs, inputs, *window.size), scale, 0.1)
        for bias in (None, numbers(rng, outputs, 1.0)):
            want = plain_convolution(x, kernel, bias, window)
            stored = native.store_kernels([kernel.reshape(outputs, -1)], path=path)
            for workers in (1, 3):
                bits_equal(native.convolve(stored, x, window, bias, workers=workers), want, f"{path} {workers}")
            bits_equal(
                native.convolve(stored, x[:, ::-1, ::-1], window, bias),
                plain_convolution(np.ascontiguousarray(x[:, ::-1, ::-1]), kernel, bias, window),
            )


def plain_winograd(x, kernel, bias, window, groups, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("ANEFORGE_NATIVE", "0")
        native.settings.cache_clear()
        around = ((0, 0), *zip(window.before, window.after, strict=True))
        tiles = convolution.winograd_kernels(kernel, groups)
        want = convolution.winograd(np.pad(x, around), tiles, bias)
    native.settings.cache_clear()
    return want


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("extent", [(9, 11), (4, 4), (7, 7), (3, 40), (20, 35)])
@pytest.mark.parametrize("taps", [1, 3])
def test_the_winograd_form_is_the_plain_one(path, extent, taps, monkeypatch):
    rng = np.random.default_rng(extent[1])
    for inputs, scale in ((3, 0.3), (40, 1e-3)):
        window = Window((taps, 3), before=(taps // 2, 1), after=(taps // 2, 1))
        x, kernel = numbers(rng, (inputs, *extent), 1.0), numbers(rng, (10, inputs, taps, 3), scale, 0)
        x[0, 0, :3] = 2.0**-24, -(2.0**-24), 2.0**-14
        for bias in (None, numbers(rng, 10, 1.0)):
            want = plain_winograd(x, kernel, bias, window, 1, monkeypatch)
            parts = [part.reshape(10, -1) for part in convolution.winograd_kernels(kernel)[0]]
            bits_equal(native.convolve(native.store_kernels(parts, path=path), x, window, bias), want)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", range(len(DEPTHWISE)))
@pytest.mark.parametrize("scale", [1.0, 1.6, 1e-3])
def test_depthwise_convolutions_are_the_plain_ones(path, case, scale, monkeypatch):
    channels, each, extent, window = DEPTHWISE[case]
    rng = np.random.default_rng(case)
    x, kernel = numbers(rng, (channels, *extent), scale), numbers(rng, (channels * each, 1, *window.size), scale)
    kernel[:, :, 0] *= np.float16(1e-3)
    matrix = kernel.reshape(1, channels * each, -1)
    for bias in (None, numbers(rng, channels * each, 1.0)):
        for workers in (1, 3):
            found = native.depthwise(matrix, x, window, bias, path=path, workers=workers)
            bits_equal(found, plain_convolution(x, kernel, bias, window, channels))
        if convolution.winograd_fits(window):
            parts = convolution.winograd_kernels(kernel)[0]
            stacked = np.stack([part.reshape(channels * each, -1) for part in parts])
            want = plain_winograd(x, kernel, bias, window, channels, monkeypatch)
            bits_equal(native.depthwise(stacked, x, window, bias, path=path), want)


@settings(max_examples=60)
@given(st.data())
def test_any_window_of_a_stored_kernel(data):
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    edge = st.tuples(st.integers(0, 3), st.integers(0, 3))
    window = Window(*(data.draw(pair) for _ in range(3)), data.draw(edge), data.draw(edge))
    need = [window.dilation[i] * (window.size[i] - 1) + 1 - window.before[i] - window.after[i] for i in (0, 1)]
    extent = [data.draw(st.integers(max(1, least), max(1, least) + 9)) for least in need]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    groups = data.draw(st.sampled_from([1, 2, 4]))
    x, kernel = numbers(rng, (4, *extent), 1.0), numbers(rng, (8, 4 // groups, *window.size), 0.5)
    engine = Engine.of(af.target("m4"))
    found = convolution_form(engine, kernel, window, groups, False)(x, None)
    bits_equal(found, plain_convolution(x, kernel, None, window, groups), f"{window}")


def test_a_kernel_of_any_order_in_memory_is_taken():
    rng = np.random.default_rng(2)
    x, kernel = numbers(rng, (8, 6, 5), 1.0), numbers(rng, (3, 2, 1, 8), 1.0).T
    form = convolution_form(Engine.of(af.target("m4")), kernel, Window((2, 3)), 8, False)
    bits_equal(form(x, None), plain_convolution(x, np.ascontiguousarray(kernel), None, Window((2, 3)), 8))


def test_a_layer_near_the_ceiling_gives_the_general_form_its_turn():
    rng = np.random.default_rng(5)
    x, kernel = numbers(rng, (8, 6, 6), 150.0), numbers(rng, (4, 8, 3, 3), 150.0)
    for groups, weights in ((1, kernel), (8, numbers(rng, (8, 1, 3, 3), 150.0))):
        form = convolution_form(Engine.of(af.target("m4")), weights, Window((3, 3)), groups, False)
        want = plain_convolution(x, weights, None, Window((3, 3)), groups)
        assert np.isinf(want).any()
        bits_equal(form(x, None), want)


# The fast mode.


@pytest.mark.parametrize("path", PATHS)
def test_fast_sums_are_single_precision_ones_in_one_order(path):
    rng = np.random.default_rng(6)
    for rows, depth, columns in ((1, 700, 130), (4, 33, 40), (40, 1100, 65)):
        a, lines = numbers(rng, (rows, depth), 1.0), numbers(rng, (columns, depth), depth**-0.5)
        stored, bias = native.store_matrix(lines, path=path), numbers(rng, columns, 1.0)
        found = native.multiply(a, stored, bias, fast=True, workers=1)
        bits_equal(native.multiply(a, stored, bias, fast=True, workers=3), found)
        want = a.astype(np.float64) @ lines.T.astype(np.float64) + bias
        np.testing.assert_allclose(found.astype(np.float64), want, rtol=2.0**-11, atol=1e-5)
    for outputs, inputs, extent, window in CONVOLUTIONS:
        x, kernel = numbers(rng, (inputs, *extent), 1.0), numbers(rng, (outputs, inputs, *window.size), 0.1)
        stored = native.store_kernels([kernel.reshape(outputs, -1)], path=path)
        read = patches_plain(x, window, 0, window.outputs(extent)[0]).astype(np.float64)
        want = (kernel.reshape(outputs, -1).astype(np.float64) @ read).reshape(outputs, *window.outputs(extent))
        found = native.convolve(stored, x, window, None, fast=True)
        np.testing.assert_allclose(found.astype(np.float64), want, rtol=2.0**-11, atol=1e-5)
        once = native.depthwise(
            np.ones((1, inputs, window.size[0] * window.size[1])).astype(np.float16), x, window, None, True, path=path
        )
        assert once.shape == (inputs, *window.outputs(extent))


def test_fast_sums_are_infinite_from_the_ceiling_on():
    a, lines = np.full((1, 8), 64.0, np.float16), np.full((3, 8), 64.0, np.float16)
    lines[1, 0], lines[2] = 63.5, -64
    found = native.multiply(a, native.store_matrix(lines), None, fast=True)
    assert found.tolist() == [[np.inf, 32736.0, -np.inf]]


# Lines and clamps.


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("count", [1, 7, 32, 100, 770])
def test_softmax_and_layer_norm_of_lines_are_those_of_numpy(path, count, monkeypatch):
    rng = np.random.default_rng(count)
    engine = Engine.of(af.target("m1"))
    rule = planar.PLANAR["layer_norm"]

    def results(x, axis):
        shape = tuple(count if place == axis else 1 for place in range(5))
        op = _Attributes({"axes": (axis,), "epsilon": 1e-5})
        draw = np.random.default_rng(axis)
        gain, start = numbers(draw, shape, 1.0), numbers(draw, shape, 1.0)
        yield planar.weighed(engine, x, (axis,))
        for operands in ((), (gain,), (None, start), (gain, start)):
            yield rule(engine, op, x, *operands)

    cases = []
    for axis, shape in ((4, (1, 2, 3, 1, count)), (2, (1, 2, count, 3, 7)), (3, (1, 1, 1, count, 16))):
        maps = [numbers(rng, shape, scale) for scale in (1e-4, 1.0, 300.0)]
        cases += [(x, axis) for x in (*maps, EVERY[rng.integers(0, 65536, shape)])]
    monkeypatch.setenv("ANEFORGE_NATIVE_PATH", path)
    native.settings.cache_clear()
    found = [list(results(*case)) for case in cases]
    monkeypatch.setenv("ANEFORGE_NATIVE", "0")
    native.settings.cache_clear()
    for case, one in zip(cases, found, strict=True):
        for mine, other in zip(one, results(*case), strict=True):
            bits_equal(mine, other)


class _Attributes:
    """An op, as far as a norm reads it."""

    def __init__(self, attrs):
        self.attrs = attrs

    def __getitem__(self, name):
        return self.attrs[name]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "ends", [(0.0, 6.0), (-0.0, 1.1), (-1.0, 0.0), (-3.3, np.inf), (-np.inf, 70000.0), (2.0, 1.0)]
)
def test_clamps_keep_every_number_between_their_ends(path, ends, monkeypatch):
    low, high = ends
    x = af.input((1, 1, 256, 256), name="x")
    module = af.compile(x.clip(0.0, 6.0).named("y"), target="m5").program.module
    op = next(op for op in module.ops if op.kind == "clamped_relu")
    op.attrs["min_val"], op.attrs["max_val"] = low, high
    monkeypatch.setenv("ANEFORGE_NATIVE_PATH", path)
    native.settings.cache_clear()
    found = clamping(op)(EVERY)
    monkeypatch.setenv("ANEFORGE_NATIVE", "0")
    native.settings.cache_clear()
    bits_equal(found, clamping(op)(EVERY))


# Models.


@pytest.mark.parametrize("chip", ["m1", "m5"])
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_model_gives_the_same_without_the_library(chip, mode, monkeypatch):
    rng = np.random.default_rng(7)
    x = af.input((1, 16, 10, 10), name="x")
    y = af.conv(x, numbers(rng, (24, 16, 3, 3), 0.1), pad=1).relu()
    y = af.conv(y, numbers(rng, (24, 1, 3, 3), 0.4), pad=1, groups=24, stride=2).relu6()
    y = y.reshape(24, 25) @ af.const(numbers(rng, (25, 30), 0.2))
    model = af.compile(y.softmax(-1).named("y"), target=chip, mode=mode)
    data = numbers(rng, (1, 16, 10, 10), 1.0)
    found = model(data)
    monkeypatch.setenv("ANEFORGE_NATIVE", "0")
    native.settings.cache_clear()
    if mode == "exact":
        bits_equal(model(data), found)
    np.testing.assert_allclose(model(data).astype(float), found.astype(float), rtol=0.01, atol=1e-4)


@pytest.fixture(autouse=True)
def _settings_are_read_again():
    native.settings.cache_clear()
    yield
    native.settings.cache_clear()


# Machines.


@pytest.mark.parametrize(
    ("compiler", "runner", "paths"),
    [("cc", [], PATHS[1:]), ("aarch64-linux-gnu-gcc", ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"], ["neon"])],
    ids=["this machine", "arm64"],
)
def test_every_path_has_the_bits_of_the_portable_one(compiler, runner, paths, tmp_path):
    if not shutil.which(compiler) or not all(shutil.which(name) for name in runner[:1]):
        pytest.skip(f"{' '.join([compiler, *runner[:1]])} not installed")
    folder = Path(native.__file__).parent
    sources = [folder / name for name in ("crew.c", "mac.c", "packed.c", "planar.c")]
    flags = ["-std=c11", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-pthread"]
    program = tmp_path / "paths"
    command = [compiler, *flags, "-o", program, Path(__file__).parent / "native_paths.c", *sources, "-lm"]
    subprocess.run(list(map(str, command)), check=True, timeout=200)
    done = subprocess.run([*runner, str(program)], capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout.split()) == (0, paths), done.stdout + done.stderr


def test_a_map_in_bands_of_rows_is_the_whole(monkeypatch):
    """A map that is larger than what is laid out at a time (LAID_NUMBERS), against the kernel that has no bands."""
    rng = np.random.default_rng(11)
    x, kernel, bias = numbers(rng, (9, 700, 701), 1.0), numbers(rng, (4, 9, 3, 3), 0.3), numbers(rng, 4, 1.0)
    for window in (Window((3, 3), **SAME), Window((3, 3), **STRIDED)):
        want = convolution.direct(x, [kernel.reshape(4, -1)], bias, window, products)
        bits_equal(native.convolve(native.store_kernels([kernel.reshape(4, -1)]), x, window, bias), want)
    around = ((0, 0), *zip(*SAME.values(), strict=True))
    tiles = convolution.winograd_kernels(kernel)
    stored = native.store_kernels([part.reshape(4, -1) for part in tiles[0]])
    want = convolution.winograd(np.pad(x, around), tiles, bias)
    bits_equal(native.convolve(stored, x, Window((3, 3), **SAME), bias), want)
