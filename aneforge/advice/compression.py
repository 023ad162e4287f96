"""``advise_weights``: which stored form of the weights to take on each chip, by each way to the engine.

Every encoding is tried in all layers that can have it, whether the chip streams it or folds it to fp16, and beside
them the mixture of forms that ``tune_precision`` finds. Bytes and flows are read from compiled programs, times from
the cost model, errors from the simulator, and what stays on the engine from the rules that ``check`` asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aneforge.advice.calibration import (
    Range,
    check_method,
    moments_of,
    quantised_site,
    ranges_of,
    some_samples,
)
from aneforge.advice.checking import Checker, Metric, metric_of
from aneforge.advice.compression_options import (
    ChipWeightAdvice,
    LayerForms,
    LayerInForm,
    Recommendation,
    WeightAdvice,
    WeightOption,
)
from aneforge.advice.form_search import form_proposals
from aneforge.advice.precision import DEFAULT_ERROR, FormLine
from aneforge.advice.proposals import Proposal, context_on, timed
from aneforge.advice.stored import FP16, RuntimePlacement, placements, stored_model, stream_evidence
from aneforge.compiler.storage import DEFAULT_STORAGES, Storage, encodable_layers, storage_of
from aneforge.errors import ArgumentError
from aneforge.formats.arguments import Chips, Source
from aneforge.graph.codecs.calibrated import Moments, output_error
from aneforge.graph.encoding import Encoded
from aneforge.graph.forms import FormContext, OtherForm, Site, applied
from aneforge.graph.graph import Graph
from aneforge.graph.layer_forms import StoredLayer
from aneforge.graph.tensor import Tensor
from aneforge.process import quiet_collector
from aneforge.progress import Progress, Steps
from aneforge.sim.inputs import SEED
from aneforge.study.partition import Partition
from aneforge.study.placement import DEFAULT_RUNTIMES, Runtime, runtimes_of
from aneforge.study.study import Study, refuse_constant

MIXED = "mixed"
_DRAWN = 4


def advise_weights(
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
) -> WeightAdvice:
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
    layers = encodable_layers(graph)
    if not layers:
        question = replace(question, encodings=())  # the report says that there is nothing to compress
    steps = Steps(progress, len(chips) * (len(question.encodings) + 2) + 1)
    steps.next("the inputs of each layer")
    coded = any(storage.activations for storage in question.encodings)
    ranges = ranges_of(graph, layers.values(), fit) if coded else {}
    weights = _Weights(question, layers, moments_of(graph, layers.values(), fit), ranges)
    results: dict[str, ChipWeightAdvice] = {}
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
    return WeightAdvice(results, study.name, basis, refused)


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
    check_method(method)
    if mode not in ("fast", "exact"):
        raise ArgumentError("mode", f"{mode!r} is not a mode; choose one: fast, exact.")
    if sparsity is not None and not (_is_number(sparsity) and 0 < sparsity < 1):
        raise ArgumentError("sparsity", f"{sparsity!r} is not a share of zeros; give a number between 0 and 1.")
    if not _is_number(target_error) or not 0 <= target_error < float("inf"):
        raise ArgumentError("target_error", f"{target_error!r} is not an error; give a number of 0 or more.")
    if isinstance(encodings, str):
        encodings = [name.strip() for name in encodings.split(",")]
    names = tuple(dict.fromkeys(DEFAULT_STORAGES if encodings is None else encodings))
    if not names:
        raise ArgumentError("encodings", f"the list is empty; name some, for instance {', '.join(DEFAULT_STORAGES)}.")
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
    listed = some_samples(graph, calibration, seed, count)
    if not listed:
        raise ArgumentError("calibration", "it holds no sample. Give arrays with one more axis than the inputs.")
    if method == "plain" or len(listed) == 1:
        return listed, listed
    half = (len(listed) + 1) // 2
    return listed[:half], listed[half:]


class _Weights:
    """The weights of all layers in each form, written once for all chips."""

    def __init__(
        self,
        question: _Question,
        layers: Mapping[str, StoredLayer],
        moments: dict[int, Moments],
        ranges: Mapping[int, Range],
    ) -> None:
        self.layers, self.ranges = layers, ranges
        self.names = {layer.node.uid: name for name, layer in layers.items()}
        self._written: dict[tuple[str, str], Encoded] = {}
        self._errors: dict[tuple[str, str], float] = {}
        for name, layer in layers.items():  # all forms together: a layer's moments are large, and are then dropped
            own = moments.pop(layer.node.uid)
            for storage in question.encodings:
                if storage.fits(layer.weight):
                    key = name, storage.name
                    fitted = own if question.calibrated else None
                    self._written[key] = storage.write(layer.weight, fitted, question.sparsity)
                    self._errors[key] = output_error(layer.weight, self._written[key].decode(), own)

    def stored(self, layer: str, storage: Storage) -> Encoded | None:
        """None where the layer cannot have the form."""
        return self._written.get((layer, storage.name))

    def error(self, layer: str, storage: Storage) -> float | None:
        """Of the layer's own outputs; the moments know nothing of the rounding of inputs."""
        return None if storage.activations else self._errors[layer, storage.name]

    def form(self, storage: Storage) -> OtherForm:
        """The form of the graph's layers, for those that price and apply forms."""
        pairs: dict[int, Tensor] = {}

        def find(node: Tensor, context: FormContext) -> Site | None:
            name = self.names.get(node.uid, "")
            stored = self.stored(name, storage)
            if stored is None:
                return None
            layer = self.layers[name]
            if storage.activations:
                codes = self.ranges[layer.x.uid]
                return quantised_site(layer, lambda: stored, codes, pairs, traits=codes)
            return layer.stored_as(lambda: stored, traits=stored.stored_bytes if storage.name == "sparse" else None)

        return OtherForm("encoding", storage.name, f"The weights of a layer stored as {storage.name}.", find)


