"""Reference tables of the seed documents, typed by hand as plain Python data.

Every constant below repeats one table (or listing) of a seed document the way the document prints it: chapter 24
(HAL fields and gates), chapter 35 (per-family code generation), chapter 22 (validators), chapter 26 (native layer
classes) and the cross-chip page. Numbers, offsets, field names and symbol names are exact; sizes are bytes; longer
descriptions are shortened. The module does not read the JSON facts, so a test that compares the package with these
rows checks the facts against a second, separate reading. A seed cell that loses to a measured value keeps its printed
value here and is named in OVERRIDDEN; a seed cell that stands, but only for some routes, builds or chips, is named in
QUALIFIED. Column keys: "h13" is the M1 (H13) column, "A14" to "A18" are the generation anchors.
"""

KB = 1024
MB = 1024 * 1024

# --------------------------------------------------------------------------------------------------------------------
# Chapter 24: HAL and capability gates
# --------------------------------------------------------------------------------------------------------------------

# steps: (generation, value from there on). suffix_steps: (die suffix, value), letters from the text under table 24.4.
# exceptions: (target or group of targets, value). changes_at: the last column in words.
TABLE_24_1 = [
    {
        "offset": 0x1B8,
        "field": "max_operand_bytes",
        "meaning": "on-chip SRAM working set",
        "h13": 2 * MB,
        "steps": [],
        "suffix_steps": [],
        "exceptions": [("m9", 1 * MB)],
        "changes_at": "constant across the line (1 MB on M9)",
    },
    {
        "offset": 0x1C0,
        "field": "dram_alignment",
        "meaning": "DMA width granule in bytes",
        "h13": 16,
        "steps": [],
        "suffix_steps": [],
        "exceptions": [("small profiles", 1)],
        "changes_at": "constant (1 only on the small profiles)",
    },
    {
        "offset": 0x1C8,
        "field": "l2_bank_align",
        "meaning": "DMA bank-conflict modulo",
        "h13": 64,
        "steps": [],
        "suffix_steps": [],
        "exceptions": [],
        "changes_at": "constant",
    },
    {
        "offset": 0x1F0,
        "field": "L2-resident buffer threshold",
        "meaning": "dedicated-buffer trip",
        "h13": 0,
        "steps": [("A15", 32768), ("A16", 262144)],
        "suffix_steps": [],
        "exceptions": [],
        "changes_at": "32768 at A15, 262144 at A16",
    },
    {
        "offset": 0x200,
        "field": "dense kernel-memory cap",
        "meaning": "non-streamed weight ceiling",
        "h13": 64 * KB,
        "steps": [],
        "suffix_steps": [],
        "exceptions": [],
        "changes_at": "the fold-path budget",
    },
    {
        "offset": 0x210,
        "field": "streamed kernel-memory cap",
        "meaning": "streamed weight ceiling",
        "h13": 16 * MB,
        "steps": [],
        "suffix_steps": [],
        "exceptions": [],
        "changes_at": "the stream-path budget",
    },
    {
        "offset": 0x218,
        "field": "instruction or segment alignment",
        "meaning": "record packing granule",
        "h13": 256,
        "steps": [("A14", 16)],
        "suffix_steps": [],
        "exceptions": [],
        "changes_at": "16 at A14",
    },
    {
        "offset": 0x228,
        "field": "ne_perf_cycle_divisor",
        "meaning": "cost-model per-cycle divisor",
        "h13": 64,
        "steps": [],
        "suffix_steps": [],
        "exceptions": [("h11", 32), ("m9", 16)],
        "changes_at": "32 on H11, 16 on M9",
    },
    {
        "offset": 0x238,
        "field": "num_nes",
        "meaning": "NE-core count",
        "h13": 4,
        "steps": [],
        "suffix_steps": [("", 4), ("g", 8), ("s", 16), ("c", 32), ("d", 64)],
        "exceptions": [],
        "changes_at": "die-keyed: 4, 8, 16, 32, 64",
    },
    {
        "offset": 0x288,
        "field": "extended dual-kernel-memory mode",
        "meaning": "16 MB versus 64 KB select",
        "h13": 0,
        "steps": [],
        "suffix_steps": [],
        "exceptions": [],
        "changes_at": "0 on all 28 targets",
    },
    {
        "offset": 0x70,
        "field": "max_large_conv_kernel_dim_z",
        "meaning": "3D-conv kernel depth",
        "h13": 16,
        "steps": [],
        "suffix_steps": [],
        "exceptions": [("below A13", 1)],
        "changes_at": "capability attested at A13 (1 below)",
    },
    {
        "offset": 0x138,
        "field": "max_tensor_width",
        "meaning": "maximum tensor width",
        "h13": 16384,
        "steps": [("A16", 65536)],
        "suffix_steps": [],
        "exceptions": [],
        "changes_at": "65536 at A16",
    },
    {
        "offset": 0x158,
        "field": "max_tensor_depth",
        "meaning": "maximum tensor depth",
        "h13": 16384,
        "steps": [("A16", 65536)],
        "suffix_steps": [],
        "exceptions": [("below A13", 1)],
        "changes_at": "1 below A13, 65536 at A16",
    },
    {
        "offset": 0x3F0,
        "field": "reduction-via-transpose extent",
        "meaning": "reduction route threshold",
        "h13": 192,
        "steps": [("A15", 384)],
        "suffix_steps": [],
        "exceptions": [],
        "changes_at": "384 at A15",
    },
    {
        # The number in front of "-pixel" is a formula that the seed text lost.
        "offset": 0x400,
        "field": "pe_min_patch_width_log2",
        "meaning": "pixel tiling floor",
        "h13": 4,
        "steps": [],
        "suffix_steps": [],
        "exceptions": [],
        "changes_at": "constant M1 and M5",
    },
    {
        # "None" is the policy name that the other profiles hold, not a missing value.
        "offset": 0x580,
        "field": "cost-model policy name",
        "meaning": "roofline anchor string",
        "h13": "Simple",
        "steps": [],
        "suffix_steps": [],
        "exceptions": [("older and small profiles", "None")],
        "changes_at": "None on older and small profiles",
    },
    {
        "offset": 0x668,
        "field": "interchange-format map size",
        "meaning": "count of accepted image formats",
        "h13": 3,
        "steps": [("A14", 13), ("A15", 16), ("A16", 14)],
        "suffix_steps": [],
        "exceptions": [],
        "changes_at": "13 at A14, 16 at A15, 14 at A16",
    },
]

