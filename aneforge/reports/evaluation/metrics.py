"""Metrics: what one sample scores, what a data set scores, with which interval, and whether two differ.

A sample scores a short vector; a data set scores a function of the vectors' sum. So parts of a data set can be done
anywhere, in any order, and every interval and test below resamples the same vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, inf, isfinite, log10, sqrt
from typing import Any, cast

import numpy as np

from aneforge.errors import AneforgeError, first_line, nearest
from aneforge.formats.arguments import value_in_file
from aneforge.reports.evaluation.data import SampleError
from aneforge.sim.compare import QUANTILE, share_interval
from aneforge.study.comparison import score_axis

Array = np.ndarray
Outputs = Mapping[str, Array]

CONFIDENCE = 0.95
_DRAWS = 2000
_SEED = 40
_TIE = 1e-14  # of a figure: the rounding of its sums, which must not tell equal draws apart
_EXACT_UP_TO = 1000  # pairs that differ: binomial sums beyond use the normal distribution


@dataclass(frozen=True)
class SampleAnswer:
    """What one run gave for a sample, and what it is measured against."""

    outputs: Outputs
    label: Any
    reference: Outputs | None
    """What the float reference gave."""

    @property
    def first(self) -> Array:
        return np.asarray(next(iter(self.outputs.values())))


@dataclass(frozen=True)
class Metric:
    """How samples are scored. ``finish`` makes the figure of the sum of ``count`` vectors."""

    name: str
    needs: str
    """``labels``, ``reference`` or nothing."""
    score: Callable[[SampleAnswer], Sequence[float]]
    finish: Callable[[Array, int], float]
    is_share: bool = False
    """Whether every sample is right or wrong."""


@dataclass(frozen=True)
class Score:
    """A figure of a data set and its interval (95 per cent)."""

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float | None]:
        return {name: value if isfinite(value) else None for name, value in self.__dict__.items()}


@dataclass(frozen=True)
class PairedTest:
    """The difference of two figures over the same samples, its interval, and how likely one at least as large is where
    nothing differs but chance."""

    difference: float
    low: float
    high: float
    p: float

    def to_json(self) -> dict[str, float | None]:
        return {name: value if isfinite(value) else None for name, value in self.__dict__.items()}


# The metrics by name.


def class_of(output: Array) -> int | None:
    """The class that a list of scores says; None where an output is no such list."""
    axis = score_axis(output.shape)
    return None if axis is None or output.size != output.shape[axis] else int(_scores(output).argmax())


def _scores(output: Array) -> Array:
    """In float64; what is not a number is the least."""
    wide = output.reshape(-1).astype(np.float64)
    return np.where(np.isnan(wide), -inf, wide)


def _is_among(first: int) -> Callable[[SampleAnswer], Sequence[float]]:
    def score(answer: SampleAnswer) -> Sequence[float]:
        scores, label = _scores(answer.first), answer.label
        if class_of(answer.first) is None:
            shape = list(answer.first.shape)
            raise AneforgeError(f"top{first}: the first output {shape} is not one list of scores; use another metric.")
        number = np.asarray(label)
        if number.size != 1 or number.dtype.kind not in "iu" or not 0 <= int(number.reshape(())) < scores.size:
            raise SampleError(
                f"label {number.tolist()!r} is not a class; expected a whole number from 0 to {scores.size - 1}"
            )
        own = int(number.reshape(()))
        # As argmax breaks ties: of equal scores the first comes first.
        before = int((scores > scores[own]).sum() + (scores[:own] == scores[own]).sum())
        return [float(before < first)]

    return score


def _flat(outputs: Outputs) -> Array:
    return np.concatenate([np.asarray(value).reshape(-1).astype(np.float64) for value in outputs.values()])


def _cosine(answer: SampleAnswer) -> Sequence[float]:
    """Numbers that are not finite count as zero, so that a lost output lowers the figure."""
    assert answer.reference is not None
    one, two = (np.where(np.isfinite(part), part, 0.0) for part in (_flat(answer.outputs), _flat(answer.reference)))
    size = sqrt(float(one @ one)) * sqrt(float(two @ two))
    return [float(one @ two) / size if size else float(not one.any() and not two.any())]


def _square_error(answer: SampleAnswer) -> Sequence[float]:
    """The mean square error over the square of the peak: against the label where there is one, else the reference."""
    want = _flat({"label": answer.label}) if answer.label is not None else _flat(answer.reference or {})
    have = _flat(answer.outputs) if answer.label is None else answer.first.reshape(-1).astype(np.float64)
    if want.size != have.size:
        raise SampleError(f"label has {want.size} numbers; the output has {have.size}")
    peak = float(np.abs(want).max(initial=0.0)) or 1.0
    gap = np.where(np.isfinite(have), have, 0.0) - want
    return [float(gap @ gap) / gap.size / peak**2]


def _overlaps(answer: SampleAnswer) -> Sequence[float]:
    """Of every class: pixels that are its own in both, and in one of both."""
    output = answer.first
    axis = 1 if output.ndim > 3 else 0
    if output.ndim < 3:
        raise AneforgeError(f"miou: the first output {list(output.shape)} is not a map of scores; use another metric.")
    classes, guessed = output.shape[axis], np.nan_to_num(output.astype(np.float64)).argmax(axis).reshape(-1)
    label = np.asarray(answer.label)
    if label.dtype.kind not in "iu" or label.size != guessed.size:
        raise SampleError(f"label has shape {list(label.shape)}; expected class numbers of {guessed.size} pixels")
    want = label.reshape(-1).astype(np.int64)
    known = (want >= 0) & (want < classes)  # 255 and the like: not labelled
    want, guessed = want[known], guessed[known]
    both = np.bincount(want[want == guessed], minlength=classes)
    union = np.bincount(want, minlength=classes) + np.bincount(guessed, minlength=classes) - both
    return [*both.astype(float), *union.astype(float)]


def _mean(total: Array, count: int) -> float:
    return float(total[0]) / count


def _decibel(total: Array, count: int) -> float:
    return -10 * log10(total[0] / count) if total[0] else inf


def _mean_overlap(total: Array, count: int) -> float:
    both, union = np.split(total, 2)
    seen = union > 0
    return float((both[seen] / union[seen]).mean()) if seen.any() else 0.0


METRICS: dict[str, Metric] = {
    "top1": Metric("top1", "labels", _is_among(1), _mean, True),
    "top5": Metric("top5", "labels", _is_among(5), _mean, True),
    "cosine": Metric("cosine", "reference", _cosine, _mean),
    "psnr": Metric("psnr", "", _square_error, _decibel),
    "miou": Metric("miou", "labels", _overlaps, _mean_overlap),
}


def metric_of_plan(name: str) -> Metric:
    """A metric as the plan of an evaluation names it. Figures of the user's own are means of what is written down: its
    file is not run, which is a stranger's where the plan is."""
    return Metric(name, "", _no_score, _mean) if ".py:" in name else metric_of(name)


