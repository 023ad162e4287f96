"""Weights fitted to a layer's inputs: on inputs that the fit never saw, outputs are nearer than by plain encoders."""

from __future__ import annotations

import numpy as np
import pytest

import aneforge as af
from aneforge.graph.codecs.calibrated import (
    Compensation,
    Moments,
    calibrated_affine,
    calibrated_blockwise,
    calibrated_palette,
    compensated,
    kept_by_magnitude,
    kept_in_all,
    output_error,
    pruned,
    searched_scales,
)
from aneforge.graph.codecs.encoding import encode
from aneforge.graph.codecs.palettes import palette_table
from aneforge.graph.encoding import Encoded

OUTPUTS, DEPTH = 48, 64


def correlated(seed: int, rows: int = 600) -> np.ndarray:
    """Inputs as networks have them: a few directions carry most, and some inputs are far larger than others."""
    mixing = np.random.default_rng(1).normal(size=(12, DEPTH)) * np.geomspace(0.1, 4, DEPTH)
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 12)) @ mixing + 0.1 * rng.normal(size=(rows, DEPTH))


def weight(seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(4, size=(OUTPUTS, DEPTH)).astype(np.float16)


def error_on(numbers: np.ndarray, stored: Encoded, inputs: np.ndarray) -> float:
    """The relative error of the outputs, computed outright."""
    want, have = inputs @ numbers.astype(float).T, inputs @ stored.decode().T
    return float(np.linalg.norm(have - want) / np.linalg.norm(want))


PAIRS = {
    "int8": (lambda w: encode(w, "int8"), calibrated_affine),
    "int4-affine": (
        lambda w: Encoded.affine(
            np.clip(np.rint(w / (np.abs(w).max(1, keepdims=True) / 7)), -7, 7).astype(np.int8),
            np.abs(w).max(1) / 7,
            axis=0,
            bits=4,
        ),
        lambda w, moments: calibrated_affine(w, moments, bits=4),
    ),
    "lut4": (lambda w: encode(w, "lut4"), lambda w, moments: calibrated_palette(w, moments, 4)),
    "lut6": (lambda w: encode(w, "lut6"), lambda w, moments: calibrated_palette(w, moments, 6)),
    "blockwise": (lambda w: encode(w, "blockwise"), calibrated_blockwise),
    "sparse": (lambda w: pruned(w, 0.5), lambda w, moments: pruned(w, 0.5, moments)),
}


@pytest.mark.parametrize("form", PAIRS)
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_outputs_of_unseen_inputs_are_nearer_than_with_the_plain_encoder(form, seed):
    plain, calibrated = PAIRS[form]
    numbers, unseen = weight(seed), correlated(101)
    fitted = calibrated(numbers, Moments.of_inputs(correlated(100)))
    assert (fitted.form, fitted.bits, fitted.shape) == (plain(numbers).form, plain(numbers).bits, numbers.shape)
    assert fitted.stored_bytes <= plain(numbers).stored_bytes
    assert error_on(numbers, fitted, unseen) < 0.9 * error_on(numbers, plain(numbers), unseen)


@pytest.mark.parametrize("form", PAIRS)
def test_each_part_helps_alone_where_only_the_diagonal_is_known(form):
    """Without the matrix nothing is compensated: the search of scales, tables and masks is what is left."""
    plain, calibrated = PAIRS[form]
    numbers, moments = weight(), Moments.of_inputs(correlated(100))
    stored = calibrated(numbers, Moments(moments.diagonal))
    gap = (stored.decode() - numbers) ** 2 @ moments.diagonal[0]
    assert gap.sum() <= ((plain(numbers).decode() - numbers) ** 2 @ moments.diagonal[0]).sum()


def test_the_error_by_moments_is_that_of_the_inputs_themselves():
    inputs, numbers = correlated(100), weight()
    stored = encode(numbers, "lut4")
    told = output_error(numbers, stored.decode(), Moments.of_inputs(inputs))
    assert told == pytest.approx(error_on(numbers, stored, inputs), rel=1e-9)


def test_groups_have_their_own_inputs():
    rng = np.random.default_rng(0)
    parts = [Moments.of_inputs(correlated(seed)) for seed in (100, 200)]
    both = Moments(*(np.concatenate(pair) for pair in zip(*((p.diagonal, p.matrix) for p in parts), strict=True)), 600)
    numbers = rng.normal(size=(2 * OUTPUTS, DEPTH)).astype(np.float16)
    whole = calibrated_affine(numbers, both)
    for group, moments in enumerate(parts):
        own = slice(group * OUTPUTS, (group + 1) * OUTPUTS)
        np.testing.assert_array_equal(calibrated_affine(numbers[own], moments).codes, whole.codes[own])


def test_few_inputs_without_any_relation_are_not_trusted():
    """Of 32 rows of noise the matrix is chance, of correlated inputs it is not."""
    noise = Moments.of_inputs(np.random.default_rng(0).normal(size=(32, DEPTH))).trusted
    real = Moments.of_inputs(correlated(100, rows=32))
    places = ~np.eye(DEPTH, dtype=bool)
    assert np.abs(noise.matrix[0][places]).max() < 0.1
    np.testing.assert_allclose(real.trusted.matrix[0][places], real.matrix[0][places], rtol=0.5)
    np.testing.assert_array_equal(real.trusted.diagonal, real.diagonal)


def test_compensation_by_hand():
    """Two inputs that are always equal: what the first loses, the second has to give."""
    matrix = np.array([[1.0, 1.0], [1.0, 1.0]])
    rounded = compensated(np.array([[0.4, 0.4]]), Compensation(matrix), lambda column, place: np.rint(column))
    assert rounded.sum() == 1.0  # 0.8 in all: one number alone would give 0


def test_a_scale_clips_an_outlier_that_no_input_meets():
    row = np.concatenate([np.linspace(-1, 1, 64), [16.0]])[None]
    met = np.ones_like(row)
    ignored = met.copy()
    ignored[0, -1] = 0.0
    assert searched_scales(row, ignored, 7)[0] < searched_scales(row, met, 7)[0]


def test_a_table_lies_where_the_weight_is():
    values = np.linspace(-1, 1, 101).astype(np.float16)
    table = palette_table(values, 2, importance=np.where(values > 0.5, 100.0, 1.0))
    np.testing.assert_array_equal(table, table.astype(np.float16))
    assert (np.diff(table) > 0).all()
    assert (table > 0.5).sum() > 1 == (palette_table(values, 2) > 0.5).sum()


@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.63, 0.9])
def test_the_share_of_zeros_is_met_exactly(sparsity):
    numbers = weight()
    kept = kept_by_magnitude(numbers, sparsity)
    assert (~kept).sum() == round(sparsity * numbers.size)
    if sparsity > 0:
        assert np.abs(numbers[~kept]).max() <= np.abs(numbers[kept]).min()
    assert pruned(numbers, sparsity, Moments.of_inputs(correlated(100))).codes.size <= kept.sum()


