"""``af.evaluate_model``: a model on a data set, on several chips and in several forms of its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.chips.chip import Target
from aneforge.compiler.compression import CompressionOptions, compressed
from aneforge.errors import AneforgeError, ArgumentError, install_hint
from aneforge.formats.arguments import Chips, Source, chips_of, graph_of, model_name, value_in_file
from aneforge.graph.graph import Graph
from aneforge.graph.reference import evaluate
from aneforge.process import ahead
from aneforge.progress import Progress
from aneforge.reports.evaluation.data import DataSet, LabelledSample, Preprocess, SampleError, open_data
from aneforge.reports.evaluation.explained import explain_against_float, explain_pair
from aneforge.reports.evaluation.metrics import Metric, SampleAnswer, class_of, metric_of
from aneforge.reports.evaluation.records import EvaluationPlan, RecordFolder, SampleScores, read_folders
from aneforge.reports.evaluation.result import REFERENCE, Evaluation, Explained, apart
from aneforge.reports.sweep.plan import Shard, code_digest
from aneforge.reports.sweep.task import graph_key
from aneforge.sim.engine import MODES
from aneforge.sim.gpu.plan import BATCH, check_device, cuda
from aneforge.study.comparison import machine_key
from aneforge.study.partition import Partition
from aneforge.study.runner import Runner
from aneforge.study.study import Study, refuse_constant

Array = np.ndarray
Outputs = dict[str, Array]

REFERENCES = ("onnx", "float32", "none")
AS_STORED = "as stored"
"""The form of weights that are left as the model has them."""
_AT_A_TIME = 16  # samples that are in memory


@dataclass
class _Machine:
    """Runs with one program and one arithmetic, which are simulated once."""

    graph: Graph
    split: Partition
    runner: Runner
    runs: list[str] = field(default_factory=list)


def evaluate_model(
    model: Source,
    data: Any,
    target: Chips = None,
    metric: str | Sequence[str] | None = None,
    reference: str | None = None,
    mode: str = "exact",
    *,
    samples: int | None = None,
    labels: str | None = None,
    preprocess: str | Preprocess | None = None,
    compress: str | Sequence[str] | None = None,
    calibration: Any = None,
    out: str | Path | None = None,
    shard: str | None = None,
    strict: bool = False,
    explain: bool = True,
    device: str = "cpu",
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Accuracy of a model on a data set, on each simulated chip, with intervals and paired tests.

    ``data`` is the path of an ``.npz`` file (arrays named as the inputs, with one more axis in front, and ``labels``),
    a folder of images or arrays (a folder in it is a class), a manifest (``path`` and ``label``) or a Parquet file, or
    arrays by name. ``metric`` is ``top1``, ``top5``, ``cosine``, ``psnr``, ``miou`` or ``own.py:function``; without it
    top1 where there are labels, else cosine. ``reference`` is ``float32`` (the graph with every node rounded to it),
    ``onnx`` (the file in onnxruntime) or ``none``; without it ``onnx`` where model is such a file and onnxruntime is
    installed, else ``float32``. ``compress`` adds runs with stored weights: ``"int8,int4"``. ``calibration`` is data
    that the weights were fitted to: a sample of it among the evaluated ones is refused.

    ``data`` may also be an object of your own with ``identity``, ``len()``, ``name(number)`` and ``read(number)``,
    which gives arrays by name and the label. ``preprocess`` is a function (or ``own.py:function``) that makes the
    inputs of what was read. Some samples are in memory at a time (64 with a GPU, else 16). ``out`` keeps the scores of
    each sample, so that the same call goes on where the last one was stopped; ``shard`` (``"2/8"``) does one part of
    the samples, which :func:`merge_evaluations` joins. A sample that cannot be read or scored is counted and named, or
    an error where ``strict``. ``explain`` looks for the first layer behind the largest differences. ``device="cuda"``
    runs exact sums on a GPU, with the same bits. ``progress`` hears how many samples are done.
    """
    if mode not in MODES:
        raise ArgumentError("mode", f"{mode!r} is not a mode; choose one: {', '.join(MODES)}.")
    check_device(device)
    if device != "cpu":
        cuda()  # refused before the work, not after it
    graph = graph_of(model, dims, function)
    refuse_constant(graph)
    part = Shard.of(shard)
    if part.count > 1 and out is None:
        raise ArgumentError("shard", "its scores are merged with those of the others. Give out, a folder for them.")
    own = value_in_file(preprocess) if isinstance(preprocess, str) else preprocess
    loaded = open_data(data, graph, labels, own)
    if calibration is not None:
        _refuse_seen(loaded, open_data(calibration, graph, labels, own))
    total = len(loaded) if samples is None else min(_count(samples), len(loaded))
    source = Reference.of(reference, model, graph)
    metrics = _metrics(metric, loaded, source)
    machines, runs, refused = _machines(graph, chips_of(target, model), _forms(compress), mode)
    name = str(data) if isinstance(data, (str, Path)) else "data in memory"
    asked = EvaluationPlan(
        *(model_name(model), graph_key(graph), name, loaded.identity, total, runs),
        *(tuple(each.name for each in metrics), source.name, mode, code_digest(), refused),
    )
    folder = RecordFolder(out, asked)
    folder.prepare()
    wanted = [number for number in range(part.number - 1, total, part.count) if number not in folder.done]
    whole = len(range(part.number - 1, total, part.count))
    try:
        done = _records(loaded, wanted, machines, source, metrics, strict, device)
        for count, record in enumerate(done, whole - len(wanted) + 1):
            folder.add(record)
            if progress is not None:
                progress(count, whole, "samples")
    finally:
        folder.flush()
    result = Evaluation.of(asked, folder.done, notes=_left_to_cpu(machines))
    if explain and part.count == 1 and result.records:
        result.explained = _explained(result, machines, loaded, graph)
    return result


