"""``compress.advise``: which stored form of the weights to take on each chip, by each way to the engine.

Every encoding is tried in all layers that can have it, whether the chip streams it or folds it to fp16, and beside
them the mixture of forms that ``tune_precision`` finds. Bytes and flows are read from compiled programs, times from
the cost model, errors from the simulator, and what stays on the engine from the rules that ``check`` asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from aneforge.arguments import Chips, Source
from aneforge.codecs.calibrated import Moments, output_error
from aneforge.compress.layers import Layer, layers_of, moments_of
from aneforge.compress.metrics import Metric, metric_of
from aneforge.compress.placements import Placement, kept_off_anywhere, placements
from aneforge.compress.quantise import Range, quantised_site, ranges_of
from aneforge.compress.records import FP16, Advice, ChipAdvice, LayerOption, LayerRow, Option, Recommendation
from aneforge.compress.storage import DEFAULT_ENCODINGS, Storage, is_worth_encoding, storage_of, stream_evidence
from aneforge.compress.streaming import streams_of
from aneforge.errors import ArgumentError
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.inputs import samples_of
from aneforge.output.progress import Progress
from aneforge.process import quiet_collector
from aneforge.rewrites.rewrite import Rewrite, Scene, Site, applied, scene_of
from aneforge.sim.inputs import SEED
from aneforge.study.partition import Partition
from aneforge.study.runtimes import DEFAULT_RUNTIMES, Runtime, runtimes_of
from aneforge.study.study import Study, refuse_constant
from aneforge.tuning.checking import Checker
from aneforge.tuning.line import DEFAULT_ERROR, Line
from aneforge.tuning.pricing import Change, changes_of, timed_whole
from aneforge.tuning.stored_forms import stored_site

__all__ = ["METHODS", "advise"]

METHODS = ("plain", "calibrated")
MIXED = "mixed"
_MOST_SAMPLES = 32  # of a calibration that are used
_DRAWN = 4


def advise(
    model: Source,
    target: Chips = None,
    calibration: Any = None,
    runtimes: str | Iterable[str] = DEFAULT_RUNTIMES,
    encodings: Iterable[str] | None = None,
    metric: str | Metric | None = None,
    *,
    method: str = "plain",
    sparsity: float | None = 0.5,
    target_error: float = DEFAULT_ERROR,
    mode: str = "fast",
    samples: int | None = None,
    seed: int | None = None,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
    progress: Progress | None = None,
) -> Advice:
    """Weigh the stored forms of a model's weights on each chip and by each runtime, and choose one.

    ``calibration`` is an ``.npz`` file or arrays with samples of the inputs (32 at most are used); without it numbers
    are drawn from ``seed``. ``encodings`` are names such as ``int8``, ``int4`` (a palette of 16), ``sparse`` and
    ``blockwise``. ``method`` ``calibrated`` fits the weights to the first half of the samples and measures errors on
    the other half. ``sparsity`` is the share of zeros that the sparse form makes; None makes none. The choice is the
    fastest option whose largest error is at most ``target_error``. ``metric`` is ``top1``, ``rmse`` or a function of
    the outputs and the fp16 outputs. ``mode`` is that of :func:`aneforge.run`.
    """
    study = Study(model, target, dims=dims, function=function)
    graph, chips = study.graph, study.chips
    refuse_constant(graph)
    question = _question(encodings, runtimes, method, sparsity, target_error, mode, metric)
    fit, judge = _samples(graph, calibration, seed, samples, method)
    layers = layers_of(graph, is_worth_encoding)
    if not layers:
        question = replace(question, encodings=())  # the report says that there is nothing to compress
    steps = _Steps(progress, len(chips) * (len(question.encodings) + 2) + 1)
    steps.next("the inputs of each layer")
    coded = any(storage.activations for storage in question.encodings)
    ranges = ranges_of(graph, layers, fit) if coded else {}
    weights = _Weights(question, layers, moments_of(graph, layers, fit), ranges)
    results: dict[str, ChipAdvice] = {}
    refused: dict[str, str] = {}
    with quiet_collector():
        for name, split in study.timed().items():
            if split.runs:
                asked = study.with_chips([name])
                results[name] = _ChipAdviser(asked, name, question, weights, judge, steps).advice()
            else:
                refused[name] = split.nothing_runs().problem
    steps.end()
    if not results:
        raise ArgumentError("model", next(iter(refused.values())))
    basis = {
        "samples": len(judge),
        "fitted_on": len(fit),
        "held_out": fit is not judge,
        "seed": None if calibration is not None else SEED if seed is None else seed,
        "mode": mode,
        "method": method,
        "sparsity": sparsity,
        "target_error": target_error,
    }
    return Advice(results, study.name, basis, refused)


@dataclass(frozen=True)
class _Question:
    encodings: tuple[Storage, ...]
    runtimes: tuple[Runtime, ...]
    calibrated: bool
    sparsity: float | None
    target_error: float
    mode: str
    metric: Metric | None


def _question(
    encodings: Iterable[str] | None,
    runtimes: str | Iterable[str],
    method: str,
    sparsity: float | None,
    target_error: float,
    mode: str,
    metric: str | Metric | None,
) -> _Question:
    if method not in METHODS:
        raise ArgumentError("method", f"{method!r} is not a method; choose one: {', '.join(METHODS)}.")
    if mode not in ("fast", "exact"):
        raise ArgumentError("mode", f"{mode!r} is not a mode; choose one: fast, exact.")
    if sparsity is not None and not (_is_number(sparsity) and 0 < sparsity < 1):
        raise ArgumentError("sparsity", f"{sparsity!r} is not a share of zeros; give a number between 0 and 1.")
    if not _is_number(target_error) or not 0 <= target_error < float("inf"):
        raise ArgumentError("target_error", f"{target_error!r} is not an error; give a number of 0 or more.")
    if isinstance(encodings, str):
        encodings = [name.strip() for name in encodings.split(",")]
    names = tuple(dict.fromkeys(DEFAULT_ENCODINGS if encodings is None else encodings))
    if not names:
        raise ArgumentError("encodings", f"the list is empty; name some, for instance {', '.join(DEFAULT_ENCODINGS)}.")
    storages = tuple(map(storage_of, names))
    chosen = tuple(runtimes_of(runtimes))
    return _Question(storages, chosen, method == "calibrated", sparsity, target_error, mode, metric_of(metric))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _samples(
    graph: Graph, calibration: Any, seed: int | None, samples: int | None, method: str
) -> tuple[list[dict[str, np.ndarray]], list[dict[str, np.ndarray]]]:
    """Samples to fit to and samples to judge by: the same ones where nothing is fitted, or there is only one."""
    count = _DRAWN if calibration is None and samples is None else samples
    listed = list(islice(samples_of(graph, calibration, seed, count), _MOST_SAMPLES))
    if not listed:
        raise ArgumentError("calibration", "it holds no sample. Give arrays with one more axis than the inputs.")
    if method == "plain" or len(listed) == 1:
        return listed, listed
    half = (len(listed) + 1) // 2
    return listed[:half], listed[half:]


class _Steps:
    """Counts what is done for somebody who waits."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def next(self, what: str) -> None:
        if self._progress is not None:
            self._progress(self._done, self._total, what)
        self._done += 1

    def end(self) -> None:
        if self._progress is not None:
            self._progress(self._total, self._total, "")


