"""What the fit of the cost model starts from: plausible values with their reasons, and what is taken as published.

A coefficient that no measurement tells keeps its starting value; ``cost_fit.json`` says which ones those are.
"""

from __future__ import annotations

from typing import Any

# Where each coefficient starts, how strongly it is held there, and why there. Those of the laws of ``cost/laws.py``
# first (shares of an engine's announced rate or of the memory's bandwidth; us on an engine of the M1's rate), then
# what every chip shares.
COEFFICIENTS: dict[str, tuple[float, float, str]] = {
    "macs": (1.0, 0.5, "the announced rate"),
    "linear": (0.85, 0.3, "large products against convolutions of the same machine"),
    "integers": (1.7, 0.1, "35.1 TOPS over 18.6 TFLOPS on an M4"),
    "weights_memory": (1.0, 0.3, "all of the memory's bandwidth"),
    "weights_engine": (0.015, 0.1, "published streams of 145 and 150 GB/s"),
    "weights_stream": (1.0, 0.3, "what is published of the stream itself"),
    "spill": (1.2, 0.2, "four times the activation streams of 24 GB/s on an M1: most of it is hidden"),
    "reread": (0.02, 0.1, "products of 4096 on each machine"),
    "l2": (0.2, 0.3, "chains of wide layers on the M6"),
    "planar": (0.02, 0.3, "the M6's chains"),
    "norms": (0.003, 0.1, "less than the planar rate"),
    "copy": (0.015, 0.1, "slower than the memory's bandwidth"),
    "layer": (0.3, 0.2, "chains of many small layers"),
    "phone_call": (350.0, 0.1, "the smallest networks on an iPhone"),
    "newer_call": (0.7, 0.5, "0.13 to 0.45 ms for the smallest networks on newer phones"),
    "mac_call": (150.0, 0.1, "the M6's floor of 160"),
    "coreai_call": (120.0, 0.1, "as a call of Core ML"),
    "app_call": (400.0, 0.1, "an MLPerf app against Xcode's report"),
    "metal_call": (200.0, 0.1, "small graphs on an M4 Pro, less a call on bound surfaces"),
    "host_call": (110.0, 0.1, "the smallest calls of each machine"),
    "direct_call": (90.0, 0.1, "a host call less its copies"),
    "device_task": (40.0, 0.1, "the M6's fixed task of 25.5"),
    "host_in": (18e3, 0.1, "streaming rates of the machines"),
    "host_out": (15e3, 0.1, "streaming rates of the machines"),
    "host_in_published": (1.0, 0.1, "what is published of the machine's copies"),
    "host_out_published": (1.0, 0.1, "what is published of the machine's copies"),
    "coreml_io": (40e3, 0.1, "faster than a host's copies"),
    "int8_bytes": (1.4, 0.1, "2 where the weights are folded to fp16"),
    "palette_bytes": (1.8, 0.1, "int4 is 1.6 to 2.4 times faster, not four"),
    "sparse_bytes": (1.1, 0.1, "mask and kept values"),
    "notch": (0.4, 0.3, "19 of 63 GB/s on an M3, 24 to 35 of 64 on an M4"),
    "winograd": (1.4, 0.12, "31 against 20.6 TFLOPS on an M6"),
    "computed_operand": (0.3, 0.12, "attention against products with stored weights"),
    "group_lanes": (25.0, 0.12, "depthwise convolutions against dense ones"),
    "skipped_zeros": (0.8, 0.12, "sparse chains of the M6"),
    "working_set": (3e6, 0.12, "knees at 2.3 and 4.7 MB"),
    "softmax": (2.0, 0.12, "elements of work for one"),
    "layer_norm": (8.0, 0.12, "elements of work for one"),
    "rms_norm": (15.0, 0.12, "elements of work for one"),
    "converted_norm": (4.0, 0.12, "elements of work for one"),
    "group_norm": (2.0, 0.12, "elements of work for one"),
    "reduce_sum": (0.3, 0.12, "elements of work for one"),
    "second_operand": (3.0, 0.12, "elements of work for one"),
    "small_norm": (3e4, 0.12, "elements of a norm at which it takes half of its usual time for each"),
    "ranked_start": (9.0, 0.12, "us beyond the smallest calls"),
    "ranked_element": (0.007, 0.12, "us for each number: 128 and 2,048 of them"),
    "streamed": (1.0, 0.3, "as what products spill"),
}
ENGINE: dict[str, float] = {
    "macs": 1.5, "copy": 0.5, "l2": 0.8, "planar": 0.8, "norms": 0.8, "layer": 0.6, "device_task": 0.5, "linear": 0.8,
    "reread": 0.5, "integers": 0.5, "int8_bytes": 0.3, "palette_bytes": 0.3, "sparse_bytes": 0.5,
    "notch": 0.5,
}  # fmt: skip
"""The constants on which the engine of a measured generation has a factor of its own, and how strongly it is held to
one. All products of a generation have the same engine."""
MACHINE: dict[str, float] = {
    "weights": 0.5, "spill": 0.5, "coreml_call": 0.25, "coreai_call": 0.5, "direct_call": 0.5, "host_call": 0.3,
    "host_in": 0.3, "host_out": 0.3, "coreml_io": 0.5,
}  # fmt: skip
"""The same for the machine around the engine, by product: its memory and its calls."""

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
    "notch_multiple": {
        "v": 1048576,
        "src": ["EIL", "SHC", "SLP"],
        "conf": "measured",
        "note": "bytes of one core's share of the weights that stream slowly, as multiples of it do (C69)",
    },
    "notch_window": {
        "v": 16384,
        "src": ["EIL"],
        "conf": "measured",
        "note": "bytes off a multiple from which the full rate is back (C69)",
    },
    "deep_numbers": {
        "v": 8192,
        "src": ["SLP"],
        "conf": "inferred",
        "note": "numbers of a sum above which the rate halves; measured between 4,608 and 9,216 (C74, U221)",
    },
    "deep_codes": {
        "v": 32768,
        "src": ["SLP"],
        "conf": "inferred",
        "note": "the same with int8 on both sides; between 32,000 and 36,864 as measured (C74)",
    },
    "deep_kernel": {"v": 0.5, "src": ["SLP"], "conf": "measured", "note": "of the rate (C74)"},
    "turned_place": {
        "v": 2.04e-3,
        "src": ["QWA"],
        "conf": "inferred",
        "note": "us for each place of a map whose channels are summed up (C79, U222)",
    },
    "device_io": {"v": 0.5, "conf": "inferred", "note": "the engine's part of a call's copies"},
}  # fmt: skip

