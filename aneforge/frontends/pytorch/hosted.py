"""Ops that only the host can compute, and why."""

from __future__ import annotations

from aneforge.frontends.importer.op import INTEGERS

_INDEX = "it picks elements by a computed index; the engine takes fixed indices only (C42)"
_SPECIAL = "no engine has this function, and no short combination of other ops gives it"
_GROUPS = "its rows belong to groups that the data decide; the engine needs a fixed program"
_RUNNING = "it finds the running maximum or minimum along an axis, step by step; the engine has no op for it"
_ALGEBRA = "it is linear algebra whose steps depend on the data; the engine needs a fixed program"

HOSTED: dict[str, str] = {
    "_embedding_bag": _INDEX,
    "_embedding_bag_forward_only": _INDEX,
    "_grouped_mm": _GROUPS,
    "_pdist_forward": "it gives the distance of each pair of rows once; the engine has no op for it",
    "bincount": INTEGERS,
    "bitwise_left_shift": INTEGERS,
    "bitwise_right_shift": INTEGERS,
    "bucketize": _INDEX,
    "cummax": _RUNNING,
    "cummin": _RUNNING,
    "cumprod": "it multiplies along an axis, step by step; the engine has no op for it",
    "digamma": _SPECIAL,
    "erfinv": _SPECIAL,
    "histc": INTEGERS,
    "i0": _SPECIAL,
    "igamma": _SPECIAL,
    "igammac": _SPECIAL,
    "kthvalue": "it gives the k-th smallest element and its position; the engine has no op for it",
    "lgamma": _SPECIAL,
    "linalg_cholesky_ex": _ALGEBRA,
    "linalg_det": _ALGEBRA,
    "linalg_inv_ex": _ALGEBRA,
    "linalg_qr": _ALGEBRA,
    "linalg_solve_ex": _ALGEBRA,
    "logcumsumexp": "it sums exponentials along an axis, step by step; the engine has no op for it",
    "masked_scatter": "it writes to computed indices; the engine takes fixed indices only (C42)",
    "max_unpool2d": "it writes to computed indices; the engine takes fixed indices only (C42)",
    "max_unpool3d": "it writes to computed indices; the engine takes fixed indices only (C42)",
    "mode": "it finds the most frequent element along an axis; the engine has no op for it",
    "mvlgamma": _SPECIAL,
    "nextafter": "it gives the next number of float32; the engine computes in fp16",
    "one_hot": INTEGERS,
    "polygamma": _SPECIAL,
    "searchsorted": _INDEX,
    "special_entr": _SPECIAL,
    "special_erfcx": _SPECIAL,
    "special_i0e": _SPECIAL,
    "special_i1": _SPECIAL,
    "special_i1e": _SPECIAL,
    "special_log_ndtr": _SPECIAL,
    "special_ndtri": _SPECIAL,
    "special_zeta": _SPECIAL,
    "transformers.grouped_mm_fallback": _GROUPS,
    "tril_indices": INTEGERS,
    "triu_indices": INTEGERS,
}
"""Reasons by op, as the user reads them. The results have fixed shapes, so the model still loads."""

_TRAINING = "this op belongs to training; export the module after .eval(), without gradients"

REFUSED: dict[str, str] = {
    "_adaptive_avg_pool2d_backward": _TRAINING,
    "_fft_c2r": "complex numbers are not supported; the engine takes real numbers only",
    "_fft_r2c": "complex numbers are not supported; the engine takes real numbers only",
    "_fft_c2c": "complex numbers are not supported; the engine takes real numbers only",
    "avg_pool2d_backward": _TRAINING,
    "convolution_backward": _TRAINING,
    "embedding_dense_backward": _TRAINING,
    "max_pool2d_with_indices_backward": _TRAINING,
    "native_group_norm_backward": _TRAINING,
    "native_layer_norm_backward": _TRAINING,
    "view_as_complex": "complex numbers are not supported; write the rotation with sines and cosines",
    "view_as_real": "complex numbers are not supported; write the rotation with sines and cosines",
    "complex": "complex numbers are not supported; the engine takes real numbers only",
    "polar": "complex numbers are not supported; write the rotation with sines and cosines",
}
"""Ops that are refused, with the reason."""

RANDOM = (
    *("bernoulli", "multinomial", "normal_functional", "rand", "rand_like", "randint", "randint_like", "randn"),
    *("randn_like", "randperm", "uniform"),
)