def merge_evaluations(folders: Sequence[str | Path]) -> Evaluation:
    """The evaluation that the folders of several shards are parts of."""
    if not folders:
        raise ArgumentError("folders", "give at least one folder of an evaluation.")
    return Evaluation.of(*read_folders([Path(folder) for folder in folders]))


def _count(samples: int) -> int:
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ArgumentError("samples", f"{samples!r} is not a count; give a whole number, 1 or more.")
    return samples


# What is run: chips and forms of the weights.


def _forms(compress: str | Sequence[str] | None) -> list[str | None]:
    """The weights as they are, and each form that was asked for."""
    listed = compress.split(",") if isinstance(compress, str) else list(compress or ())
    return [None, *dict.fromkeys(form.strip() for form in listed if form.strip())]


def _machines(
    graph: Graph, chips: Mapping[str, Target], forms: Sequence[str | None], mode: str
) -> tuple[list[_Machine], dict[str, dict[str, Any]], dict[str, str]]:
    """What is simulated, the runs by name, and those that a chip refuses."""
    machines: dict[Any, _Machine] = {}
    runs: dict[str, dict[str, Any]] = {}
    refused: dict[str, str] = {}
    for form in forms:
        for name, chip in chips.items():
            label = name if form is None else f"{name} {form}"
            options = CompressionOptions.of(False, form)
            stored = graph if options is None else compressed(graph, chip, options)[0]
            split = Study.on(stored, {name: chip}).partition()
            if not split.runs:
                refused[label] = split.nothing_runs().problem
                continue
            key = (form, machine_key(split, mode))
            if key not in machines:
                machines[key] = _Machine(stored, split, split.runner(mode))
            machines[key].runs.append(label)
            runs[label] = {"target": chip.name, "weights": form or AS_STORED, "verdict": split.verdict}
    if not machines:
        reasons = "; ".join(f"{label}: {why}" for label, why in refused.items())
        raise ArgumentError("target", f"no chip runs anything of the model ({reasons})")
    return list(machines.values()), runs, refused


# What it is measured against.


