"""What the fit of the cost model starts from: plausible values with their reasons, and what is taken as published.

A constant that no measurement tells keeps its starting value; ``cost_fit.json`` says which ones those are.
"""

from __future__ import annotations

from typing import Any

TARGETS = ("h13", "h13g", "h14g", "h17", "h17s", "h18g")
ENGINES = {"h18g": 2}
TIES = {"h13": "h13g"}
"""Chips with few rows lean on another of the same generation."""

# In the order of TARGETS: calls in us, rates per us (bytes, multiply-adds, elements), plain factors; then the pull
# towards them, and why these.
CHIP: dict[str, tuple[tuple[float, ...], float, str]] = {
    "host_call": ((200, 200, 90, 80, 75, 170), 0.12, "the smallest calls of each machine"),
    "coreml_call": ((200, 200, 150, 110, 110, 145), 0.12, "the M6's floor of 160, the others by their host calls"),
    "direct_call": ((140, 140, 100, 80, 80, 100), 0.12, "a host call less its copies"),
    "device_task": ((60, 60, 40, 30, 30, 22), 0.12, "the M6's fixed task of 25.5, slower before it"),
    "host_in": ((8e3, 12e3, 14e3, 22e3, 24e3, 20e3), 0.12, "streaming rates of the machines"),
    "host_out": ((8e3, 7e3, 9e3, 22e3, 24e3, 20e3), 0.12, "streaming rates of the machines"),
    "coreml_io": ((20e3, 20e3, 25e3, 35e3, 40e3, 60e3), 0.12, "faster than a host's copies"),
    "macs": ((5.8e6, 5.9e6, 8e6, 9e6, 10e6, 9.9e6), 1.0, "published slopes: 12, 15.8, 19.6 and 20.6 TFLOPS"),
    "linear": ((0.8, 0.8, 0.7, 0.87, 0.87, 0.95), 0.5, "large products against convolutions of the same machine"),
    "integers": ((1, 1, 1, 1.89, 1.89, 1.6), 0.12, "none before the M4; 35.1 over 18.6 on it"),
    "weights": ((60e3, 60e3, 60e3, 90e3, 150e3, 145e3), 0.12, "published streams: 51, 145 and 150 GB/s"),
    "reread": ((100e3, 100e3, 120e3, 130e3, 150e3, 150e3), 0.12, "products of 4096 on each machine"),
    "planar": ((50e3, 50e3, 60e3, 90e3, 100e3, 250e3), 0.6, "the M6's chains, the others by clock and engines"),
    "norms": ((20e3, 30e3, 30e3, 40e3, 50e3, 50e3), 0.12, "half of the planar rate"),
    "spill": ((20e3, 24e3, 30e3, 40e3, 40e3, 80e3), 0.12, "activation streams: 24 GB/s on an M1, 35 to 40 on an M6"),
    "l2": ((400e3, 400e3, 600e3, 1.2e6, 1.3e6, 1.8e6), 0.4, "chains of wide layers on the M6, the others by clock"),
    "layer": ((1.0, 1.0, 0.8, 0.4, 0.25, 0.15), 0.2, "chains of many small layers"),
    "int8_bytes": ((2.0, 2.0, 1.1, 1.4, 2.0, 1.0), 0.12, "2 where the weights are folded to fp16"),
    "palette_bytes": ((2.0, 2.0, 2.0, 2.0, 2.0, 1.1), 0.12, "int4 is 1.6 to 2.4 times faster, not four"),
    "sparse_bytes": ((1.2, 1.2, 1.2, 1.2, 1.1, 1.0), 0.12, "mask and kept values"),
}
SHARED: dict[str, tuple[float, str]] = {
    "winograd": (1.4, "31 against 20.6 TFLOPS on an M6"),
    "computed_operand": (0.3, "attention against products with stored weights"),
    "skipped_zeros": (0.8, "sparse chains of the M6"),
    "working_set": (3e6, "knees at 2.3 and 4.7 MB"),
    "softmax": (2.0, "elements of work for one"),
    "layer_norm": (8.0, "elements of work for one"),
    "rms_norm": (15.0, "elements of work for one"),
    "group_norm": (2.0, "elements of work for one"),
    "reduce_sum": (0.3, "elements of work for one"),
    "transpose": (1.0, "elements of work for one"),
    "move": (1.0, "elements of work for one"),
    "second_operand": (3.0, "elements of work for one"),
    "spilled_planar": (0.5, "what computing does not hide of it"),
    "small_norm": (8e3, "elements of a norm at which it takes half of its usual time for each"),
    "ranked_start": (9.0, "us beyond the smallest calls"),
    "ranked_row": (70.0, "us for each row but the first"),
}
STATED: dict[str, dict[str, Any]] = {
    "host_row": {
        "v": 2.3e-5,
        "src": ["AF.cost"],
        "conf": "inferred",
        "note": "calls, for each row that is no whole line of 64 bytes: 1.8 ns on an M5 Pro. Eleven calls of 8, 14, "
        "16 and 28 places a side take up to 82 us more than the rest says, by their rows and bytes; two of an M1 Max "
        "2.6 times as much, as its calls do",
    },
    "host_row_byte": {"v": 8.5e-7, "src": ["AF.cost"], "conf": "inferred", "note": "calls, for each byte of them"},
    "lanes": {"v": 16, "src": ["M6.arr"], "conf": "measured", "note": "channels are taken in groups of so many"},
    "kernel_memory": {
        "v": 524288,
        "src": ["S24", "M6.arr"],
        "conf": "inferred",
        "note": "half of 16 times the 64 KiB of one core, the other half being filled; products of 4096 and 6144 and "
        "chains of 512 and 528 channels fall on either side of it",
    },
    "resident_input": {
        "v": 1.5e6,
        "src": ["AF.comp"],
        "conf": "inferred",
        "note": "an input of 1 MB passes the engine 64 times without loss, one of 2 MB does not",
    },
    "wide_kernel": {"v": 9, "src": ["M6.arr"], "conf": "measured", "note": "widths from which places are padded"},
    "wide_positions": {"v": 256, "src": ["M6.arr"], "conf": "measured", "note": "places that an engine takes then"},
    "shared_positions": {
        "v": 256,
        "src": ["M6.arr"],
        "conf": "measured",
        "note": "places from which both engines of an M6 take part",
    },
    "shared_elements": {
        "v": 4e5,
        "src": ["M6.arr"],
        "conf": "inferred",
        "note": "elements from which a sum of two tensors runs on both engines of an M6",
    },
    "spilled_product": {"v": 0.25, "conf": "inferred", "note": "what computing does not hide: the unit of spill"},
    "device_io": {"v": 0.5, "conf": "inferred", "note": "the engine's part of a call's copies"},
}  # fmt: skip