TABLE_24_2 = [
    {
        "floor": "F0",
        "floor_index": 0,
        "native_on": "all families",
        "first_family": "A11Legacy",
        "ops": ["conv", "matmul", "pooling", "elementwise", "reshape", "transpose", "concat"],
    },
    {
        "floor": "F2 (A13+)",
        "floor_index": 2,
        "native_on": "A13 onward",
        "first_family": "A13",
        "ops": ["softmax", "layer_norm", "instance_norm", "batch_norm", "reductions", "sdpa", "erf", "sqrt"],
    },
    {
        "floor": "F3 (A14+)",
        "floor_index": 3,
        "native_on": "A14 onward",
        "first_family": "A14",
        "ops": ["crop_resize", "resample"],
    },
    {
        "floor": "F4 (A15+)",
        "floor_index": 4,
        "native_on": "A15 onward",
        "first_family": "A15",
        "ops": ["sin", "cos", "global_arg_min_max"],
    },
]

# This table has no A17 column.
TABLE_24_3 = [
    {
        "offset": 0x48F,
        "gate": "kernel-streaming master, the 64 KB to 16 MB select",
        "h13": 1,
        "A14": 1,
        "A15": 1,
        "A16": 1,
        "A18": 1,
    },
    {"offset": 0x494, "gate": "square-after-reduction fusion", "h13": 0, "A14": 1, "A15": 1, "A16": 1, "A18": 1},
    {"offset": 0x4A9, "gate": "dropout and random", "h13": 0, "A14": 0, "A15": 1, "A16": 1, "A18": 1},
    {"offset": 0x4F2, "gate": "global argmin and argmax", "h13": 1, "A14": 1, "A15": 1, "A16": 1, "A18": 1},
    {
        "offset": 0x529,
        "gate": "per-format kernel-stride enable, the palette stream",
        "h13": 1,
        "A14": 1,
        "A15": 1,
        "A16": 1,
        "A18": 1,
    },
    {"offset": 0x52D, "gate": "fp8 E4M3 kernel format", "h13": 0, "A14": 0, "A15": 0, "A16": 0, "A18": 1},
    {"offset": 0x563, "gate": "FIFO-mode direct memory access", "h13": 0, "A14": 0, "A15": 0, "A16": 0, "A18": 1},
    {"offset": 0x815, "gate": "softmax, native", "h13": 1, "A14": 1, "A15": 1, "A16": 1, "A18": 1},
    {"offset": 0x816, "gate": "instance normalization, native", "h13": 1, "A14": 1, "A15": 1, "A16": 1, "A18": 1},
    {
        "offset": 0x81A,
        "gate": "local-response normalization, native",
        "h13": 1,
        "A14": 1,
        "A15": 1,
        "A16": 1,
        "A18": 1,
    },
    {"offset": 0x81D, "gate": "texture engine", "h13": 0, "A14": 1, "A15": 1, "A16": 1, "A18": 1},
]

# (column key, heading as printed, target whose profile the column shows). The text under the table says that the last
# column is the 16-core Pro-class profile and that the base A17 profile has 4 cores; the other columns show 4 cores,
# so they are the base names.
TABLE_24_4_COLUMNS = [
    ("h13", "M1 (H13)", "h13"),
    ("A14", "A14", "h14"),
    ("A15", "A15", "h15"),
    ("A16", "A16 (M4)", "h16"),
    ("A17", "A17 (M5)", "h17s"),
]

