"""Properties of graph ops, which other modules ask for instead of keeping lists of names."""

from __future__ import annotations

from enum import Enum


class GraphTrait(Enum):
    """A property of a graph op."""

    __hash__ = object.__hash__  # members are single objects; the hash of Enum is ten times slower

    LEAF = "leaf"
    """Reads no tensor."""
    PORT = "port"
    """A leaf whose value the caller hands in."""
    STORED = "stored"
    """A leaf whose numbers are stored with the graph."""
    DRAWN = "drawn"
    """Draws its numbers, or some of them, at random."""
    POINTWISE = "pointwise"
    """Each element depends on the elements at its own place; operands stretch along axes of one."""
    FUNCTION = "function"
    """A smooth function of one tensor that the engine reads from a table, or builds from such."""
    ARITHMETIC = "arithmetic"
    """The sum, difference, product, quotient, maximum or minimum of two tensors that stretch along axes of one."""
    SCALING = "scaling"
    """Multiplies a tensor by a number where that is its other operand or its setting."""
    REDUCTION = "reduction"
    """One number for all elements along ``axes``, which stay as axes of one."""
    PRODUCT = "product"
    """Sums of products of two operands; attention and recurrent layers hold several and are none."""
    CONVOLUTION = "convolution"
    """A product whose kernel slides over a map: it has ``stride``, ``pad``, ``dilation`` and ``groups``."""
    STORED_KERNEL = "stored kernel"
    """A product whose operand 1 may be a stored kernel, with its outputs along ``OpDef.kernel_axis``."""
    POOL = "pool"
    """One number for each window of a map: it has ``kernel``, ``stride`` and ``pad``."""
    NORMALISATION = "normalisation"
    """Each element is scaled by statistics of the others, then by the gains of ``gamma`` where it takes them."""
    CENTRED = "centred"
    """A normalisation that subtracts the mean before it squares."""
    RECURRENT = "recurrent"
    """Runs over a sequence, step by step."""
    RESIZE = "resize"
    """Another number of rows and columns for a map."""
    SAMPLING = "sampling"
    """Reads a map between its elements, at places that an operand gives."""
    QUANTISER = "quantiser"
    """Between numbers and their codes in 8 bits."""
    MOVEMENT = "movement"
    """Hands on numbers of its one operand, each as it is, in another shape or order."""
    VIEW = "view"
    """A movement that keeps the order of all elements: only the shape is another."""
    SLICE = "slice"
    """A movement that keeps the elements of a box."""
    PICK = "pick"
    """Gives some of the numbers that it reads, as these are, at places that it works out or has stored."""
    SORT = "sort"
    """Picks by the order of the values."""


# Why no gradient passes through some ops; ``docs/reference/derivatives.md`` shows them.
STEP = "a step: its slope is zero or infinite"
TRUTH_VALUES = "it gives truth values"
PLACES = "it gives places, which jump"
ORDER = "it moves elements by their values; no ops for the way back are declared"
SAMPLED = "it reads between elements; no ops for the way back are declared"
