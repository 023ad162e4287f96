"""Every rewrite of the compiler: which op, on which chips, into what, and how exact. The one table that all code uses.

``aneforge check`` names a rewrite because a pass recorded it, and a pass records only rewrites of this table. Rows of
phase 0 replace ops of the graph: the walk of :mod:`aneforge.compiler.legal.passes` applies one wherever the fact
``op:NAME`` of the chip says ``decompose``, or wherever a rule refuses the node that the row answers. Rows of phase 2
replace ops of the engine's language: the pass decides, from the op and the facts that it declares.

To add a rewrite of a graph op: write a function of a :class:`Context` in ``rewrites/``, add its row here and its bound
to ``bounds.py``; the tests then compare every form of it with the op's reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from aneforge.compiler.legal.bounds import BOUNDS, EXACT, REORDERED, SUMMED, Bound, rounded_weights
from aneforge.compiler.legal.rewrites import functions, kernels, movement, sampling
from aneforge.compiler.legal.rewrites.context import Context, RewriteResult
from aneforge.compiler.legal.rewrites.functions import special_function, tan
from aneforge.compiler.legal.rules.status import BY_NAME
from aneforge.errors import UnknownNameError
from aneforge.graph.node import definition
from aneforge.graph.tensor import Tensor

Apply = Callable[[Context], "Tensor | RewriteResult"]


@dataclass(frozen=True)
class GraphForm:
    """How a rewrite of phase 2 is written with ops of the graph, for what leaves the compiler as a graph."""

    ops: tuple[str, ...]
    """The graph ops that lower to the op of the row."""
    apply: Apply
    takes: Callable[[Context], bool] | None = None
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rewrite:
    """One row: an op, the fact that decides, and what replaces the op."""

    name: str
    op: str
    """A graph op in phase 0, a backend op (``anec.resize``) in phase 2."""
    run_by: str
    """The pass that applies it."""
    because: str
    """The fact of a chip that decides, as passes declare it."""
    into: str
    """What replaces the op, in a sentence."""
    bound: Bound
    """The loosest bound of all forms; a record may state a tighter one."""
    apply: Apply | None = None
    """The function that builds the replacement; rows of phase 2 are applied by their pass."""
    rules: tuple[str, ...] = ()
    """The rules whose refusal of a node the row answers. Without any it answers that the chip lacks the op."""
    takes: Callable[[Context], bool] | None = None
    """Whether the form exists for a node that a rule refuses."""
    reads: tuple[str, ...] = ()
    """Further facts of a chip that ``takes`` and ``apply`` look at."""
    form: GraphForm | None = None
    """Of phase 2: the same as a graph, where the graph can say it."""

    @property
    def phase(self) -> int:
        return 0 if self.apply is not None else 2


def _graph(op: str, name: str, run_by: str, apply: Apply) -> Rewrite:
    into = (apply.__doc__ or "").strip().partition("\n")[0]
    return Rewrite(name, op, run_by, f"op:{definition(op).gate_name}", into, BOUNDS[op], apply)


def _refused(
    op: str,
    name: str,
    apply: Apply,
    because: str,
    rules: tuple[str, ...],
    bound: Bound,
    takes: Callable[[Context], bool] | None = None,
    reads: tuple[str, ...] = (),
    run_by: str = "rewrite-windows",
) -> Rewrite:
    """A row for nodes that a rule refuses because of their sizes."""
    into = (apply.__doc__ or "").strip().partition("\n")[0]
    return Rewrite(name, op, run_by, because, into, bound, apply, rules, takes, reads)


def _special(op: str, name: str) -> Rewrite:
    return _graph(op, name, "rewrite-functions", special_function(op))


@cache
def _rows() -> tuple[Rewrite, ...]:
    return (
        # Functions that a chip lacks: below A15 sine and cosine (table 35.2), the others on every chip (chapter 35).
        _special("sin", "sin-horner"),
        _special("cos", "cos-horner"),
        _graph("tan", "tan-quotient", "rewrite-functions", tan),
        _special("asin", "asin-half-angle"),
        _special("acos", "acos-quarter-angle"),
        _special("atan2", "atan2-octant"),
        _special("sinh", "sinh-tanh-cosh"),
        _special("cosh", "cosh-exp"),
        _special("asinh", "asinh-log"),
        _special("acosh", "acosh-log"),
        _special("atanh", "atanh-log"),
        _special("mod", "mod-floor"),
        _special("logical_and", "and-min"),
        _special("logical_or", "or-max"),
        _special("logical_xor", "xor-not-equal"),
        # Selecting and placing by positions that the program fixes. Gathers need the texture engine (table 35.4).
        _graph("gather", "gather-slices", "rewrite-movement", movement.gather),
        _graph("scatter", "scatter-slices", "rewrite-movement", movement.scatter),
        _graph("reverse_sequence", "reverse-sequence-slices", "rewrite-movement", movement.reverse_sequence),
        _graph("one_hot", "one-hot-compare", "rewrite-movement", movement.one_hot),
        _graph("band_part", "band-part-select", "rewrite-movement", movement.band_part),
        # Samplers that a chip lacks, where their places are stored (U19, C12). Computed places have no other form.
        *(
            _refused(
                op,
                name,
                apply,
                f"op:{op}",
                tuple(sorted(BY_NAME)),
                rounded_weights(count),
                sampling.has_stored_places,
                ("generation",),
                "rewrite-movement",
            )
            for op, name, apply, count in (
                ("resample", "stored-grid", sampling.stored_grid, 1),
                ("crop_resize", "stored-boxes", sampling.stored_boxes, 2),
            )
        ),
        # Reshapes in a row, of which the first makes an axis that is too long (coremltools writes such pairs).
        _refused(
            "reshape",
            "reshape-once",
            movement.reshaped_once,
            "cap:spatial_extent",
            ("extent",),
            EXACT,
            movement.reads_views,
            run_by="rewrite-movement",
        ),
        # Running sums and products of an axis (C43).
        _graph("cumsum", "cumsum-triangle", "rewrite-sums", functions.cumsum),
        _graph("prod", "prod-halving", "rewrite-sums", functions.prod),
        # Recurrent cells: no chip has them.
        _graph("rnn", "rnn-unrolled", "unroll-recurrent", functions.rnn),
        _graph("lstm", "lstm-unrolled", "unroll-recurrent", functions.lstm),
        _graph("gru", "gru-unrolled", "unroll-recurrent", functions.gru),
        # Random numbers: the block is off below A15 (byte 0x4a9).
        _graph("dropout", "dropout-host-mask", "draw-on-host", functions.dropout),
        _graph("random_uniform", "random-host-uniform", "draw-on-host", functions.random_uniform),
        _graph("random_normal", "random-host-normal", "draw-on-host", functions.random_normal),
        # Kernels and windows that are too large for a chip (C16, C17, U01): rewrites/kernels.py and pools.py.
        _refused(
            "conv",
            "patch-blocks",
            kernels.patches_in_blocks,
            "cap:conv_kernel_w_fp16",
            kernels.KERNEL_RULES,
            REORDERED,
            kernels.has_blocks,
            kernels.BLOCK_READS,
        ),
        _refused(
            "conv",
            "kernel-pieces",
            kernels.kernel_in_pieces,
            "cap:conv_kernel_w_fp16",
            kernels.KERNEL_RULES,
            SUMMED,
            kernels.has_pieces,
        ),
        _refused(
            "conv_transpose",
            "deconvolution-phases",
            kernels.deconvolution_in_phases,
            "cap:conv_kernel_w_fp16",
            (*kernels.KERNEL_RULES, "deconv-stride"),
            REORDERED,
            kernels.has_phases,
            ("limit:channel_extent",),
        ),
        _refused("max_pool", "max-pool-steps", movement.pool_in_steps, "cap:pool_window", ("max-pool-width",), EXACT),
        # Resizing without a texture engine (table 35.3): legalise/resizes.py `strategy`.
        Rewrite(
            "resize-deconvolution",
            "anec.resize",
            "resize-strategies",
            "texture_engine",
            "a channel-wise deconvolution by whole factors, with its edges repeated once for linear sampling",
            rounded_weights(1),
            form=GraphForm(functions.RESIZES, functions.resized_by_deconvolution),
        ),
        Rewrite(
            "resize-products",
            "anec.resize",
            "resize-strategies",
            "texture_engine",
            "each resized axis in turn on the channels, mixed there by a 1 x 1 convolution",
            rounded_weights(2),
            form=GraphForm(functions.RESIZES, functions.resized_by_products),
        ),
        # Gathers and mirrors without a texture engine: legalise/views.py.
        Rewrite(
            "gather-views",
            "anec.gather_nd",
            "gather-gate",
            "texture_engine",
            "views of runs of indices, joined",
            EXACT,
            form=GraphForm(("pad",), movement.pad_by_slices, movement.repeats_elements),
        ),
        Rewrite(
            "mirror-views",
            "anec.padding",
            "gather-gate",
            "texture_engine",
            "the tensor between views of itself that run backwards",
            EXACT,
            form=GraphForm(("pad",), movement.pad_by_slices, movement.repeats_elements),
        ),
        # Strides outside the factor list (table 35.3): legalise/strides.py `plan`.
        Rewrite(
            "stride-blocks",
            "anec.convolution",
            "large-strides",
            "factor_list",
            "blocks of pixels on the channels, then a convolution of the regrouped kernel at the rest of the stride",
            REORDERED,
            form=GraphForm(("conv",), kernels.patches_in_blocks, kernels.has_blocks, kernels.BLOCK_READS),
        ),
        Rewrite(
            "stride-view",
            "anec.convolution",
            "large-strides",
            "factor_list",
            "the convolution at stride one, then a view that reads only the rows and columns of the stride",
            EXACT,
        ),
        Rewrite(
            "blocks-by-transposes",
            "anec.pixel_unshuffle",
            "block-factors",
            "factor_list",
            "views and two transposes",
            EXACT,
        ),
        # Wide kernels where a chip was seen to rewrite them (U26): legalise/kernels.py.
        Rewrite(
            "wide-kernel-even-odd",
            "anec.convolution",
            "large-kernels",
            "large_kernel_rewrite",
            "a convolution at stride two with twice the outputs, whose halves are the even and the odd columns",
            REORDERED,
        ),
        # Kernels in a form that a chip does not read: legalise/encodings.py.
        Rewrite(
            "expand-palette",
            "anec.convolution",
            "expand-encodings",
            "palette_bits",
            "the numbers of a palette whose index width the chip does not read, as a kernel of fp16",
            EXACT,
        ),
        # The two oldest families (chapter 35): legalise/legacy.py.
        Rewrite(
            "flatten-for-reshape",
            "anec.reshape",
            "legacy-forms",
            "family8",
            "a flatten to one line for each image",
            EXACT,
        ),
        Rewrite(
            "ones-and-zeros-for-broadcast",
            "anec.broadcast",
            "legacy-forms",
            "family8",
            "a product with ones along the channels, a sum with zeros along the other axes",
            EXACT,
        ),
        Rewrite(
            "reciprocal-for-divide",
            "anec.div",
            "legacy-forms",
            "family8",
            "a product with the reciprocal of the stored divisor, which is rounded to fp16 first",
            Bound("finite x, divisors whose reciprocal fp16 holds to all its digits", 2.0**-11),
        ),
        Rewrite(
            "pool-for-reduction",
            "anec.reduce_avg",
            "legacy-forms",
            "family8",
            "a pool over the map, or several in a row where the map is larger than a window",
            SUMMED,
        ),
    )


class _Table(Mapping[str, Rewrite]):
    """The rows by name; built on first use, since importing must stay cheap."""

    def __getitem__(self, name: str) -> Rewrite:
        return _by_name()[name]

    def __iter__(self) -> Any:
        return iter(_by_name())

    def __len__(self) -> int:
        return len(_by_name())


@cache
def _by_name() -> dict[str, Rewrite]:
    return {row.name: row for row in _rows()}


REWRITES: Mapping[str, Rewrite] = _Table()
"""Every row, by name."""


def rewrite(name: str) -> Rewrite:
    if name not in _by_name():
        raise UnknownNameError(f"{name!r}: not a rewrite; choose one: {', '.join(_by_name())}")
    return _by_name()[name]


@cache
def graph_rewrites(run_by: str) -> Mapping[str, tuple[Rewrite, ...]]:
    """The rows of one pass of phase 0, by graph op; the first that applies to a node is used."""
    by_op: dict[str, tuple[Rewrite, ...]] = {}
    for row in _rows():
        if row.run_by == run_by:
            by_op[row.op] = (*by_op.get(row.op, ()), row)
    return by_op