TABLE_24_4 = [
    {"offset": 0x238, "field": "num_nes", "h13": 4, "A14": 4, "A15": 4, "A16": 4, "A17": 16},
    {
        "offset": 0x1B8,
        "field": "max_operand_bytes",
        "h13": 2 * MB,
        "A14": 2 * MB,
        "A15": 2 * MB,
        "A16": 2 * MB,
        "A17": 2 * MB,
    },
    {
        "offset": 0x138,
        "field": "max_tensor_width",
        "h13": 16384,
        "A14": 16384,
        "A15": 16384,
        "A16": 65536,
        "A17": 65536,
    },
    {
        "offset": 0x158,
        "field": "max_tensor_depth",
        "h13": 16384,
        "A14": 16384,
        "A15": 16384,
        "A16": 65536,
        "A17": 65536,
    },
    {"offset": 0x70, "field": "max_large_conv_kernel_dim_z", "h13": 16, "A14": 16, "A15": 16, "A16": 16, "A17": 16},
    {
        "offset": 0x1F0,
        "field": "L2-resident threshold",
        "h13": 0,
        "A14": 0,
        "A15": 32768,
        "A16": 262144,
        "A17": 262144,
    },
    {"offset": 0x218, "field": "instruction alignment", "h13": 256, "A14": 16, "A15": 16, "A16": 16, "A17": 16},
    {
        "offset": 0x3F0,
        "field": "reduction-transpose extent",
        "h13": 192,
        "A14": 192,
        "A15": 384,
        "A16": 384,
        "A17": 384,
    },
    {"offset": 0x668, "field": "interchange-format count", "h13": 3, "A14": 13, "A15": 16, "A16": 14, "A17": 14},
]

# (offset, field, reader function)
TABLE_24_5 = [
    (0x4A8, "PE work-unit-shape supported", "PERasterization::ComputeWUShape"),
    (0x4AC, "small-source-mode compression supported", "ZinANELayer::AllowCompressionBasedOnSmallSourceMode"),
    (0x4B0, "non-power-of-2 work-unit width supported", "NERasterization::CanUseNonPowerOf2WUs"),
    (0x4F0, "preferred kernel layout format", "ZinIrKernel::GetPreferredKernelLayoutFormat"),
    (0x500, "transpose and multicast configuration", "ZinNELayer::FindValidMirInfoForTransposeCore"),
    (0x520, "secure-mode cache-hint DSID gate", "GetDSIDFromPriorityHalAndSecureMode"),
    (
        0x52C,
        "tensor-format support flag, pairs with the named 0x52d fp8 byte",
        "ZinLayerValidationUtils::ValidateFormat",
    ),
    (
        0x54C,
        "cache-prefetch kernel-task-interval limit",
        "ZinValidateTd<17>::ValidateCachePrefetchKernelTaskInterval",
    ),
    (0x5A8, "cache-hint DSID value", "GetDSIDFromPriorityHalAndSecureMode"),
    (0x708, "reflective-padding maximum extent", "ZinValidateTd<20>::ValidateReflectivePaddingMode"),
    (0x748, "gather and texture-engine descriptor pointer", "ZinGatherLayer::CreateTELayer"),
    (0x8B4, "tile-height-errata threshold", "ZinTileHeightErrata::Workaround"),
    (0x8BC, "chaining enabled", "ZinIrRegAllocUtil::IsChainable"),
    (0x8E0, "kernel-caching enabled", "ZinIrTdValidationUtil::ValidateKernelCaching<N>"),
]

# --------------------------------------------------------------------------------------------------------------------
# Chapter 35: per-family code generation
# --------------------------------------------------------------------------------------------------------------------

# (family name, enum value)
LISTING_35_1 = [
    ("A11Legacy", 0),
    ("A12", 1),
    ("A13", 2),
    ("A14", 3),
    ("A15", 4),
    ("A16", 5),
    ("A17", 6),
    ("A18", 7),
]

# (hardware version, family name, family index, targets), in the printed order: version 8 comes before version 7.
TABLE_35_1 = [
    (1, "A11Legacy", 0, ["h11"]),
    (3, "A12", 1, ["h12"]),
    (4, "A13", 2, ["h13", "h13g", "t1"]),
    (5, "A14", 3, ["h14", "h14g", "h14c"]),
    (6, "A15", 4, ["h15", "h15g", "h15c"]),
    (8, "A15", 4, ["h16", "h16g", "h16c", "h16s"]),
    (7, "A16", 5, ["h17", "h17a", "h17g", "h17c", "h17d"]),
    (9, "A17", 6, ["h17s"]),
    (10, "A17", 6, ["h18"]),
]

