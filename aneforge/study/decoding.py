"""Decoding step by step in the simulator: caches grow, and the first step is named at which chips part.

Every chip keeps caches of its own. Where nobody gives masks, they are worked out from how many places are in use, so
that a mask hides what was not written yet. Other inputs are drawn anew for each step, the same for all chips.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from aneforge import text
from aneforge.chips.chip import Target
from aneforge.compiler.legal.patterns import attention_extents
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.formats.arguments import Chips, Source, graph_of
from aneforge.graph.graph import Graph
from aneforge.graph.reference import evaluate
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.progress import Progress
from aneforge.sim.compare import share_interval
from aneforge.sim.inputs import SEED, drawn_sample, read_arrays
from aneforge.study.cache_forms import shifted, with_rows_as_outputs
from aneforge.study.caches import CacheWrite, cache_writes, written_rows
from aneforge.study.comparison import FLOAT64, chips_and_float64
from aneforge.study.study import Study

HIDDEN = -1e4
"""What a mask adds where nothing was written yet: fp16 holds it, and no score outweighs it."""
_MILLION = 1_000_000
Arrays = dict[str, np.ndarray]


@dataclass
class ChipSteps:
    """One chip against the reference, step by step."""

    errors: list[float] = field(default_factory=list)
    """The largest difference of the logits over the largest logit."""
    first_bits: int | None = None
    """The first step, from 1 on, at which some bit of an output differs."""
    first_output: str = ""
    other_tokens: list[int] = field(default_factory=list)
    """The steps at which another token has the largest logit."""

    def of_million(self, steps: int) -> tuple[float, float]:
        """How many of a million tokens differ, between which numbers, if steps are like those that were run."""
        low, high = share_interval(len(self.other_tokens) / steps, steps)
        return low * _MILLION, high * _MILLION

    def to_json(self, steps: int) -> dict[str, Any]:
        return {
            "first_step_with_other_bits": self.first_bits, "first_output": self.first_output,
            "steps_with_another_token": self.other_tokens, "errors": self.errors,
            "of_a_million_tokens": list(self.of_million(steps)),
        }  # fmt: skip


@dataclass(frozen=True)
class Decoding:
    """Several steps of a decoder on some chips. ``chips`` are those that were compared with the reference."""

    reference: str
    steps: int
    rows: int
    places: int
    chips: Mapping[str, ChipSteps]
    note: str = ""

    @property
    def same(self) -> bool:
        """Whether all chips gave the same bits in every step."""
        return all(chip.first_bits is None for chip in self.chips.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "reference": self.reference, "steps": self.steps, "rows": self.rows, "places": self.places,
            "note": self.note, "chips": {name: chip.to_json(self.steps) for name, chip in self.chips.items()},
        }  # fmt: skip

    def __str__(self) -> str:
        rows = []
        for name, chip in self.chips.items():
            low, high = chip.of_million(self.steps)
            bits = "never" if chip.first_bits is None else f"step {chip.first_bits} ({text.short(chip.first_output)})"
            token = f"step {chip.other_tokens[0]}" if chip.other_tokens else "never"
            worst = max(chip.errors, default=0.0)
            rows.append((name, bits, token, f"{chip.errors[-1]:.2g}", f"{worst:.2g}", f"{low:,.0f} to {high:,.0f}"))
        heads = ("chip", "other bits from", "another token from", "error now", "worst", "of a million tokens")
        head = (
            f"{text.plural(self.steps, 'step')} of {text.plural(self.rows, 'new token')} with a cache of "
            f"{self.places:,} places, against {self.reference}"
        )
        lines = [head, text.columns(heads, rows)]
        return "\n".join([*lines, *([text.wrapped(self.note)] if self.note else [])])


class CacheSteps:
    """A model whose caches are handed on from step to step, and the inputs of each step."""

    def __init__(self, graph: Graph) -> None:
        forms = {write.form for write in cache_writes(graph)}
        self.note = ""
        if "slice" in forms:
            graph, self.note = shifted(graph), "slice updates were run as shifts (cache-shifted): a file has one place"
        if "grow" in forms:
            graph = with_rows_as_outputs(graph)
            self.note = "caches that grow were run with their new rows as outputs (cache-rows-out)"
        self.graph = graph
        self.writes = cache_writes(self.graph)
        if not self.writes:
            raise ArgumentError("steps", "the model keeps no cache between calls. Leave --decode out.")
        odd = next((write for write in self.writes if write.rows is None), None)
        if odd is not None:
            raise ArgumentError(
                "steps",
                f"{odd.port.name}: how the cache gets its new rows was not recognised; write it as a slice update, a "
                "shift or a blend with a mask.",
            )
        self.names = self.graph.names()
        first = self.writes[0]
        assert first.rows is not None
        self.rows, self.places = first.rows.shape[first.axis], first.port.shape[first.axis]

    def empty(self) -> Arrays:
        """The caches before the first step."""
        return {str(write.port.name): np.zeros(write.port.shape, np.float64) for write in self.writes}

    def check(self, steps: int) -> None:
        """Refuse more steps than the caches have places, where nothing falls out of them."""
        grows = [write for write in self.writes if (write.host or write.form) not in ("shift",)]
        if grows and steps * self.rows > self.places:
            raise ArgumentError(
                "steps",
                f"{steps:,} steps of {self.rows:,} tokens need {steps * self.rows:,} places, and the caches have "
                f"{self.places:,}. Ask for {self.places // self.rows:,} steps, or use the form cache-shifted.",
            )

    def feeds(self, step: int, seed: int, given: Mapping[str, np.ndarray]) -> Arrays:
        """The inputs of a step beside the caches."""
        drawn = drawn_sample(self.graph, seed, 2 + step)  # sample 1 lies at the ends of ranges
        caches = {str(write.port.name) for write in self.writes}
        feeds = {name: value for name, value in drawn.items() if name not in caches}
        for port in self._masks:
            feeds[self.names[port.uid]] = self._mask(port, step)
        for port in self._selectors:
            feeds[self.names[port.uid]] = self._selector(port, step)
        for name, value in given.items():
            if name not in feeds:
                raise AneforgeError(f"{name}: not an input beside the caches. Choose from: {', '.join(feeds)}.")
            feeds[name] = np.asarray(value[step] if np.ndim(value) > np.ndim(feeds[name]) else value)
        return feeds

    @cached_property
    def _masks(self) -> list[Tensor]:
        """Inputs that are added to the scores of an attention, with a number for each key."""
        found: dict[int, Tensor] = {}
        for node in self.graph.nodes:
            if node.op != "softmax" or attention_extents(node) is None:
                continue
            keys, before = node.shape[-1], node.inputs[0]
            for _ in range(4):
                for operand in before.inputs if before.op in ("add", "sub") else ():
                    port = _port_behind(operand)
                    if port is not None and port.shape and port.shape[-1] == keys:
                        found[port.uid] = port
                before = before.inputs[0] if before.inputs else before
        return list(found.values())

    @cached_property
    def _selectors(self) -> list[Tensor]:
        """Inputs that say into which place of a cache a row is blended."""
        found: dict[int, Tensor] = {}
        for write in self.writes:
            if (write.host or write.form) != "blend" or write.rows is None:
                continue
            for node in self.graph.nodes:
                if node.op == "mul" and any(operand is write.rows for operand in node.inputs):
                    ports = [port for operand in node.inputs if (port := _port_behind(operand)) is not None]
                    found |= {port.uid: port for port in ports if port.size == write.port.shape[write.axis]}
        return list(found.values())

    def _mask(self, port: Tensor, step: int) -> np.ndarray:
        """Zeros for the keys that a step may read, else a large negative number; new tokens see those before them."""
        rows, keys = self.rows, port.shape[-1]
        first = self.writes[0]
        form = first.host or first.form
        before = min(step * rows, self.places)
        mask = np.full((rows, keys), HIDDEN)
        for row in range(rows):
            if form == "append":
                mask[row, :before] = 0.0
                mask[row, self.places : self.places + row + 1] = 0.0
            elif form == "shift":
                hidden = max(0, keys - before - rows)
                mask[row, hidden : keys - rows + row + 1] = 0.0
            else:
                mask[row, : before + row + 1] = 0.0
        heads = prod(port.shape[:-2])
        plane = mask if port.ndim > 1 and port.shape[-2] == rows else mask[:1]
        return np.broadcast_to(plane, (heads, *plane.shape)).reshape(port.shape).astype(np.float16)

    def _selector(self, port: Tensor, step: int) -> np.ndarray:
        return (np.arange(port.size) == step % port.size).astype(np.float16).reshape(port.shape)

    def handed_on(self, caches: Arrays, outputs: Mapping[str, np.ndarray], step: int) -> Arrays:
        """The caches after a step."""
        return {str(write.port.name): self._after(write, caches, outputs, step) for write in self.writes}

    def _after(self, write: CacheWrite, caches: Arrays, outputs: Mapping[str, np.ndarray], step: int) -> np.ndarray:
        name, new = str(write.port.name), np.asarray(outputs[str(write.output.name)])
        if write.form != "rows":
            return new
        shift = ("behind" if write.begin else "front") if write.host == "shift" else ""
        place = write.begin if write.host == "slice" else step * self.rows
        return written_rows(caches[name], new, write.axis, place, shift, name)

    @cached_property
    def logits(self) -> str:
        """The largest output beside the caches."""
        caches = {write.output.uid for write in self.writes}
        others = [output for output in self.graph.outputs if output.uid not in caches]
        if not others:
            raise ArgumentError(
                "steps",
                "the model gives nothing beside its caches, so there is nothing to compare. Give a model with logits.",
            )
        return self.names[max(others, key=lambda output: output.size).uid]


def _port_behind(node: Tensor) -> Tensor | None:
    """The input behind moves."""
    while node.inputs and (node.is_a(GraphTrait.VIEW) or node.is_a(GraphTrait.MOVEMENT)):
        node = node.inputs[0]
    return node if node.op == "input" else None


def decode_steps(
    model: Source,
    target: Chips = None,
    steps: int = 16,
    inputs: Any = None,
    mode: str = "exact",
    *,
    seed: int | None = None,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
    progress: Progress | None = None,
) -> Decoding:
    """Run a decoder for some steps on several simulated chips, each with growing caches of its own.

    The first chip is the reference; ``float64`` among the chips is what the graph means. All chips get the same inputs
    in each step: those of ``inputs`` (arrays by name, or an .npz file, with one more axis in front for the steps),
    else masks for the places that are in use and numbers drawn from ``seed``. ``mode`` is as for :func:`aneforge.run`.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ArgumentError("steps", f"{steps!r} is not a number of steps; give 1 or more.")
    chips, exact_too = chips_and_float64(target, None)
    run = CacheSteps(graph_of(model, dims, function))
    run.check(steps)
    given = read_arrays(inputs) if isinstance(inputs, str) else dict(inputs or {})
    runners = {name: _Chip(run, chip, mode) for name, chip in chips.items()}
    if exact_too:
        runners[FLOAT64] = _Chip(run, None, mode)
    reference, *others = runners
    results = {name: ChipSteps() for name in others}
    for step in range(steps):
        if progress is not None:
            progress(step, steps, f"step {step + 1}")
        feeds = run.feeds(step, SEED if seed is None else seed, given)
        made = {name: runner.step(feeds, step) for name, runner in runners.items()}
        for name in others:
            _compare(results[name], run.logits, made[reference], made[name], step + 1)
    return Decoding(reference, steps, run.rows, run.places, results, run.note)