class _Weights:
    """The weights of all layers in each form, written once for all chips."""

    def __init__(
        self,
        question: _Question,
        layers: Sequence[Layer],
        moments: dict[int, Moments],
        ranges: Mapping[int, Range],
    ) -> None:
        self.layers, self.ranges = layers, ranges
        self.by_node = {layer.node.uid: layer for layer in layers}
        self._written: dict[tuple[int, str], Encoded] = {}
        self._errors: dict[tuple[int, str], float] = {}
        for layer in layers:  # all forms of a layer together: its moments are large, and are then dropped
            own = moments.pop(layer.node.uid)
            for storage in question.encodings:
                if storage.fits(layer.weight):
                    key = layer.node.uid, storage.name
                    fitted = own if question.calibrated else None
                    self._written[key] = storage.write(layer.weight, fitted, question.sparsity)
                    self._errors[key] = output_error(layer.weight, self._written[key].decode(), own)

    def stored(self, layer: Layer, storage: Storage) -> Encoded:
        return self._written[layer.node.uid, storage.name]

    def error(self, layer: Layer, storage: Storage) -> float | None:
        """Of the layer's own outputs; the moments know nothing of the rounding of inputs."""
        return None if storage.activations else self._errors[layer.node.uid, storage.name]

    def form(self, storage: Storage) -> Rewrite:
        """The form as a rewrite, for those that price and apply rewrites."""

        pairs: dict[int, Tensor] = {}

        def find(node: Tensor, scene: Scene) -> Site | None:
            layer = self.by_node.get(node.uid)
            if layer is None or not storage.fits(layer.weight):
                return None
            if storage.activations:
                reach = self.ranges[layer.form.x.uid]
                return quantised_site(layer, lambda: self.stored(layer, storage), reach, pairs, traits=reach)
            traits = self.stored(layer, storage).stored_bytes if storage.name == "sparse" else None
            return stored_site(node, layer.form, lambda: self.stored(layer, storage), traits=traits)

        return Rewrite("encoding", storage.name, f"The weights of a layer stored as {storage.name}.", find)