TABLE_35_2 = [
    {
        "floor": "F0",
        "floor_index": 0,
        "native_on": "all 8 families",
        "native_families": ["A11Legacy", "A12", "A13", "A14", "A15", "A16", "A17", "A18"],
        "ops": [
            "conv",
            "deconv",
            "matmul",
            "pooling",
            "elementwise",
            "reshape",
            "transpose",
            "concat",
            "sigmoid",
            "tanh",
            "relu",
            "gelu",
            "swish",
            "quantize",
            "dequantize",
        ],
    },
    {
        "floor": "F2 (A13+)",
        "floor_index": 2,
        "native_on": "A13 through A18",
        "native_families": ["A13", "A14", "A15", "A16", "A17", "A18"],
        "ops": [
            "softmax",
            "layer_norm",
            "instance_norm",
            "batch_norm",
            "reductions",
            "resize",
            "sdpa",
            "erf",
            "exp2",
            "rsqrt",
            "sqrt",
            "tile",
            "space_to_channel",
        ],
    },
    {
        "floor": "F3 (A14+)",
        "floor_index": 3,
        "native_on": "A14 through A18",
        "native_families": ["A14", "A15", "A16", "A17", "A18"],
        "ops": ["crop_resize", "resample"],
    },
    {
        "floor": "F4 (A15+)",
        "floor_index": 4,
        "native_on": "A15 through A18",
        "native_families": ["A15", "A16", "A17", "A18"],
        "ops": ["sin", "cos", "global_arg_min_max"],
    },
]

TABLE_35_3 = [
    {
        "category": "width slice",
        "op": "slice",
        "divergence": "M1 saturates on the Q.4 crop route, M5 stays in fp16",
        "driven_by": ["patch-width clamps", "width granule"],
    },
    {
        "category": "resize",
        "op": "resize",
        "divergence": "three strategies, rounding differs by chip",
        "driven_by": ["texture-engine-present flag"],
    },
    {
        "category": "matmul",
        "op": "matmul",
        "divergence": "becomes a resident convolution, splits along height",
        "driven_by": ["copy-cast threshold", "max-tensor-size threshold"],
    },
    {
        "category": "transpose",
        "op": "transpose",
        "divergence": "native within a height-width bound, else multi-pass",
        "driven_by": ["maximum height", "maximum width"],
    },
    {
        "category": "strided convolution",
        "op": "conv",
        "divergence": "stride factorized into a sub-convolution sequence",
        "driven_by": ["allowed-factor list"],
    },
]

# enabling_chip is the product in the brackets after the family, "M3" for "A15 (M3+)". limit is a number in the item.
TABLE_35_4 = [
    {
        "item": "sin, cos native",
        "ops": ["sin", "cos"],
        "m1_status": "decomposed",
        "enabling_family": "A15",
        "enabling_chip": "M3",
        "hal_offset": None,
        "limit": None,
        "cause": "F4 trig floor; polynomial decomposition on M1",
    },
    {
        "item": "crop-resize, resample, affine, height-width gather",
        "ops": ["crop_resize", "resample", "affine", "gather_hw"],
        "m1_status": "decomposed",
        "enabling_family": "A14",
        "enabling_chip": "M2",
        "hal_offset": 0x81D,
        "limit": None,
        "cause": "no texture engine",
    },
    {
        "item": "top-k, sort, dynamic-slice",
        "ops": ["topk", "sort", "dynamic_slice"],
        "m1_status": "rejected at code generation",
        "enabling_family": "A14",
        "enabling_chip": "M2",
        "hal_offset": None,
        "limit": None,
        "cause": "rank and sort bridge; validator passes, lowering fails",
    },
    {
        "item": "dropout, random",
        "ops": ["dropout", "random"],
        "m1_status": "unavailable",
        "enabling_family": "A15",
        "enabling_chip": "M3",
        "hal_offset": 0x4A9,
        "limit": None,
        "cause": "random-number block off",
    },
    {
        "item": "global arg-min, arg-max",
        "ops": ["global_arg_min_max"],
        "m1_status": "decomposed",
        "enabling_family": "A15",
        "enabling_chip": "M3",
        "hal_offset": 0x4F2,
        "limit": None,
        "cause": "HAL 0x4f2",
    },
    {
        "item": "reduce-then-square fusion",
        "ops": ["sq_after_reduce"],
        "m1_status": "unfused form emitted",
        "enabling_family": "A14",
        "enabling_chip": "M2",
        "hal_offset": None,
        "limit": None,
        "cause": "a fusion, not a capability; within one unit in the last place",
    },
    {
        "item": "width slice with offset over 4094",
        "ops": ["width_slice"],
        "m1_status": "saturates to +/-inf",
        "enabling_family": "A15",
        "enabling_chip": "M3",
        "hal_offset": None,
        "limit": 4094,
        "cause": "Q.4 crop DMA route on M1; A14 saturates too, clean from A15",
    },
    {
        "item": "int8-affine weight streaming",
        "ops": ["int8"],
        "m1_status": "folds to fp16",
        "enabling_family": "A14",
        "enabling_chip": "M2",
        "hal_offset": None,
        "limit": None,
        "cause": "streaming gate off on A13; M1 streams int4-LUT and sparse, M2 adds int8",
    },
    {
        "item": "blockwise weight streaming",
        "ops": ["blockwise"],
        "m1_status": "folds to fp16",
        "enabling_family": "A15",
        "enabling_chip": "M3",
        "hal_offset": None,
        "limit": None,
        "cause": "folds on A13 and A14; streams from A15",
    },
]

