"""What parameters mean that many functions share. A function's own docstring goes first; this is for the rest."""

from __future__ import annotations

__all__ = ["EVERYWHERE", "MEMBERS", "OF_OPS", "meaning"]

_MODEL = "A model in any form: a graph, its output tensors, a compiled model, or the path of a model file."
_CHIP = 'One chip by any of its names (`"m1"`, `"M2 Pro"`, `"h13"`), or a `Target`.'

EVERYWHERE = {
    "model": f"{_MODEL} A file that cannot be read raises `LoadError`.",
    "target": f'{_CHIP} Where several are taken: `"m1,m5"`, `"m1..m6"`, `"macs"`, `"phones"`, `"all"`, or a list. '
    "A name that is not known raises `UnknownNameError`.",
    "dims": "Sizes of symbolic dimensions of a model file, by name: `dims={'batch': 1}`. Only for files.",
    "function": "The function to take of a file that holds several. Only for files.",
    "route": "How a program reaches the chip: `conversion`, `direct`, or None for the one that `af.compile` takes.",
    "scope": "What a time covers: `coreml_call`, `host_call`, `direct_call` or `device_task`.",
    "inputs": "Arrays in order or by name, or the path of an `.npz` file. A shape that does not fit raises "
    "`ArgumentError`.",
    "seed": "Where numbers are drawn, the seed that they are drawn from: the same seed gives the same numbers.",
    "mode": "`exact`, to the bit where measurements say how, or `fast`, with single-precision sums.",
    "progress": "A function that is told what is being done, for a progress bar.",
    "path": "The path of the file. What cannot be read or written raises an error that names it.",
    "overwrite": "Whether a file that exists is replaced. Without it, one that exists is refused.",
}
"""By name; shown once at the head of the page."""

_ALIASES = {"out": "model", "objective": "model", "net": "model", "network": "model", "module": "model"}

_HEADS = {"q": "queries", "k": "keys", "v": "values", "o": "result"}

OF_OPS = {
    "x": "the tensor that the op reads",
    "a": "the first operand: a tensor, an array or a number",
    "b": "the second operand",
    "shape": "the sizes of all axes",
    "name": "the name of the node, which reports and errors show",
    "dtype": "the type of the elements: `fp16`, `uint8`, `bool` or `int32`",
    "weight": "the stored kernel, an array",
    "bias": "a number for each output, or None",
    "stride": "the step between windows",
    "pad": "rows and columns added around: a number, or (top, bottom, left, right)",
    "dilation": "the step between taps of a window",
    "groups": "how many groups the channels are split into",
    "gamma": "the scale of each channel",
    "beta": "the offset of each channel, or the exponent of a response norm",
    "alpha": "the factor of a response norm",
    "k": "how many, or the constant of a response norm",
    "size": "the width of the window",
    "mean": "the mean of each channel, or of the numbers drawn",
    "var": "the variance of each channel",
    "std": "the standard deviation of the numbers drawn",
    "eps": "a small number that keeps a division from zero",
    "scale": "the factor",
    "zero_point": "the code of zero",
    "axis": "the axis, counted from the front, or from the back where negative",
    "r": "the factor between channels and space, or the recurrent kernel of a cell",
    "block_size": "the factor between channels and space",
    "bh": "the height of a block",
    "bw": "the width of a block",
    "target_h": "the height of the result",
    "target_w": "the width of the result",
    "output_h": "the height of the result",
    "output_w": "the width of the result",
    "align_corners": "whether the corners of both images lie on each other",
    "num_splits": "how many equal parts",
    "top": "rows dropped at the top",
    "bottom": "rows dropped at the bottom",
    "left": "columns dropped at the left",
    "right": "columns dropped at the right",
    "values": "the numbers, an array",
    "what": "how messages call the constant",
    "low": "the smallest number drawn",
    "high": "the end of the numbers drawn",
    "seed": "the seed that the numbers are drawn from",
    "depth": "how many marks the new axis has",
    "off": "the number where there is no mark",
    "equation": 'the sum in letters, for instance `"bij,bjk->bik"`',
    "descending": "whether the largest comes first",
    "return_indices": "whether positions are returned in place of values",
    "seq_axis": "the axis along which sequences run",
    "batch_axis": "the axis of the sequences",
    "q": "queries, [1, heads, sequence, features]",
    "v": "values, with as many rows as there are keys",
    "is_causal": "whether a query sees only keys up to its own place",
    "attn_mask": "numbers added to the scores, or None",
    "n_heads": "the number of heads",
    "W": "the stored weight",
    "w": "the kernel of the inputs",
    "h0": "the first hidden state, or None for zeros",
    "c0": "the first cell state, or None for zeros",
    "updates": "what is written at the positions",
    "points": "coordinates, a row for each point",
    "radius": "how far a neighbour may be",
    "ref": "features of the reference image",
    "aux": "features of the other image",
    "disparity_range": "the largest shift that is tried",
    "dimension": "`Width`, `Height` or `Channel`",
    "conv_w": "the kernel of the convolution, a parameter",
    "windows": "as for `af.conv2d`",
    "weight_init": "the numbers that the parameter starts with",
    "y": "what the model gives",
    **{f"W{part}": f"the projection of the {word}" for part, word in _HEADS.items()},
    **{f"b{part}": f"the bias of the {word}" for part, word in _HEADS.items()},
}
"""Of the functions that build graphs, by name."""

