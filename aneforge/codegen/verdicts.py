"""What each task that we write rests on.

``as published``  a published program has these words: the registers of one of its tasks, addresses aside
``by rule``       the words follow a rule that gives published programs of this generation word for word
``by analogy``    the rule is proven on another generation, or stated by the register map alone
``text``          the work has no words; the task switches its engine off

The programs are records of the third collection; ``task_words.json`` has a digest of each of their tasks, and the
forms that come out word for word. ``bench/vendor_programs.py`` and ``tests/test_vendor_programs.py`` count them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

from aneforge.chips import store
from aneforge.codegen.dialect import resolved
from aneforge.codegen.forms import Form
from aneforge.codegen.plan import TaskPlan
from aneforge.codegen.tasks import Task

PUBLISHED, RULE, ANALOGY, TEXT = "as published", "by rule", "by analogy", "text"
VERDICTS = (PUBLISHED, RULE, ANALOGY, TEXT)
_BASES = ("source.base", "second.base", "result.base", "constants.base", "table.base")
_HIGH, _CORES = 4, 16
_DIGITS = 12


@cache
def _addresses(generation: str) -> frozenset[int]:
    """The registers that hold addresses, which the place in a program decides."""
    found = [resolved(generation, meaning) for meaning in _BASES]
    places = [register.address for register, _ in filter(None, found) if register.address is not None]
    return frozenset((*places, *(place + _HIGH for place in places)))


def digest(task: Task) -> str:
    """The registers that a task writes, addresses aside."""
    left_out = _addresses(task.generation)
    writes = [f"{address:x}={value:x}" for address, value in task.writes if address not in left_out]
    return hashlib.sha256(" ".join(writes).encode()).hexdigest()[:_DIGITS]


@cache
def _published(generation: str) -> frozenset[str]:
    return frozenset(store.load("task_words")["digests"].get(generation, "").split())


@cache
def proven_forms(generation: str) -> tuple[str, ...]:
    """The kinds of work, and additions to them, that come out word for word on a generation."""
    return tuple(store.load("task_words")["proven"].get(generation, ()))


def parts_of(form: Form, plans: Sequence[TaskPlan]) -> tuple[str, ...]:
    """The kind of work of a form, and what is added to it; each is proven by itself."""
    kind, more = form.name, []
    if kind == "softmax of a row":  # the tasks of one over columns, behind a reduction as a norm of a row has it
        kind, more = "softmax of columns", ["a row"]
    elif kind == "norm of a row":
        more = ["a row"]
    if form.name == "product":
        more += ["turned"] if form.turns_source else []
        more += ["turned kernel"] if form.turns_kernel else []
        more += ["pairs"] if form.pairs > 1 or form.swaps else []
        more += ["rows in parts"] if plans[-1].result.channels < form.rows else []
        more += ["few rows"] if form.rows % _CORES else []
        more += [] if form.activation == "none" else ["relu"] if form.activation == "relu" else ["table"]
    elif form.operation == "convolution":
        kernel = form.kernel
        kind = "depthwise" if kernel.is_depthwise else "groups" if kernel.groups > 1 else kind
        kind = "matrix" if form.transposes else kind
        more += ["steps"] if kernel.skips_zeros else []
        more += ["bias"] if form.bias is not None else []
        more += [] if form.activation == "none" else ["relu"] if form.activation == "relu" else ["table"]
    elif form.activation == "relu":
        more.append("relu")
    if form.vector is not None and kind.startswith("norm"):
        more.append("vector")
    if form.images > 1:
        more.append("images")
    if form.operation == "convolution" and not form.transposes and form.name != "product" and len(plans) > 1:
        more.append("split")
    return kind, *more


def kind_of(form: Form, plans: Sequence[TaskPlan]) -> str:
    """The kind of work in words."""
    kind, *more = parts_of(form, plans)
    return f"{kind} with {', '.join(more)}" if more else kind


def verdict_of(tasks: list[Task], plans: list[TaskPlan], form: Form) -> str:
    """What the tasks of a layer rest on. Tiles follow a rule of our own."""
    generation = tasks[0].generation
    if all(digest(task) in _published(generation) for task in tasks):
        return PUBLISHED
    tiled = any((plan.tile and not any(plan.dealt)) or (plan.is_cut and plan.engine == "mac") for plan in plans)
    proven = set(parts_of(form, plans)) <= set(proven_forms(generation))
    return RULE if proven and not tiled else ANALOGY