# (descriptor generation, family text, patch-width byte offset in the descriptor)
TABLE_35_5 = [
    (7, "A13, M1", 0x200),
    (8, "A13, A14", 0x224),
    (10, "A14", 0x12C),
    (11, "A14, A15", 0x21C),
    (17, "A15, A16", 0x23C),
    (19, "A16, A17", 0x248),
    (20, "A17, M5", 0x26C),
]

# (offsets, meaning). offsets is a list, or one (start, end) tuple where the row is a range with both ends included.
# One list also holds a range: the row that starts at 0x88.
TABLE_35_6 = [
    ([0x1B8], "matmul right-hand copy-cast byte threshold"),
    ([0x1C0], "large-stride-conv enable and DMA width granule"),
    ([0x328], "conv stride and unicast input-channel limit"),
    ([0x30, 0x38, 0x48, 0x50], "maximum small and large kernel width by tensor format"),
    ([0x88, 0x90, 0x98, (0x138, 0x1A8)], "maximum spatial and per-dimension tensor sizes"),
    ([0x468, 0x470], "maximum transpose height and width"),
    ((0x730, 0x750), "allowed kernel-width and stride factor list"),
    ([0x812], "one-by-one input upsample fast-path flag"),
    ([0x81D], "resize and texture-engine-present flag"),
    ([0x3F8, 0x400, 0x410], "patch-width clamps for max-pool, floor, and non-pool"),
    ([0x228, 0x238, 0x240, 0x248], "cost-model frequency, cycles, and core count"),
]

# (family text, bandwidth clamps by size bucket, (setup ramp start, setup ramp end))
TABLE_35_7 = [
    ("A12", [50.0, 100.0, 200.0, 400.0, 800.0], (1.84, 14.72)),
    ("A13, M1", [50.0, 100.0, 200.0, 400.0, 800.0], (1.84, 7.36)),
    ("A16, A17, M5", [62.5, 125.0, 250.0, 500.0], (1.84, 7.36)),
    ("default (A11, A14, A15)", [34.1, 68.2], (1.84, 13.57)),
]

# Rows of table 35.7 whose clamp list goes on past the printed values ("and on").
TABLE_35_7_OPEN = ["default (A11, A14, A15)"]

# --------------------------------------------------------------------------------------------------------------------
# Chapter 22: feature-gated validators
# --------------------------------------------------------------------------------------------------------------------

# byte is None where the row names no single byte; support then says what it names.
TABLE_22_5 = [
    {"ops": ["softmax"], "byte": 0x815, "support": "0x815", "gated_on": "rejected on the older targets"},
    {"ops": ["instance_norm"], "byte": 0x816, "support": "0x816", "gated_on": "per-chip"},
    {"ops": ["dropout", "random"], "byte": 0x4A9, "support": "0x4a9", "gated_on": "A15 and later only"},
    {
        "ops": ["affine", "resize", "resample", "padding_mode"],
        "byte": 0x81D,
        "support": "0x81d",
        "gated_on": "texture engine, absent on the M1",
    },
    {
        "ops": ["dynamic_goc"],
        "byte": 0x814,
        "support": "0x814",
        "gated_on": "absent only on the smallest legacy parts",
    },
    {
        "ops": ["conv3d"],
        "byte": None,
        "support": "dimension and kernel-depth fields",
        "gated_on": "capability present, backend lowering fails",
    },
]

# --------------------------------------------------------------------------------------------------------------------
# Chapter 26: native layer classes
# --------------------------------------------------------------------------------------------------------------------