class _ChipAdviser:
    """The options of one chip."""

    def __init__(
        self,
        study: Study,
        label: str,
        question: _Question,
        weights: _Weights,
        judge: Sequence[Mapping[str, np.ndarray]],
        steps: _Steps,
    ) -> None:
        self.study, self.graph, self.chip = study, study.graph, study.targets[0]
        self.split, self.estimate = timed_whole(study)
        self.label, self.question, self.weights, self.steps = label, question, weights, steps
        flops = sum(layer.flops for layer in self.estimate.layers)
        self.check = Checker(self.split, flops, samples=judge, mode=question.mode)
        self.changes: dict[str, list[Change]] = {}
        self.streams: dict[str, dict[str, bool]] = {}
        self.graphs: dict[str, Graph] = {FP16: self.graph}
        self.fp16: Mapping[str, Placement] = {}

    def advice(self) -> ChipAdvice:
        options = [self._fp16(), *map(self._everywhere, self.question.encodings)]
        self.steps.next(f"{self.label}: a form for each layer")
        options += self._mixtures(options)
        recommended = {
            runtime.name: _recommendation(options, runtime, self.question.target_error)
            for runtime in self.question.runtimes
        }
        rows = tuple(map(self._row, self.weights.layers))
        measured = self.estimate.basis.measured
        chosen = tuple(self.question.runtimes)
        return ChipAdvice(self.chip, tuple(options), rows, chosen, recommended, measured, self.graphs)

    def _fp16(self) -> Option:
        self.steps.next(f"{self.label}: {FP16}")
        option = self._option(FP16, self.graph, {}, "")
        self.fp16 = option.placements
        return option

    def _everywhere(self, storage: Storage) -> Option:
        """One form in every layer that can have it."""
        self.steps.next(f"{self.label}: {storage.name}")
        form, scene = self.weights.form(storage), scene_of(self.graph, self.chip)
        self.changes[storage.name] = changes_of(self.study, [form])
        found = [form.find(layer.node, scene) for layer in self.weights.layers]
        sites = [site for site in found if site is not None]
        forms = {self.weights.by_node[site.node.uid].name: storage.name for site in sites}
        graph = applied(self.graph, sites) if sites else self.graph
        known = stream_evidence(storage, self.chip)
        return self._option(storage.name, graph, forms, known.confidence or "")

    def _option(self, name: str, graph: Graph, forms: Mapping[str, str], confidence: str) -> Option:
        self.graphs[name] = graph
        split = self.split if graph is self.graph else self._compiled(graph)
        streams = streams_of(split, forms)
        if name != FP16:
            self.streams[name] = streams
        changed = self.study.with_graph(graph)
        placed = {
            runtime.name: placements(changed, runtime, self._fp16_by(runtime))[self.label]
            for runtime in self.question.runtimes
        }
        same = graph is self.graph
        outputs = self.check.expected if same else self.check.outputs(split)
        metric = self.question.metric
        return Option(
            name=name,
            forms=forms,
            stored_bytes=sum(self._stored_bytes(layer, forms) for layer in self.weights.layers),
            program_bytes=sum(w.stored_bytes for program in split.programs.values() for w in program.weights),
            streaming=sum(streams.values()),
            folding=len(streams) - sum(streams.values()),
            confidence=confidence,
            check=self.check.compared(outputs),
            metric=None if metric is None else metric(outputs, self.check.expected),
            placements=placed,
            warning=kept_off_anywhere(changed) if forms else "",
        )

    def _fp16_by(self, runtime: Runtime) -> dict[str, Placement]:
        known = self.fp16.get(runtime.name)
        return {} if known is None else {self.label: known}

    def _compiled(self, graph: Graph) -> Partition:
        """The partition whose bytes and numbers count: that of the direct way where conversion refuses a layer for its
        weights, so that they are known nevertheless."""
        study = self.study.with_graph(graph)
        split, untouched = study.partition(), self.study.partition()
        if split.ops - split.on_engine <= untouched.ops - untouched.on_engine:
            return split
        return study.by_route("direct").partition()

    def _stored_bytes(self, layer: Layer, forms: Mapping[str, str]) -> int:
        form = forms.get(layer.name)
        return 2 * layer.weight.size if form is None else self.weights.stored(layer, storage_of(form)).stored_bytes

    def _mixtures(self, options: Sequence[Option]) -> list[Option]:
        """The line of forms from exact to fast, as far as the error allows, for each set of forms that a runtime
        streams. A mixture that has one form everywhere is there already."""
        lines: dict[frozenset[str], list[Runtime]] = {}
        base = options[0]
        for runtime in self.question.runtimes:
            usable = frozenset(
                option.name for option in options[1:] if option.streaming and _is_usable(option, base, runtime.name)
            )
            if usable:
                lines.setdefault(usable, []).append(runtime)
        found: list[Option] = []
        for usable, runtimes in lines.items():
            changes = [change for name, own in self.changes.items() if name in usable for change in own]
            line = Line(self.study.by(runtimes[0]), self.check, changes=changes)
            choice = line.within_error(self.question.target_error)
            forms = {self.weights.by_node[uid].name: step.form for uid, step in choice.items()}
            if forms and not any(dict(option.forms) == forms for option in (*options, *found)):
                name = MIXED if not found else f"{MIXED} {len(found) + 1}"
                found.append(self._option(name, line.at(choice)[0].graph, forms, ""))
        return found

    def _row(self, layer: Layer) -> LayerRow:
        prices = {
            (storage, site.node.uid): (was, will)
            for storage, changes in self.changes.items()
            for change in changes
            for site, was, will in zip(change.sites, change.before, change.after, strict=True)
        }
        listed = []
        for storage in self.question.encodings:
            if not storage.fits(layer.weight):
                continue
            was, will = prices.get((storage.name, layer.node.uid), (None, None))
            size = self.weights.stored(layer, storage).stored_bytes
            streams = self.streams[storage.name].get(layer.name)
            listed.append(LayerOption(storage.name, size, streams, will, was, self.weights.error(layer, storage)))
        return LayerRow(layer.name, layer.node.op, layer.weight.shape, 2 * layer.weight.size, tuple(listed))


def _is_usable(option: Option, base: Option, runtime: str) -> bool:
    """Whether an option has a known time by a runtime and takes nothing off the engine."""
    place, was = option.placements.get(runtime), base.placements[runtime]
    return place is not None and place.us is not None and place.on_engine >= was.on_engine


def _recommendation(options: Sequence[Option], runtime: Runtime, limit: float) -> Recommendation:
    """The fastest option within the error; of equal ones the smallest program, then the least error."""
    base, name = options[0], runtime.name
    usable = [option for option in options if _is_usable(option, base, name)]
    within = [option for option in usable if option.check.error <= limit] or [base]

    def rank(option: Option) -> tuple[float, int, float]:
        return _us(option.placements[name]), option.program_bytes, option.check.error

    best = min(within, key=rank)
    before, after = _us(base.placements[name]), _us(best.placements[name])
    faster = [o for o in usable if o.check.error > limit and _us(o.placements[name]) < after]
    return Recommendation(
        best.name,
        before,
        after,
        best.program_bytes / max(1, base.program_bytes),
        best.check.error,
        limit,
        tuple((option.name, option.check.error) for option in faster),
    )


def _us(place: Placement) -> float:
    return float("inf") if place.us is None else place.us
