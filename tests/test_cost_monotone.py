"""More work never takes less time, but for the causes that are named here."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aneforge.chips import store
from aneforge.cost.errata import is_notch_share
from aneforge.cost.evaluate import predict

CHIPS = ("M1", "M2 Pro", "M4 Max", "M5 Max", "A15 Bionic", "A19 Pro")
"""One engine each, and free of the 1 MiB erratum (C69) and of half rates for long sums (C74), which the last tests are
about. On an M6 a second engine helps from 256 places on."""

channels = st.integers(1, 96).map(lambda count: 16 * count)
side = st.integers(1, 96)


def us(chip: str, layer: dict[str, Any]) -> float:
    return predict({"chip": chip, "scope": "coreml_call", "layers": [layer]})


def grown(layer: dict[str, Any], axis: str, by: int) -> dict[str, Any]:
    if axis == "shape":
        return {**layer, "shape": [by * layer["shape"][0], *layer["shape"][1:]]}
    return {**layer, axis: by * layer[axis]}


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, Any]:
    kernel = draw(st.sampled_from((1, 3, 5)))
    sizes = {"n": draw(st.integers(1, 4)), "cin": draw(channels), "cout": draw(channels)}
    places = {"h": draw(side), "w": draw(side), "kh": kernel, "kw": kernel, "pad": [kernel // 2, kernel // 2]}
    return {"op": "conv", **sizes, **places}


products = st.builds(
    lambda m, k, n: {"op": "linear", "m": m, "k": k, "n": n}, st.integers(1, 1024), channels, channels
)
planar = st.builds(
    lambda op, a, b: {"op": op, "shape": [a, b]},
    st.sampled_from(("softmax", "layer_norm", "ew", "transpose", "reduce_sum", "topk")),
    st.integers(1, 512),
    st.integers(1, 2048),
)
batched = st.builds(
    lambda b, m, k, n: {"op": "bmm", "b": b, "m": m, "k": k, "n": n},
    st.integers(1, 16), st.integers(1, 256), st.integers(1, 256), st.integers(1, 256),
)  # fmt: skip
AXES = {"conv": ("n", "cin", "cout", "h", "w"), "linear": ("m", "k", "n"), "bmm": ("b", "m", "k", "n")}


@settings(max_examples=300, deadline=None)
@given(
    layer=st.one_of(convolutions(), products, planar, batched),
    chip=st.sampled_from(CHIPS),
    by=st.sampled_from((2, 3)),
    data=st.data(),
)
def test_time_grows_with_every_size(layer: dict[str, Any], chip: str, by: int, data: st.DataObject) -> None:
    axis = data.draw(st.sampled_from(AXES.get(layer["op"], ("shape",))))
    assert us(chip, grown(layer, axis, by)) >= us(chip, layer) * (1 - 1e-9), axis


@settings(max_examples=100, deadline=None)
@given(layer=products, chip=st.sampled_from(("M3", "M5", "A17 Pro")), axis=st.sampled_from(AXES["linear"]))
def test_only_the_erratum_of_1_mib_makes_less_take_longer(layer: dict[str, Any], chip: str, axis: str) -> None:
    known = {name: record["v"] for name, record in store.load("cost_fit")["stated"].items()}
    assume(not is_notch_share(2.0 * -(-layer["n"] // known["lanes"]) * layer["k"], known))
    assert us(chip, grown(layer, axis, 2)) >= us(chip, layer) * (1 - 1e-9)


@settings(max_examples=100, deadline=None)
@given(layer=st.one_of(convolutions(), products), axis=st.sampled_from(("m", "h", "w")))
def test_time_grows_with_places_on_an_m4_too(layer: dict[str, Any], axis: str) -> None:
    assume(axis in layer)
    assert us("M4", grown(layer, axis, 2)) >= us("M4", layer) * (1 - 1e-9)