# first_family gives only the layers that the last column places: "A13" stands for M1, ">A13" for above the M1.
# gate_values holds the numbers of the gate column.
TABLE_26_1 = [
    {
        "class": "Fused attention",
        "layers": ["sdpa"],
        "gate": "four or five operands; key and value share a shape; subtract-maximum must be set",
        "gate_values": {"operands": (4, 5)},
        "first_family": {"sdpa": "A13"},
        "first_family_text": "M1, not texture-gated",
    },
    {
        "class": "Ranking and selection",
        "layers": ["topk", "sort", "arg_min_max", "global_arg_min_max"],
        "gate": "index outputs float16-encoded; sort and top-k pass the validator, fail M1 code generation",
        "gate_values": {},
        "first_family": {"global_arg_min_max": "A15", "topk": ">A13", "sort": ">A13"},
        "first_family_text": "whole-tensor form A15; top-k and sort above the M1",
    },
    {
        "class": "Spatial rearrangement",
        "layers": [
            "pixel_shuffle",
            "pixel_unshuffle",
            "space_to_channel",
            "channel_to_space",
            "space_to_batch",
            "batch_to_space",
        ],
        "gate": "per-axis integer factors made of {2, 3, 4, 8}; depth factor one",
        "gate_values": {"factors": (2, 3, 4, 8), "depth_factor": 1},
        "first_family": {
            "pixel_shuffle": "A13",
            "pixel_unshuffle": "A13",
            "space_to_channel": "A13",
            "channel_to_space": "A13",
            "space_to_batch": "A13",
            "batch_to_space": "A13",
        },
        "first_family_text": "M1",
    },
    {
        "class": "Normalization",
        "layers": ["minmax_norm", "lrn", "gain_offset_control"],
        "gate": "range normalization arch-gated; gain-offset in static and runtime forms",
        "gate_values": {},
        "first_family": {"minmax_norm": ">A13", "gain_offset_control": "A13"},
        "first_family_text": "range normalization above the M1; gain-offset M1",
    },
    {
        "class": "Geometry and point cloud",
        "layers": ["cross_correlation", "cross_product", "furthest_point_sampling", "radius_search", "cost_volume"],
        "gate": "cross product needs interleave one and float16; cross-correlation template depth one",
        "gate_values": {"cross_product_interleave": 1, "cross_correlation_template_depth": 1},
        "first_family": {"cross_product": "A13", "cross_correlation": "A13"},
        "first_family_text": "M1 for the cross and correlation forms",
    },
    {
        "class": "Texture samplers",
        "layers": ["resize_hw", "crop_resize", "resample", "affine"],
        "gate": "texture-engine feature byte",
        "gate_values": {},
        "first_family": {"resize_hw": "A14", "crop_resize": "A14", "resample": "A14", "affine": "A14"},
        "first_family_text": "A14; rejected on the M1",
    },
    {
        "class": "Data movement",
        "layers": ["input_view", "dynamic_slice", "tile", "concat"],
        "gate": "input view must follow a reshape; dynamic slice passes the validator, fails M1 code generation",
        "gate_values": {},
        "first_family": {"input_view": "A13", "tile": "A13", "concat": "A13"},
        "first_family_text": "M1 for the static movers",
    },
    {
        "class": "Streaming state",
        "layers": [
            "state",
            "ring_buffer_reader",
            "ring_buffer_writer",
            "tensor_to_tensor_buffer",
            "tensor_buffer_to_tensor",
        ],
        "gate": "ring-buffer writer must connect to a live-state buffer; circular mode arch-gated",
        "gate_values": {},
        "first_family": {
            "state": ">A13",
            "ring_buffer_reader": ">A13",
            "ring_buffer_writer": ">A13",
            "tensor_to_tensor_buffer": ">A13",
            "tensor_buffer_to_tensor": ">A13",
        },
        "first_family_text": "above the M1; on the M1 only through a shared resident buffer",
    },
]

# --------------------------------------------------------------------------------------------------------------------
# Cross-chip page. The indices here are those of the five-value family set, 1 to 5.
# --------------------------------------------------------------------------------------------------------------------

# folds: the later generations that the row also takes in. "M11" is printed next to M3 and is an engine name.
CROSS_CHIP_FAMILIES = [
    {"family": "OLDER", "index": 1, "tier": "A11/A12", "chips": [], "folds": [], "reachable": False},
    {"family": "A13", "index": 2, "tier": "A13", "chips": ["M1"], "folds": [], "reachable": True},
    {"family": "A14", "index": 3, "tier": "A14", "chips": ["M2"], "folds": [], "reachable": True},
    {"family": "A15", "index": 4, "tier": "A15", "chips": ["M3", "M11"], "folds": [], "reachable": True},
    {"family": "A16", "index": 5, "tier": "A16", "chips": ["M4", "M5"], "folds": ["A17", "A18"], "reachable": True},
]

# (chip, architecture as printed, family)
CROSS_CHIP_LADDER = [
    ("M1", "H13", "A13"),
    ("M2", "H14", "A14"),
    ("M3", "H15", "A15"),
    ("M4", "H16", "A16"),
    ("M5", "H17s", "A16"),
]