@dataclass(frozen=True)
class Reference:
    """The model in float arithmetic; ``name`` is None where none is asked for."""

    name: str | None
    run: Callable[[Mapping[str, Array]], Outputs] | None = None

    @classmethod
    def of(cls, name: str | None, model: Source, graph: Graph) -> Reference:
        is_onnx = isinstance(model, (str, Path)) and Path(model).suffix.casefold() == ".onnx"
        if name is not None and name not in REFERENCES:
            raise ArgumentError("reference", f"{name!r} is unknown; choose one: {', '.join(REFERENCES)}.")
        if name == "none":
            return cls(None)
        if name == "onnx" and not is_onnx:
            raise ArgumentError("reference", "onnx runs the model's own file, which must be .onnx. Use float32.")
        if name == "onnx" or (name is None and is_onnx):
            session = _session(str(model), required=name is not None)
            if session is not None:
                return cls("onnx", session)
        names = graph.names()
        outputs = [names[output.uid] for output in graph.outputs]
        ports = {names[port.uid]: port for port in graph.inputs}

        def run(feeds: Mapping[str, Array]) -> Outputs:
            fed = {ports[port]: value for port, value in feeds.items()}
            return dict(zip(outputs, evaluate(Graph(graph.outputs), fed, single=True), strict=True))

        return cls("float32", run)


def _session(path: str, required: bool) -> Callable[[Mapping[str, Array]], Outputs] | None:
    try:
        import onnxruntime  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ModuleNotFoundError:
        if required:
            raise AneforgeError(
                f"--reference onnx: needs onnxruntime. Install it with {install_hint('bench')}."
            ) from None
        return None
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own
        if required:
            raise AneforgeError(f"--reference onnx: onnxruntime does not load {path} ({error})") from None
        return None
    ports = {port.name: _numpy_type(port.type) for port in session.get_inputs()}
    names = [output.name for output in session.get_outputs()]

    def run(feeds: Mapping[str, Array]) -> Outputs:
        fed = {name: feeds[name].astype(kind) for name, kind in ports.items()}
        return {name: np.asarray(value) for name, value in zip(names, session.run(None, fed), strict=True)}

    return run


def _numpy_type(name: str) -> str:
    """``tensor(float)`` as NumPy calls it."""
    kind = name.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(kind, kind)


def _metrics(asked: str | Sequence[str] | None, data: DataSet, reference: Reference) -> list[Metric]:
    """The metrics by name, each with what it needs."""
    labelled = _has_labels(data)
    if asked is None:
        asked = "top1" if labelled and _is_class(data) else "cosine"
    listed = asked.split(",") if isinstance(asked, str) else list(asked)
    metrics = [metric_of(name.strip()) for name in dict.fromkeys(listed) if name.strip()]
    if not metrics:
        raise ArgumentError("metric", "the list is empty. Name one, for instance top1.")
    for metric in metrics:
        if metric.needs == "labels" and not labelled:
            raise ArgumentError("metric", f"{metric.name} needs labels, and {data.where} has none (see --labels).")
        lacks_all = metric.name == "psnr" and not labelled and reference.run is None
        if (metric.needs == "reference" and reference.run is None) or lacks_all:
            raise ArgumentError("metric", f"{metric.name} needs a reference. Choose --reference float32.")
    return metrics


def _first_label(data: DataSet) -> Any:
    for number in range(min(len(data), _AT_A_TIME)):
        try:
            return data.reader.read(number)[1]
        except SampleError:
            continue
    return None


def _has_labels(data: DataSet) -> bool:
    return _first_label(data) is not None


def _is_class(data: DataSet) -> bool:
    return np.asarray(_first_label(data)).size == 1


def _refuse_seen(data: DataSet, calibration: DataSet) -> None:
    """A figure on samples that the weights were fitted to is no accuracy."""
    seen = {_content(sample): number for number, sample in _readable(calibration)}
    for number, sample in _readable(data):
        if _content(sample) in seen:
            raise AneforgeError(
                f"{data.reader.name(number)}: is also sample {seen[_content(sample)]} of the calibration data "
                f"{calibration.where}. Evaluate on samples that the weights have not seen."
            )


def _readable(data: DataSet) -> Iterator[tuple[int, LabelledSample]]:
    for number in range(len(data)):
        try:
            yield number, data.read(number)
        except SampleError:
            continue


def _content(sample: LabelledSample) -> int:
    return hash(tuple((name, np.ascontiguousarray(array).tobytes()) for name, array in sample.feeds.items()))


# The work: some samples at a time, on every machine in turn.