class _ChipAdviser:
    """The options of one chip."""

    def __init__(
        self,
        study: Study,
        label: str,
        question: _Question,
        weights: _Weights,
        judge: Sequence[Mapping[str, np.ndarray]],
        steps: Steps,
    ) -> None:
        self.study, self.graph, self.chip = study, study.graph, study.targets[0]
        self.split, self.estimate = timed(study)
        self.label, self.question, self.weights, self.steps = label, question, weights, steps
        self.check = Checker(self.split, self.estimate, judge, question.mode)
        self.proposals: dict[str, list[Proposal]] = {}
        self.options: dict[str, WeightOption] = {}
        self._times: dict[str, dict[int, tuple[float, float]]] = {}
        self.graphs: dict[str, Graph] = {}

    def advice(self) -> ChipWeightAdvice:
        self.steps.next(f"{self.label}: {FP16}")
        self._add(FP16, self.graph, {}, "")
        for storage in self.question.encodings:
            self.steps.next(f"{self.label}: {storage.name}")
            self._add_everywhere(storage)
        self.steps.next(f"{self.label}: a form for each layer")
        self._add_mixtures()
        options = tuple(self.options.values())
        chosen = {
            runtime.name: _recommendation(options, runtime, self.question.target_error)
            for runtime in self.question.runtimes
        }
        rows = tuple(map(self._row, self.weights.layers))
        fitted = self.estimate.basis.fitted
        return ChipWeightAdvice(self.chip, options, rows, self.question.runtimes, chosen, fitted, self.graphs)

    def _add_everywhere(self, storage: Storage) -> None:
        """One form in every layer that can have it."""
        form, context = self.weights.form(storage), context_on(self.graph, self.chip)
        self.proposals[storage.name] = form_proposals(self.study, [form])
        places = (form.find(layer.node, context) for layer in self.weights.layers.values())
        sites = [site for site in places if site is not None]
        forms = {self.weights.names[site.node.uid]: storage.name for site in sites}
        graph = applied(self.graph, sites) if sites else self.graph
        self._add(storage.name, graph, forms, stream_evidence(storage, self.chip).confidence or "")

    def _add(self, name: str, graph: Graph, forms: Mapping[str, str], confidence: str) -> None:
        """An option: its graph compiled, timed by each runtime and simulated."""
        same = graph is self.graph
        split = self.split if same else self._compiled(graph)
        changed = self.study.with_graph(graph)
        fp16 = self.options[FP16].placements if FP16 in self.options else {}
        placed = {}
        for runtime in self.question.runtimes:
            before = {self.label: fp16[runtime.name]} if fp16 else None
            placed[runtime.name] = placements(changed, runtime, before)[self.label]
        outputs = self.check.expected if same else self.check.outputs(split)
        metric = self.question.metric
        self.graphs[name] = graph
        self.options[name] = WeightOption(
            **vars(stored_model(name, split, forms, self.weights.layers, placed)),
            confidence=confidence,
            check=self.check.compared(outputs),
            metric=None if metric is None else metric(outputs, self.check.expected),
            warning=_kept_off_anywhere(changed) if forms else "",
        )

    def _compiled(self, graph: Graph) -> Partition:
        """The partition whose bytes and numbers count: that of the direct way where conversion refuses a layer for its
        weights, so that they are known nevertheless."""
        study = self.study.with_graph(graph)
        split, untouched = study.partition(), self.study.partition()
        if split.ops - split.on_engine <= untouched.ops - untouched.on_engine:
            return split
        return study.by_route("direct").partition()

    def _add_mixtures(self) -> None:
        """The line of forms from exact to fast, as far as the error allows, for each set of forms that a runtime
        streams. A mixture that has one form everywhere is there already."""
        lines: dict[frozenset[str], Runtime] = {}
        base, *others = self.options.values()
        for runtime in self.question.runtimes:
            streaming = (option for option in others if option.streaming)
            usable = frozenset(option.name for option in streaming if _is_usable(option, base, runtime.name))
            if usable:
                lines.setdefault(usable, runtime)
        for usable, runtime in lines.items():
            proposals = [one for name, listed in self.proposals.items() if name in usable for one in listed]
            line = FormLine(self.study.by(runtime), self.check, proposals)
            choice = line.within_error(self.question.target_error)
            forms = {self.weights.names[uid]: step.form for uid, step in choice.items()}
            if forms and not any(dict(option.forms) == forms for option in self.options.values()):
                count = len(self.options) - len(others)
                self._add(MIXED if count == 1 else f"{MIXED} {count}", line.at(choice)[0].graph, forms, "")

    def _prices(self, storage: str, chip: str) -> Mapping[int, tuple[float, float]]:
        """What each layer takes before and after it is stored so, by the node."""
        if storage not in self._times:
            prices = [price for proposal in self.proposals[storage] for price in proposal.prices(chip)]
            self._times[storage] = {site.node.uid: (before, after) for site, before, after in reversed(prices)}
        return self._times[storage]

    def _row(self, name: str) -> LayerForms:
        layer, (chip,) = self.weights.layers[name], self.study.chips
        listed = []
        for storage in self.question.encodings:
            stored = self.weights.stored(name, storage)
            if stored is None:
                continue
            before, after = self._prices(storage.name, chip).get(layer.node.uid, (None, None))
            streams = self.options[storage.name].streams.get(name)
            error = self.weights.error(name, storage)
            listed.append(LayerInForm(storage.name, stored.stored_bytes, streams, after, before, error))
        return LayerForms(name, layer.node.op, layer.weight.shape, 2 * layer.weight.size, tuple(listed))


