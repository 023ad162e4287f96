"""Properties of kinds of ops, which passes and consumers ask for instead of keeping lists of names.

A trait states one property of every op that has it, whatever its attributes. :mod:`aneforge.engine.spec` declares the
traits of each op; ``op.is_a(Trait.POOL)`` asks about one op and ``kinds_with(Trait.POOL)`` gives all kinds.
"""

from __future__ import annotations

from enum import Enum


class Trait(Enum):
    """A property of a kind of op."""

    __hash__ = object.__hash__  # members are single objects; the hash of Enum is ten times slower

    PORT = "port"
    """The border of a program or a stored constant: no engine layer, no work."""
    INPUT = "input"
    """The caller gives its value, by the name in ``name``."""
    POINTWISE = "pointwise"
    """Each element of the result depends on the elements at its own place; operands stretch along axes of one."""
    COMPARISON = "comparison"
    """Gives truth values: the result is ``i1``."""
    ACTIVATION = "activation"
    """Runs in the activation slot of another layer. Taken from the target data, not declared."""
    IDEMPOTENT = "idempotent"
    """Applied twice, it gives the same as applied once."""
    AFFINE = "affine"
    """Work of the unit that scales and shifts (the ``goc`` slot)."""
    CONTRACTION = "contraction"
    """Sums of products of two operands in the multiply-accumulate array; attention is not one, it is ``NATIVE``."""
    CONVOLUTION = "convolution"
    """A contraction whose kernel slides over D, H and W: it has ``kernel_sizes``, ``strides`` and ``groups``."""
    STORED_KERNEL = "stored kernel"
    """Operand 1 is a kernel that lies in kernel memory as a whole when it is a constant."""
    POOL = "pool"
    """One number for each window over D, H and W: it has ``ksize``, ``stride`` and ``padding``."""
    REDUCTION = "reduction"
    """One number for all elements along ``axes``, which stay as axes of one."""
    NORMALISATION = "normalisation"
    """Each element is scaled by statistics of the elements along ``axes``; the shape stays."""
    MOVEMENT = "movement"
    """Passes on elements of its operands, or a fill value, at other places; no number changes."""
    VIEW = "view"
    """The same bytes under another shape. A ``flatten_mode`` other than NCHW moves bytes all the same."""
    EXACT = "exact"
    """Nothing is rounded: it moves, picks, compares or clamps numbers. ``square_input`` adds a rounding."""
    TEXTURE = "texture"
    """Samples between the elements of a map on the texture engine (the ``texture`` slot)."""
    NATIVE = "native"
    """A native layer: it runs as a segment of its own and takes part in no fusion."""
    RING = "ring"
    """Works on a buffer that outlives the run."""
    HOST = "host"
    """Opens a layer with free epilogue slots, which ops behind it can take (fusion.json)."""
    IN_PLACE = "in place"
    """May write its result over an operand of the same type."""