# What is published of a chip, in the model's units; a chip that nobody measured starts from it.
PUBLISHED: dict[str, dict[str, dict[str, Any]]] = {
    "h13g": {
        "macs": {"v": 6e6, "src": ["G09"], "conf": "measured", "note": "12 TFLOPS as a slope"},
        "weights": {"v": 51e3, "src": ["G09"], "conf": "measured"},
    },
    "h17s": {
        "macs": {"v": 9.8e6, "src": ["G09"], "conf": "measured", "note": "19.6 TFLOPS as a slope"},
        "weights": {"v": 145e3, "src": ["G09"], "conf": "measured"},
    },
    "h18g": {
        "macs": {"v": 10.3e6, "src": ["M6.arr"], "conf": "measured", "note": "20.6 TFLOPS of one engine"},
        "weights": {"v": 150e3, "src": ["M6.mem"], "conf": "measured"},
    },
    "h16g": {
        "macs": {"v": 9.3e6, "src": ["MX", "M6.arr"], "conf": "measured", "note": "18.6 TFLOPS"},
        "weights": {"v": 67e3, "src": ["MX", "M6.arr"], "conf": "measured"},
        "integers": {"v": 1.89, "src": ["MX", "M6.arr"], "conf": "measured", "note": "35.1 TOPS over 18.6 TFLOPS"},
    },
    "h15g": {"macs": {"v": 8.4e6, "src": ["MX"], "conf": "measured", "note": "16.77 TFLOPS at most, an M3 Pro"}},
}
POWER: dict[str, dict[str, Any]] = {
    "h13": {"v": 5.5, "src": ["G10"], "conf": "measured", "note": "a steady stack of convolutions"},
    "h18g": {"v": 10.8, "src": ["M6.pwr"], "conf": "measured", "note": "both engines; one takes 6.2"},
}
"""Watts of an engine under full load, where they are published apart from the rows."""
NEAREST = {"h13": "h13g", "h13g": "h14g", "h14g": "h17", "h17": "h17s", "h17s": "h17", "h18g": "h17s"}
"""Whose constants a target would get if nobody had measured it."""

ONE_CORE_RATE = {"v": 0.109, "src": ["AF.curves"], "conf": "predicted", "note": "of an M1, by the clock curve of m11"}
ONE_CORE_READS = {"v": 0.25, "src": ["AF.cost"], "conf": "predicted", "note": "of an M1: reads go with cores"}
EXTRAPOLATION: list[dict[str, Any]] = [
    {
        "generations": [17],
        "from": "h17",
        "constants": PUBLISHED["h16g"],
        "taken": {"coreml_call": "h18g", "device_task": "h18g", "coreml_io": "h18g", "layer": "h18g", "l2": "h18g",
                  "host_in": "h13g", "host_out": "h13g", "host_call": "h17s"},
        "rule": "the M5's constants with the products and weight reads that are published for an M4; the Core ML call "
        "as on an M6, which the same study measured; a host's copies as on the M1 Max, whose published streaming rate "
        "(7.4 GB/s) is next to the M4's (7.7; U57)",
    },
    {
        "targets": ["m9", "m11", "m12"],
        "from": "h13",
        "scaled": {**dict.fromkeys(("macs", "planar", "norms"), ONE_CORE_RATE),
                   **dict.fromkeys(("weights", "reread", "spill", "l2"), ONE_CORE_READS)},
        "rule": "the M1's constants, scaled by the compiler's own clock curve of m11: an engine of one core (U59)",
    },
    {
        "generations": [1, 4, 5, 6, 7],
        "from": "h13",
        "rule": "the M1's constants: no nearer chip was measured",
    },
    {
        "generations": [8],
        "from": "h14g",
        "constants": PUBLISHED["h15g"],
        "rule": "the M2's constants with the products that are published for an M3 Pro: no nearer chip was measured",
    },
    {"generations": [11], "from": "h14g", "rule": "the M2's constants: the same generation"},
    {
        "targets": ["h17c", "h17d"],
        "from": "h17s",
        "rule": "the M5 Pro's constants: the measured die with the most cores of the same generation",
    },
    {"generations": [19], "from": "h17", "rule": "the M5's constants: the same generation"},
    {"generations": [20, 24], "from": "h18g", "rule": "one engine of the M6: no nearer chip was measured"},
]  # fmt: skip