def _no_score(answer: SampleAnswer) -> Sequence[float]:
    raise SampleError(f"{answer.label}: a metric of a plan scores no samples; give it to aneforge evaluate by name")


def metric_of(name: str) -> Metric:
    """A metric by its name, or the user's own: ``own.py:function`` of outputs by name, the label and the reference's
    outputs (None without one), which returns a number."""
    if ".py:" in name:
        return _own(name)
    if name not in METRICS:
        near = ", ".join(nearest(name, METRICS) or METRICS)
        raise AneforgeError(f"metric {name!r} is unknown; choose one: {near}, or own.py:function.")
    return METRICS[name]


def _own(spec: str) -> Metric:
    function = value_in_file(spec)
    if not callable(function):
        raise AneforgeError(f"metric {spec}: expected a function of outputs, label and reference.")

    def score(answer: SampleAnswer) -> Sequence[float]:
        try:
            value = float(cast(Any, function)(dict(answer.outputs), answer.label, answer.reference))
        except Exception as error:  # the user's own function
            raise SampleError(f"metric {spec} failed: {type(error).__name__}: {first_line(error)}") from None
        if not isfinite(value):
            raise SampleError(f"metric {spec} gave {value}; a score must be a finite number")
        return [value]

    return Metric(spec, "", score, _mean)


# A data set's figure and interval.


def score_of(metric: Metric, rows: Array) -> Score:
    """The figure over all samples (rows of vectors). Shares have Wilson's interval, other figures that of a bootstrap
    whose seed is fixed."""
    count = len(rows)
    value = metric.finish(rows.sum(axis=0), count)
    if metric.is_share:
        return Score(value, *share_interval(value, count))
    if count < 2:
        return Score(value, value, value)
    drawn = [metric.finish(weights @ rows, count) for weights in _resampled(count)]
    return Score(value, *_ends(drawn))


def _resampled(count: int) -> Any:
    rng = np.random.default_rng(_SEED)
    for _ in range(_DRAWS):
        yield np.bincount(rng.integers(0, count, count), minlength=count).astype(np.float64)


def _ends(drawn: Sequence[float]) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="inverted_cdf")
    return float(low), float(high)


def paired_test(metric: Metric, first: Array, second: Array) -> PairedTest:
    """Whether ``second`` differs from ``first`` over the same samples: McNemar's exact test for shares, else a test
    that swaps the two at random. Its interval is that of a bootstrap of pairs."""
    count = len(first)
    one, two = first.sum(axis=0), second.sum(axis=0)
    ends = metric.finish(two, count), metric.finish(one, count)
    difference = _gap(*ends)
    changed = np.flatnonzero((first != second).any(axis=1))
    if not changed.size:
        return PairedTest(0.0, 0.0, 0.0, 1.0)
    if metric.is_share:
        won = int((second[:, 0] > first[:, 0]).sum())
        p = _sign_test(won, changed.size)
        spread = sqrt(max(0.0, changed.size / count - difference**2) / count)
        return PairedTest(difference, difference - QUANTILE * spread, difference + QUANTILE * spread, p)
    rng, reached, tie = np.random.default_rng(_SEED), 0, _TIE * max(map(abs, ends))
    apart = second[changed] - first[changed]
    for _ in range(_DRAWS):
        moved = (rng.integers(0, 2, changed.size).astype(np.float64)) @ apart
        swapped = _gap(metric.finish(two - moved, count), metric.finish(one + moved, count))
        reached += abs(swapped) >= abs(difference) - tie
    drawn = [_gap(metric.finish(w @ second, count), metric.finish(w @ first, count)) for w in _resampled(count)]
    return PairedTest(difference, *_ends(drawn), (reached + 1) / (_DRAWS + 1))


def _gap(two: float, one: float) -> float:
    return 0.0 if two == one else two - one


def _sign_test(won: int, count: int) -> float:
    """Twice the chance of at most as few wins, or losses, of fair coins."""
    fewer = min(won, count - won)
    if count > _EXACT_UP_TO:
        from math import erfc

        return min(1.0, erfc((count / 2 - fewer - 0.5) / sqrt(count / 2)))
    return min(1.0, 2 * sum(comb(count, k) for k in range(fewer + 1)) / 2**count)