def test_layers_that_matter_less_lose_more():
    flat, peaked = np.ones((8, 64)), np.full((8, 64), 0.01)
    peaked[:, 0] = 10.0
    masks = kept_in_all([flat, peaked], 0.4)
    assert sum((~mask).sum() for mask in masks) == round(0.4 * 1024)
    assert masks[0].mean() > masks[1].mean()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: calibrated_affine(np.full((4, DEPTH), np.nan), m), "256 of 256 numbers are NaN or infinite"),
        (lambda m: calibrated_palette(np.ones((4, 3)), m), "of 1 groups of 64 inputs"),
        (lambda m: calibrated_blockwise(np.ones((4, DEPTH)), m, 48), "64 inputs do not divide into blocks of 48"),
        (lambda m: pruned(np.ones((4, DEPTH)), 1.0, m), "sparsity is 1.0; it is the share of zeros"),
    ],
)
def test_what_cannot_be_fitted_is_refused(call, words):
    with pytest.raises(af.GraphError, match=words):
        call(Moments.of_inputs(correlated(100)))


def test_weights_that_nothing_meets_are_still_stored():
    numbers = weight()
    numbers[0] = 0
    silent = Moments.of_inputs(np.zeros((4, DEPTH)))
    for _, calibrated in PAIRS.values():
        assert np.isfinite(calibrated(numbers, silent).decode()).all()