class _Chip:
    """One chip, or float64, with its caches."""

    def __init__(self, run: CacheSteps, chip: Target | None, mode: str) -> None:
        self.run, self.caches = run, run.empty()
        self.runner = None if chip is None else Study(run.graph, chip).partition().runner(mode)

    def step(self, feeds: Arrays, step: int) -> Arrays:
        whole = {**feeds, **self.caches}
        outputs = self._exact(whole) if self.runner is None else self.runner.run(_halves(whole)).outputs
        self.caches = self.run.handed_on(self.caches, outputs, step)
        return outputs

    def _exact(self, feeds: Arrays) -> Arrays:
        values = evaluate(self.run.graph, feeds)
        listed = values if isinstance(values, list) else [values]
        names = [self.run.names[output.uid] for output in self.run.graph.outputs]
        return dict(zip(names, listed, strict=True))


def _halves(feeds: Arrays) -> Arrays:
    return {name: value.astype(np.float16) if value.dtype.kind == "f" else value for name, value in feeds.items()}


def _compare(result: ChipSteps, logits: str, expected: Arrays, actual: Arrays, step: int) -> None:
    if result.first_bits is None:
        name = next(_differing(expected, actual), None)
        if name is not None:
            result.first_bits, result.first_output = step, name
    one, other = (np.asarray(values[logits], np.float64) for values in (expected, actual))
    largest = float(np.abs(one).max(initial=0.0))
    gap = float(np.abs(one - other).max(initial=0.0))
    result.errors.append(gap / largest if largest else gap)
    if (np.argmax(one, axis=-1) != np.argmax(other, axis=-1)).any():
        result.other_tokens.append(step)


def _differing(expected: Arrays, actual: Arrays) -> Iterator[str]:
    """The outputs that differ, in the order of the model."""
    for name, value in expected.items():
        if not np.array_equal(np.asarray(value, np.float64), np.asarray(actual[name], np.float64), equal_nan=True):
            yield name