GATES: dict[str, dict[str, Any]] = {
    "skips_zeros": {
        "generations": [19, 20, 24],
        "src": ["LA.zero"],
        "conf": "measured",
        "note": "exact zeros in plain weights run 1.88 times faster on an M5 Pro, and not on an M4 (C54)",
    },
    "narrow_kernels": {
        "generations": [11, 19],
        "src": ["TRI", "QWA"],
        "conf": "measured",
        "note": "int8 weights lift the rate that the contraction limits on an M2 Pro (C59); on an M5 Max int8 and "
        "four bits do, by their stored width (C70); rows of an M6 are no better with it (U224)",
    },
    "notch": {
        "products": ["A17 Pro", "M3", "M4", "M5"],
        "src": ["EIL", "SHC", "SLP", "AP"],
        "conf": "measured",
        "note": "an M3 and an M4 (C69); an M5 and an A17 Pro, where 4096 x 4096 streams at a third of the rate of "
        "3584 x 3584 and 5120 x 5120 (C53); an M5 Pro and an M5 Max are free of it, so larger dies are (U220)",
    },
    "slow_when_deep": {
        "generations": [17],
        "src": ["SLP"],
        "conf": "measured",
        "note": "an M4 (C74); no other generation showed it (U221)",
    },
}
"""What an engine can do that no coefficient says, by descriptor generation."""

POWER: dict[str, dict[str, Any]] = {
    "h13": {"v": 5.5, "src": ["G10"], "conf": "measured", "note": "a steady stack of convolutions"},
    "h18g": {"v": 10.8, "src": ["M6.pwr"], "conf": "measured", "note": "both engines; one takes 6.2"},
}
"""Watts of an engine under full load, where they are published apart from the rows."""
