"""Names, argument order and defaults that existing users' code relies on."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest

import aneforge as af

SIGNATURES = """
input(shape, dtype='fp16', max_abs=None)
image_input(shape, scale=0.00392156862745098, bias=0.0)
parameter(init)
conv(x, weight, stride=1, pad=0, dilation=1, groups=1, bias=None)
conv_transpose(x, weight, stride=1, pad=0, dilation=1, groups=1, bias=None)
dynamic_conv(x, weight, stride=1, pad=0, dilation=1, groups=1)
batch_norm(x, gamma, beta, mean, var, eps=1e-05)
instance_norm(x, gamma, beta, eps=1e-05)
local_response_norm(x, size=5, alpha=0.0001, beta=0.75, k=1.0)
maximum(a, b)
minimum(a, b)
select(cond, a, b)
where(cond, a, b)
concat(tensors, axis=1)
stack(tensors, axis=0)
split(x, num_splits, axis=0)
gather(x, indices, axis=0)
einsum(equation, *operands)
einsum_native(equation, a, b)
space_to_depth(x, block_size=2)
depth_to_space(x, block_size=2)
pixel_shuffle(x, r)
pixel_unshuffle(x, r)
crop(x, top, bottom, left, right)
resize_nearest_neighbor(x, target_h, target_w)
resize_bilinear(x, target_h, target_w, align_corners=False)
upsample_bilinear(x, scale=2, align_corners=False)
affine(x, transform, output_h, output_w, align_corners=False)
mha(x, Wq, bq, Wk, bk, Wv, bv, Wo, bo, n_heads, mask=None)
cross_attention(x, context, Wq, Wk, Wv, Wo, n_heads, bq=None, bk=None, bv=None, bo=None)
sdpa(q, k, v, scale=None, is_causal=False, attn_mask=None)
geglu(x, W, b)
topk(x, k, largest=True)
sort(x, descending=False, return_indices=False)
cross_product(a, b)
cross_correlation(x, template)
cost_volume(aux, ref, disparity_range=1)
fps(points, k)
radius_search(points, centroids, radius)
minmax_norm(x, dimension='Width', eps=0.0001)
lrn(x, alpha=1.0, beta=0.75, k=1.0)
space_to_channel(x, r)
channel_to_space(x, r)
space_to_batch(x, bh, bw)
batch_to_space(x, bh, bw)
flatten(x)
input_view(x, offset, size)
dynamic_slice(x, start, size=2)
scaled_elementwise(x, z, op='Add', scale=1.0)
conv_param(weight_init)
conv2d(x, weight, stride=1, pad=0)
conv_block(x, conv_w, gamma, beta, groups, pool=0)
group_norm_train(x, gamma, beta, groups, eps=1e-05)
"""

METHODS = """
relu gelu silu sigmoid tanh exp exp2 sqrt abs square sin cos erf softplus relu6 softsign atan floor ceil round
sign logical_not log rsqrt inverse elu leaky_relu clip clamp scaled_tanh threshold thresholded_relu
clamped_relu sigmoid_hard linear_activation adds prelu pow greater less equal not_equal less_equal
greater_equal bmm_weight linear reshape transpose squeeze expand_dims flatten2d slice_by_size reverse tile
mean sum amax amin l1_norm log_sum sum_square reduce_log_sum_exp cumsum softmax l2_norm argmax rms_norm
layer_norm channel_layer_norm group_norm max_pool avg_pool upsample ndim size dtype T
"""


def shown(parameter: inspect.Parameter) -> str:
    name = f"*{parameter.name}" if parameter.kind is parameter.VAR_POSITIONAL else parameter.name
    return name if parameter.default is parameter.empty else f"{name}={parameter.default!r}"


@pytest.mark.parametrize("line", SIGNATURES.split("\n")[1:-1])
def test_signatures(line):
    name, _, arguments = line.rstrip(")").partition("(")
    wanted = arguments.split(", ")
    ours = [shown(parameter) for parameter in inspect.signature(getattr(af, name)).parameters.values()]
    assert ours[: len(wanted)] == wanted
    assert all("=" in extra for extra in ours[len(wanted) :]), "what we add is optional"


@pytest.mark.parametrize("name", METHODS.split())
def test_tensor_methods(name):
    assert hasattr(af.Tensor, name)


def test_everything_exported_resolves():
    for name in af.__all__:
        assert getattr(af, name) is not None
    with pytest.raises(AttributeError, match="no attribute"):
        _ = af.no_such_name


def test_builders_hold_every_public_function_that_makes_a_node():
    """Readers of model files use this namespace; a builder that users have is there for them too."""
    from aneforge.graph import builders

    listed = [
        name for home, names in af._HOMES.items() if home.startswith("aneforge.graph.ops") for name in names.split()
    ]
    assert sorted(listed) == sorted(builders.__all__)
    assert all(getattr(builders, name) is getattr(af, name) for name in listed)


def test_a_saved_graph_finds_who_computes_its_host_ops(tmp_path):
    """In a fresh process, which has read no model file: whoever loads the graph brings the evaluators along."""
    from aneforge.graph.ops.host import host

    shape = {"shape": (3,), "reason": "a test"}
    out = host([af.input((3,), name="x")], language="onnx", kind="Sinh", body="", **shape).relu()
    af.Graph.of(out).save(tmp_path / "hosted.aneg")
    code = f"""
import sys, types
import aneforge as af, numpy as np
graph = af.load_graph({str(tmp_path / "hosted.aneg")!r})
evaluator = types.ModuleType("aneforge.frontends.onnx_host")  # in place of the real one, which needs onnx
evaluator.evaluate = lambda kind, body, operands, output: np.sinh(operands[0])
sys.modules[evaluator.__name__] = evaluator
(found,) = af.evaluate(graph, {{graph.inputs[0]: np.array([0.0, 1.0, 2.0])}})
print(*found.round(3).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert done.stdout.split() == ["0.0", "1.175", "3.627"]


def test_an_unknown_language_of_the_host_is_refused_where_it_is_computed():
    from aneforge.graph.ops.host import host

    x = af.input((3,))
    out = host([x], language="klingon", kind="Qapla", body="", shape=(3,), reason="a test")
    with pytest.raises(af.AneforgeError, match="no evaluator for 'klingon'; there is onnx, torch, mil, coreai"):
        af.evaluate(out, {x: np.zeros(3)})