# win: (low, high) speedup. folds of the A13 row come from the paragraph below the table, of the A14 row from the cell.
CROSS_CHIP_STREAMS = [
    {
        "family": "A13",
        "families": ["A13"],
        "chips": ["M1"],
        "streams": ["int4_lut", "sparse"],
        "folds": ["int8", "blockwise"],
        "win": (2.37, 2.37),
        "win_encoding": "int4_lut",
        "measured_on": None,
    },
    {
        "family": "A14",
        "families": ["A14"],
        "chips": ["M2"],
        "streams": ["int4_lut", "int8", "sparse"],
        "folds": ["blockwise"],
        "win": (1.6, 1.8),
        "win_encoding": None,
        "measured_on": None,
    },
    {
        "family": "A15+",
        "families": ["A15", "A16"],
        "chips": ["M3", "M4", "M5"],
        "streams": ["int4_lut", "int8", "sparse", "blockwise"],
        "folds": [],
        "win": (1.6, 1.8),
        "win_encoding": None,
        "measured_on": "M5",
    },
]

# values: only the families that the text gives. at_least: the families whose value is a lower bound. first_reject: the
# smallest extent that the text says is refused.
CROSS_CHIP_CAPS = [
    {
        "name": "spatial_extent",
        "values": {"A13": 16384, "A14": 16384, "A15": 16384, "A16": 65536},
        "at_least": [],
        "first_reject": {"A13": 16385},
    },
    {
        "name": "contraction_extent",
        "values": {"A13": 16384, "A14": 16384, "A15": 16384, "A16": 65536},
        "at_least": [],
        "first_reject": {},
    },
    {
        # "on both" means A14 and A16; A13 equals A14.
        "name": "channel_extent",
        "values": {"A13": 65536, "A14": 65536, "A16": 65536},
        "at_least": [],
        "first_reject": {"A13": 65537},
    },
    {
        # Printed with a broken exponent, "2^2^3-1" and "2^2^4-1". A13 by "equals A14 exactly".
        "name": "transpose_extent",
        "values": {"A13": 2**23 - 1, "A14": 2**23 - 1, "A16": 2**24 - 1},
        "at_least": ["A16"],
        "first_reject": {},
    },
    {
        "name": "conv_kernel_width",
        "values": {"A13": 13, "A16": 15},
        "at_least": [],
        "first_reject": {"A16": 16},
    },
    {
        # 65504 / 16
        "name": "slice_threshold",
        "values": {"A13": 4094},
        "at_least": [],
        "first_reject": {},
    },
    {
        "name": "slice_saturates",
        "values": {"A13": True, "A14": False, "A15": False, "A16": False},
        "at_least": [],
        "first_reject": {},
    },
    {
        "name": "representative_arch",
        "values": {"A13": "h13", "A14": "h14", "A15": "h15", "A16": "h16s"},
        "at_least": [],
        "first_reject": {},
    },
    {
        "name": "hal_0x494",
        "values": {"A13": 0, "A14": 1, "A15": 1, "A16": 1},
        "at_least": [],
        "first_reject": {},
    },
    {
        "name": "hal_0x3f0",
        "values": {"A13": 192, "A14": 192, "A15": 384, "A16": 384},
        "at_least": [],
        "first_reject": {},
    },
    {
        # Conv weight-gradient guard: the warning needs a loss scale of at least this value. A14 and A16 have no path.
        "name": "loss_scale_guard",
        "values": {"A13": 512},
        "at_least": [],
        "first_reject": {},
    },
]

# floor: first family that runs the op natively, None where the page gives none. A status of None is not stated.
CROSS_CHIP_STATUSES = [
    {"op": "conv", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "matmul", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "pooling", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "elementwise", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "activations", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "softmax", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "norms", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "reductions", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "sqrt", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "rsqrt", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "erf", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "exp2", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "log2", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "sdpa", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "resize", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "tile", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "space_to_channel", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "channel_to_space", "floor": "A13", "A13": "native", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "sin", "floor": "A15", "A13": "decompose", "A14": "decompose", "A15": "native", "A16": "native"},
    {"op": "cos", "floor": "A15", "A13": "decompose", "A14": "decompose", "A15": "native", "A16": "native"},
    {"op": "dropout", "floor": None, "A13": "decompose", "A14": "decompose", "A15": None, "A16": None},
    {"op": "random", "floor": None, "A13": "decompose", "A14": "decompose", "A15": None, "A16": None},
    {"op": "crop_resize", "floor": "A14", "A13": "reject", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "resample", "floor": "A14", "A13": "reject", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "affine", "floor": "A14", "A13": "reject", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "topk", "floor": "A14", "A13": "reject", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "sort", "floor": "A14", "A13": "reject", "A14": "native", "A15": "native", "A16": "native"},
    {"op": "dynamic_slice", "floor": "A14", "A13": "reject", "A14": "native", "A15": "native", "A16": "native"},
]