def _records(
    data: DataSet,
    wanted: Sequence[int],
    machines: Sequence[_Machine],
    reference: Reference,
    metrics: Sequence[Metric],
    strict: bool,
    device: str,
) -> Iterator[SampleScores]:
    numbers, at_a_time = iter(wanted), _AT_A_TIME if device == "cpu" else BATCH

    def read_some() -> dict[int, LabelledSample | SampleScores]:
        return {number: _read(data, number, strict) for number in islice(numbers, at_a_time)}

    for read in ahead(read_some):
        usable = {number: sample for number, sample in read.items() if not isinstance(sample, SampleScores)}
        outputs = [_outputs(machine, usable.values(), device) for machine in machines]
        for number, sample in read.items():
            if isinstance(sample, SampleScores):
                yield sample
                continue
            given = {
                run: next(made) for machine, made in zip(machines, outputs, strict=True) for run in machine.runs[:1]
            }
            by_run = {run: given[machine.runs[0]] for machine in machines for run in machine.runs}
            yield _scored(data, number, sample, by_run, reference, metrics, strict)


def _read(data: DataSet, number: int, strict: bool) -> LabelledSample | SampleScores:
    try:
        return data.read(number)
    except SampleError as error:
        if strict:
            raise
        return SampleScores(number, data.reader.name(number), error=str(error))


def _outputs(machine: _Machine, samples: Iterable[LabelledSample], device: str) -> Iterator[Outputs]:
    return (run.outputs for run in machine.runner.run_each((sample.feeds for sample in samples), device))


def _left_to_cpu(machines: Sequence[_Machine]) -> tuple[str, ...]:
    """What a GPU did not do, in a line for each machine."""
    lines = []
    for machine in machines:
        counts = {kind: count for model in machine.runner.models.values() for kind, count in model.on_cpu.items()}
        if counts:
            listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
            lines.append(f"{', '.join(machine.runs)}: the GPU left these to the CPU: {listed}")
    return tuple(lines)


def _scored(
    data: DataSet,
    number: int,
    sample: LabelledSample,
    by_run: Mapping[str, Outputs],
    reference: Reference,
    metrics: Sequence[Metric],
    strict: bool,
) -> SampleScores:
    name = data.reader.name(number)
    label = np.asarray(sample.label) if sample.label is not None else None
    own = int(label.reshape(())) if label is not None and label.size == 1 and label.dtype.kind in "iu" else None
    record = SampleScores(number, name, own)
    exact = None if reference.run is None else reference.run(sample.feeds)
    answers = {**({REFERENCE: exact} if exact is not None else {}), **by_run}
    base = next(iter(answers.values()))
    try:
        for run, outputs in answers.items():
            scores = {
                metric.name: list(metric.score(SampleAnswer(outputs, sample.label, exact)))
                for metric in metrics
                if run != REFERENCE or metric.needs == "labels" or (metric.name == "psnr" and label is not None)
            }
            record.scores[run] = scores
            record.apart[run] = 0.0 if outputs is base else apart(base, outputs)
            said = class_of(np.asarray(next(iter(outputs.values()))))
            if said is not None:
                record.classes[run] = said
    except SampleError as error:
        if strict:
            raise SampleError(f"{name}: {error}") from None
        return SampleScores(number, name, own, error=f"{name}: {error}")
    return record


# The layer behind the largest difference.


def _explained(result: Evaluation, machines: Sequence[_Machine], data: DataSet, graph: Graph) -> list[Explained]:
    """For every run the sample on which it is farthest from the first one, and from the float reference where there is
    one, explained node by node."""
    listed = []
    first = machines[0]
    for machine in machines:
        run = machine.runs[0]
        worst = max(result.records, key=lambda record: (record.apart.get(run, 0.0), -record.sample))
        if not worst.apart.get(run):
            continue
        sample = data.read(worst.sample)
        if machine is not first and machine.graph is first.graph:
            names = run, first.runs[0]
            found = explain_pair(
                names, (first.split, machine.split), (first.runner, machine.runner), sample, worst.sample
            )
            listed.append(found)
        if result.asked.reference:
            listed.append(explain_against_float(run, machine.split, machine.runner, graph, sample, worst.sample))
    return [entry for entry in listed if entry is not None]