def _kept_off_anywhere(study: Study) -> str:
    """What is published of runtimes that keep a layer of the graph off the engine, whichever was asked about."""
    for runtime in runtimes_of(DEFAULT_RUNTIMES):
        for split in study.by(runtime).partitions().values():
            for refusal in split.kept_off.values():
                return f"{refusal.reason} {refusal.findings[0].evidence.label()}"
    return ""


def _is_usable(option: WeightOption, base: WeightOption, runtime: str) -> bool:
    """Whether an option has a known time by a runtime, takes nothing off the engine and is not larger. A sparse form
    of numbers that are not zero is, and nobody has timed one."""
    place, was = option.placements.get(runtime), base.placements[runtime]
    if place is None or place.us is None:
        return False
    return place.on_engine >= was.on_engine and option.program_bytes <= base.program_bytes


def _recommendation(options: Sequence[WeightOption], runtime: Runtime, limit: float) -> Recommendation:
    """The fastest option within the error; of equal ones the smallest program, then the least error."""
    base, name = options[0], runtime.name
    usable = [option for option in options if _is_usable(option, base, name)]
    within = [option for option in usable if option.check.error <= limit] or [base]

    def rank(option: WeightOption) -> tuple[float, int, float]:
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


def _us(place: RuntimePlacement) -> float:
    return float("inf") if place.us is None else place.us
