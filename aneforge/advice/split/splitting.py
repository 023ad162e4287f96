"""The function ``af.split_model``."""

from __future__ import annotations

from collections.abc import Mapping

from aneforge.advice.split.plan import Phase, Planner, layout_on, layouts_of
from aneforge.advice.split.resize import TokenSizes, sizes_of
from aneforge.advice.split.result import ChipPlan, LayoutChoice, SplitPlan
from aneforge.advice.split.structure import ModelStructure, structure_of
from aneforge.compiler.storage import Storage, storage_of
from aneforge.errors import ArgumentError
from aneforge.formats.arguments import Chips, Source
from aneforge.progress import Progress
from aneforge.study.placement import runtime_called
from aneforge.study.study import Study

DEFAULT_RUNTIME = "coreml"
PROMPT_ROWS = 64
"""Tokens of a prompt in one call, where the model has one (U281)."""
MOST_CONTEXT = 1 << 17
"""Places of a cache at most: no axis of any chip is longer (limits.json, descriptor_dim_bits)."""


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
    ML where nothing else is named, and ``os`` the version of the system. ``progress`` is told what is being done.
    """
    study = Study(model, target, runtime=runtime, os=os, dims=dims, function=function)
    return split_study(study, context, weights, progress)


def split_study(
    study: Study, context: int | None = None, weights: str | None = None, progress: Progress | None = None
) -> SplitPlan:
    """The plan of a study's model on its chips."""
    storage = _storage(weights)
    is_asked = study.by_runtime or study.route == "direct"
    asked = study.by(runtime_called(study.runtime.name if is_asked else DEFAULT_RUNTIME))
    structure = structure_of(study.graph)
    calls = _calls(structure, context)
    layouts = {
        name: _Calls(asked.with_graph(graph), storage, structure_of(graph), calls)
        for name, graph in layouts_of(structure).items()
    }
    failed = [str(planner) for planned in layouts.values() for planner in planned.planners.values()]
    layouts = {name: planned for name, planned in layouts.items() if planned.has_call}
    if not layouts:
        raise ArgumentError(
            "model", f"no kind of call can be planned: {'; '.join(dict.fromkeys(failed))}. Leave --context out."
        )
    plans: dict[str, ChipPlan] = {}
    for number, (name, chip) in enumerate(asked.chips.items()):
        if progress is not None:
            progress(number, len(asked.chips), f"cutting for {name}")
        choices = [
            LayoutChoice(layout_on(layout, structure, chip, asked), *planned.on(name))
            for layout, planned in layouts.items()
        ]
        plans[name] = ChipPlan(name, chip, asked.runtime.names[-1], structure, choices)
    planners = {layout: planned.planners for layout, planned in layouts.items()}
    return SplitPlan(study.name, structure, weights or "as the model stores them", plans, planners)


def _calls(structure: ModelStructure, context: int | None) -> dict[str, TokenSizes | str]:
    """The tokens of both kinds of call and the places of the caches, or why there is no such call."""
    now = sizes_of(structure)
    if structure.attention is None:
        return {"decode": now, "prompt": "the model has no attention, so it has one kind of call"}
    if context is not None and context < 1:
        raise ArgumentError("context", f"{context} is not a number of tokens; give 1 or more.")
    if not structure.writes:
        rows = context or now.rows
        why = "the model keeps no cache: each new token takes a whole prompt"
        return {"decode": why, "prompt": TokenSizes(rows, 0)}
    places = context or now.cache
    if places > MOST_CONTEXT:
        raise ArgumentError("context", f"{places:,} places: a cache takes at most {MOST_CONTEXT:,}. Use a window.")
    rows = now.rows if now.rows > 1 else min(PROMPT_ROWS, max(1, places // 2))
    return {"decode": TokenSizes(1, places), "prompt": TokenSizes(rows, places)}


class _Calls:
    """Both kinds of call of a model in one layout of its caches."""

    def __init__(
        self, study: Study, storage: Storage | None, structure: ModelStructure, calls: Mapping[str, TokenSizes | str]
    ) -> None:
        self.planners: dict[str, Planner | str] = {}
        for kind, sizes in calls.items():
            planner = sizes if isinstance(sizes, str) else Planner(study, storage, structure, sizes)
            self.planners[kind] = planner if isinstance(planner, str) or not planner.why_not else planner.why_not
        self.has_call = any(isinstance(planner, Planner) for planner in self.planners.values())

    def on(self, chip: str) -> tuple[Phase | str, Phase | str]:
        """The programs of both on a chip, or why there are none."""
        return self._phase("decode", chip), self._phase("prompt", chip)

    def _phase(self, kind: str, chip: str) -> Phase | str:
        planner = self.planners[kind]
        if isinstance(planner, str):
            return planner
        return planner.phase(chip)


def _storage(weights: str | None) -> Storage | None:
    if weights is None or weights == "fp16":
        return None
    storage = storage_of(weights)
    if storage.bytes_of((1, 32)) is None:
        raise ArgumentError("weights", f"the size of {weights} depends on the numbers; choose int8, int4 or lut6.")
    return storage
