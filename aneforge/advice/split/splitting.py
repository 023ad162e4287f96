"""The function ``af.split_model``."""

from __future__ import annotations

from collections.abc import Mapping

from aneforge.advice.split.plan import Planner, layout_on, layouts_of
from aneforge.advice.split.result import ChipPlan, LayoutChoice, SplitPlan
from aneforge.advice.split.structure import structure_of
from aneforge.compiler.storage import Storage, storage_of
from aneforge.errors import ArgumentError
from aneforge.formats.arguments import Chips, Source
from aneforge.progress import Progress
from aneforge.study.placement import runtime_called
from aneforge.study.study import Study

DEFAULT_RUNTIME = "coreml"


def split_model(
    model: Source,
    target: Chips = None,
    *,
    context: int | None = None,
    weights: str | None = None,
    runtime: str | None = None,
    os: str | None = None,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
    progress: Progress | None = None,
) -> SplitPlan:
    """Cut a large model into programs that load on each chip, and price a token and a prompt.

    ``context`` is how many tokens the caches hold, where the model has another number. ``weights`` is the form that
    the layers' weights are stored in (``int8``, ``int4``, ...), where the model has them in fp16. ``runtime`` is Core
    ML where nothing else is named. ``progress`` is told what is being done.
    """
    study = Study(model, target, runtime=runtime, os=os, dims=dims, function=function)
    return split_study(study, context, weights, progress)


def split_study(
    study: Study, context: int | None = None, weights: str | None = None, progress: Progress | None = None
) -> SplitPlan:
    """The plan of a study's model on its chips."""
    storage = _storage(weights)
    is_asked = study.by_runtime or study.route == "direct"
    asked = study if is_asked else study.by(runtime_called(DEFAULT_RUNTIME))
    structure = structure_of(study.graph)
    layouts = {name: Planner(asked.with_graph(graph), storage) for name, graph in layouts_of(structure).items()}
    plans: dict[str, ChipPlan] = {}
    for number, (name, chip) in enumerate(asked.chips.items()):
        if progress is not None:
            progress(number, len(asked.chips), f"cutting for {name}")
        choices = [
            LayoutChoice(layout_on(layout, structure, chip, asked), planner.phase(name), None)
            for layout, planner in layouts.items()
        ]
        plans[name] = ChipPlan(name, chip, asked.runtime.names[-1], structure, choices)
    return SplitPlan(study.name, structure, weights or "as the model stores them", plans)


def _storage(weights: str | None) -> Storage | None:
    if weights is None or weights == "fp16":
        return None
    storage = storage_of(weights)
    if storage.bytes_of((1, 32)) is None:
        raise ArgumentError("weights", f"the size of {weights} depends on the numbers; choose int8, int4 or lut6.")
    return storage