_AS_COMPILE = ("int8", "build_dir", "opt", "compress", "compress_atol", "block_size", "validate")
_AS_PREDICT = ("kind", "shape", "begin", "max_abs", "attrs")

_OF_PLANS = ("contributed_rows", "timed_row")
_OF_A_PLAN = {
    "plan": "What a Mac gave (`aneforge.study.read_plan`).",
    "chip": 'The chip that the plan is of: `"m1"`.',
    "system": 'The system that the plan is of: `"macOS 26.1"`.',
    "graph": "The model, which has the shapes that a plan does not have.",
    "source": "A word of your own that stands in every row.",
}

OF_ONE = {
    "compare_training.objective": "The loss.",
    "compare_training.params": "What is trained.",
    "compare_training.lr": "The rate of learning.",
    "compare_training.data": "Arrays with one sample a row, from which `seed` draws the batches.",
    "compare_training.steps": "How many steps are trained.",
    "compare_training.target": "The chips, the first of which is the reference.",
    **{f"{name}.{parameter}": words for name in _OF_PLANS for parameter, words in _OF_A_PLAN.items()},
    "advise_weights.runtimes": "Who runs the program: `direct`, `coreml` and `coreai`, by name, several with commas.",
    "encode.array": "The weight.",
    "encode.options": "What the encodings above take, by name.",
    "merge.places": "Folders of results and tables.",
    "compare.before": "The older sweep.",
    "compare.after": "The newer sweep.",
    "read_anec.source": "A path, or the bytes of the file.",
    "read_container.source": "A path, or the bytes of the file.",
    "pwl.x": "The tensor that the function is taken of.",
    "save_netplist.binary": "Whether the netplist is a binary property list; without it, it is XML.",
    **{f"compile_multi.{name}": "As for `af.compile`." for name in _AS_COMPILE},
    **{f"verdict.{name}": "As for `af.predict_fp16_divergence`." for name in _AS_PREDICT},
}
"""Parameters of one function, in rooms whose docstrings leave them out."""

MEMBERS = {
    "to_json": "The same as plain values, which `json.dumps` takes.",
    "Sweep.ok": "Whether no model failed.",
    "Table.ok": "Whether no model failed.",
    "Server.url": "The address of the page.",
    "Server.serve_forever": "Take requests until the process is stopped.",
    "Server.close": "End the jobs and remove their files.",
    "ChipWeightAdvice.option": "One option by its name.",
}
"""Members that many classes have, and members without a docstring of their own."""


def meaning(function: str, parameter: str, of_op: bool) -> str:
    """What a parameter means that its function's docstring does not name; empty where nothing is known."""
    if alone := OF_ONE.get(f"{function}.{parameter}"):
        return alone
    if of_op and parameter in OF_OPS:
        return f"{OF_OPS[parameter][0].upper()}{OF_OPS[parameter][1:]}."
    return EVERYWHERE.get(_ALIASES.get(parameter, parameter), "")
