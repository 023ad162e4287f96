"""The simulator's arithmetic on a GPU: the same bits as on the CPU, many samples at a time.

``device`` starts kernels on an NVIDIA GPU (its driver and NVRTC, no other library), ``emulated`` runs the same source
on a CPU for tests, ``kernels`` says what each takes, ``rules`` how an op becomes kernels, and ``plan`` runs a program.
"""

from __future__ import annotations

DEVICES = ("cpu", "cuda")
"""Where a batch can be simulated."""