# --------------------------------------------------------------------------------------------------------------------
# Where the seeds do not have the last word. Keys: (table, row key, column, ...); values: conflict ids.
# Row keys: the offset in 24.1 and 24.4, the floor in 24.2 and 35.2, the target in 35.1, one op of the row in 35.4 and
# 22.5, the generation in 35.5, the class in 26.1, the chip in the ladder, the name in the caps, the op in the
# statuses.
# --------------------------------------------------------------------------------------------------------------------

OVERRIDDEN = {
    # Emitted files of the h16 line are stamped version 7, which maps to A16; the seed has version 8 and A15.
    ("35.1", "h16"): "C01",
    ("35.1", "h16g"): "C01",
    ("35.1", "h16c"): "C01",
    ("35.1", "h16s"): "C01",
    # Emitted files of the h17 line are stamped version 9, which maps to A17; the seed has version 7 and A16. h17s is
    # already at 9 and h18 at 10, so those two cells stand.
    ("35.1", "h17"): "C01",
    ("35.1", "h17a"): "C01",
    ("35.1", "h17g"): "C01",
    ("35.1", "h17c"): "C01",
    ("35.1", "h17d"): "C01",
    # Family column against the lookup read from the compiler. Generation 7 is h13 in both, so it stands, as do all
    # the offsets.
    ("35.5", 8, "family"): "C02",  # h15, not A13 or A14
    ("35.5", 10, "family"): "C02",  # m11, an A15 target, not A14
    ("35.5", 11, "family"): "C02",  # h14 only, no A15 target
    ("35.5", 17, "family"): "C02",  # h16 only, no A15 target
    ("35.5", 19, "family"): "C02",  # all of h17, which is A17 by its stamp, so no A16 target
    ("35.5", 20, "family"): "C02",  # h18; the M5 is at generation 19
    # Devices report other names than the base-name rule gives.
    ("ladder", "M2", "arch"): "C03",  # reads h14g
    ("ladder", "M4", "arch"): "C03",  # reads h16g
    ("ladder", "M5", "arch"): "C03",  # the base M5 reads h17; h17s is the M5 Pro
    ("24.4", "header", "A16"): "C03",  # the column shows h16, the M4 is h16g
    ("24.4", "header", "A17"): "C03",  # the column shows h17s, the M5 Pro, not the M5
    # Range normalization over width or height runs on the M1; only the channel form is refused.
    ("26.1", "Normalization", "first_family", "minmax_norm"): "C10",
    # The byte 0x4f2 is already set on the M1 in table 24.3, so it cannot be what blocks the op there.
    ("35.4", "global_arg_min_max", "hal_offset"): "C13",
    # This table is about direct authoring, and that route runs the whole-tensor form from A13; A15 is the trait floor.
    ("26.1", "Ranking and selection", "first_family", "global_arg_min_max"): "C13",
    # The page limits the clamp to A13, but an M2 Pro (A14) clamps as well.
    ("caps", "slice_saturates", "A14"): "C22",
    # The seeds disagree with each other; an M1 took the software route for a resize and refused the rest.
    ("statuses", "resize", "A13"): "U18",
    ("35.4", "crop_resize", "m1_status"): "U19",
    ("35.4", "resample", "m1_status"): "U19",
    ("35.4", "affine", "m1_status"): "U19",
    ("35.4", "global_arg_min_max", "m1_status"): "U19",
}

QUALIFIED = {
    # The suffix sequence holds for the field value in build 9.509 only, not for the cores of a product.
    ("24.1", 0x238, "suffix_steps"): "C03",
    # 4 is the value of the cost model; the encoding works with 16 lanes.
    ("24.1", 0x238, "h13"): "C37",
    ("24.4", 0x238, "h13"): "C37",
    # conv3d fails on the direct path; Core ML accepts it on M4 and later.
    ("22.5", "conv3d", "gated_on"): "C08",
    # The A14 floor stays as legality; M4 and M5 do not reach the op.
    ("24.2", "F3 (A14+)", "crop_resize"): "C12",
    ("35.2", "F3 (A14+)", "crop_resize"): "C12",
    ("35.4", "crop_resize", "enabling_family"): "C12",
    ("26.1", "Texture samplers", "first_family", "crop_resize"): "C12",
    ("statuses", "crop_resize", "A16"): "C12",
    # A15 is the floor of the conversion route only.
    ("24.2", "F4 (A15+)", "global_arg_min_max"): "C13",
    ("35.2", "F4 (A15+)", "global_arg_min_max"): "C13",
    ("35.4", "global_arg_min_max", "enabling_family"): "C13",
    # The field says 65536; Core ML on an M4 refuses 40000 and takes 32768.
    ("caps", "contraction_extent", "A16"): "C14",
    # Chips of A13 and A14 clamp and chips of A16 do not; nobody has measured A15.
    ("35.4", "width_slice", "enabling_family"): "C22",
    ("caps", "slice_saturates", "A15"): "C22",
    # Gather runs with static indices only.
    ("35.4", "gather_hw", "enabling_family"): "C42",
}
