"""The seed page's names, as existing users' code calls them."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest

from aneforge.chips import host
from aneforge.errors import AneforgeError, UnknownNameError

SEED_LINES = """
import aneforge as af
from aneforge import _targets as tg        # Family, detect_family, family_of_arch,
                                           # arch_for_family, op_status, limit, preflight,
                                           # predict_fp16_divergence, native_streams
from aneforge._compile import cross_compile_check
"""


def test_the_import_lines_run_as_written():
    scope: dict = {}
    exec(SEED_LINES, scope)  # noqa: S102 - the point of the test
    names = {"Family", "MIN_FAMILY", "supports_mil", "family_of_arch", "arch_for_family", "op_status", "limit"}
    names |= {"has_texture_engine", "preflight", "detect_family", "predict_fp16_divergence", "native_streams"}
    for name in names | {"FP16_SLICE_SAT"}:
        assert hasattr(scope["tg"], name), name
    assert callable(scope["cross_compile_check"])


def test_families_and_architectures():
    from aneforge import _targets as tg

    assert {member.name: int(member) for member in tg.Family} == {"OLDER": 1, "A13": 2, "A14": 3, "A15": 4, "A16": 5}
    assert tg.MIN_FAMILY == 2
    assert [tg.supports_mil(family) for family in tg.Family] == [False, True, True, True, True]
    assert [tg.arch_for_family(family) for family in (2, 3, 4, 5)] == ["h13", "h14", "h15", "h16s"]
    expected = {
        "h11": 1,
        "h13": 2,
        "h13g": 2,
        "h14g": 3,
        "h15": 4,
        "m11": 4,
        "h16s": 5,
        "h17d": 5,
        "h18": 5,
        "h18g": 5,
    }
    assert {arch: int(tg.family_of_arch(arch)) for arch in expected} == expected


@pytest.mark.parametrize("bad", ["zzz", "M1", "u1", "h20", "", None, 13])
def test_family_of_arch_raises_key_error(bad):
    from aneforge import _targets as tg

    with pytest.raises(KeyError):
        tg.family_of_arch(bad)


def test_arch_for_family_below_the_floor():
    from aneforge import _targets as tg

    with pytest.raises(UnknownNameError, match="OLDER"):
        tg.arch_for_family(tg.Family.OLDER)


def test_texture_engine_and_limits():
    from aneforge import _targets as tg

    assert [tg.has_texture_engine(family) for family in tg.Family] == [False, False, True, True, True]
    names = ("max_tensor_dim", "channel_extent", "transpose_extent", "conv_kw_max", "reduction_transpose_extent")
    assert [tg.limit(name, tg.Family.A13) for name in names] == [16384, 65536, 8388607, 13, 192]
    assert [tg.limit(name, tg.Family.A16) for name in names] == [65536, 65536, 16777215, 15, 384]


def test_signatures_are_those_existing_code_calls():
    from aneforge import _targets as tg
    from aneforge._compile import cross_compile_check

    parameters = list(inspect.signature(tg.predict_fp16_divergence).parameters)
    assert parameters[:6] == ["kind", "shape", "target_a", "target_b", "begin", "max_abs"]
    assert list(inspect.signature(tg.op_status).parameters)[:2] == ["op", "family"]
    assert list(inspect.signature(tg.limit).parameters) == ["name", "family"]
    assert list(inspect.signature(cross_compile_check).parameters)[:3] == ["out", "target", "int8"]


def test_divergence_verdicts_of_the_seed_page():
    from aneforge import _targets as tg

    predict = tg.predict_fp16_divergence
    assert predict("slice_by_size", (1, 64), "h13", "h17s", begin=(0, 1)) == "saturation"
    assert predict("slice_by_size", (1, 64), "h13", "h17s", begin=(1, 0)) == "none"  # not the last axis
    assert predict("slice_by_size", (1, 64), "h13", "h17s", begin=(0, 1), max_abs=4094) == "none"
    assert predict("slice_by_size", (1, 64), "h13", "h17s", begin=(0, 1), max_abs=4095) == "saturation"
    assert predict("slice_by_size", (1, 64), "h13", "h17s", begin=(0, 1), max_abs=float("inf")) == "saturation"
    assert predict("slice_by_size", (1, 64), "h13", "h14", begin=(0, 1)) == "none"  # both clamp (C22)
    assert predict("slice_by_size", (1, 64), "h14", "h15", begin=(0, 1)) == "saturation"
    assert predict("rms_norm", (1, 256), "M1", "M2", basis="fields") == "round1"
    assert predict("rms_norm", (1, 256), "M1", "M2") == "none"  # measured: both give the unfused value (N26)
    assert predict("rms_norm", (1, 256), "M2", "M5") == "ulp1"
    assert predict("softmax", (1, 256), tg.Family.A14, tg.Family.A15) == "ulp1"
    assert predict("softmax", (1, 256), "h13", "h14") == "none"
    assert predict("conv", (1, 8, 8, 8), "h13", "h17s") == "none"


@pytest.mark.parametrize(
    "arguments",
    [
        ("convolve", (1, 2), "h13", "h14"),
        ("slice", (0, 2), "h13", "h14"),
        ("slice", (-1,), "h13", "h14"),
        ("slice", (1.5,), "h13", "h14"),
        ("slice", (1,), "zzz", "h14"),
        ("slice", (1,), "h11", "h14"),
        ("slice", (1,), "u1", "h14"),
        ("slice", (1,), "h13", "h14", 1, -1.0),
        ("slice", (1,), "h13", "h14", 1, float("nan")),
    ],
)
def test_divergence_refuses_nonsense(arguments):
    from aneforge import _targets as tg

    with pytest.raises(AneforgeError):
        tg.predict_fp16_divergence(*arguments)


@pytest.mark.filterwarnings("ignore::aneforge.errors.CrossChipFP16Warning")
def test_cross_compile_check_never_passes_falsely(monkeypatch):
    import aneforge as af
    from aneforge import _targets as tg
    from aneforge._compile import cross_compile_check

    monkeypatch.setenv(host.ENVIRONMENT, "h17s")
    x = af.input((1, 3, 32, 32))
    y = af.conv(x, np.full((8, 3, 3, 3), 0.1), pad=1).relu()
    assert cross_compile_check(y, "h13") is True
    assert cross_compile_check(y.softmax(), "h11") is False
    with pytest.raises(UnknownNameError, match="zzz"):
        cross_compile_check(y, "zzz")
    with pytest.raises(AneforgeError, match="tensor"):
        cross_compile_check(object(), "h13")
    q = af.input((1, 4, 16, 8))
    with pytest.raises(AneforgeError, match="one segment"):
        cross_compile_check(af.sdpa(q, q, q), "h13")
    assert cross_compile_check(y, "h13", int8=True) is True
    with pytest.raises(AneforgeError, match="expected a tensor, a list of tensors or a graph, not"):
        tg.preflight(object(), 2)


@pytest.fixture
def fresh_host(monkeypatch):
    monkeypatch.delenv(host.ENVIRONMENT, raising=False)
    monkeypatch.setattr(host, "_warned", set())
    return monkeypatch


@pytest.mark.parametrize(("value", "family"), [("h16s", 5), ("h13", 2), ("M2 Pro", 3), (" h15 ", 4)])
def test_the_environment_variable_wins(fresh_host, value, family):
    fresh_host.setenv(host.ENVIRONMENT, value)
    fresh_host.setattr(host, "_cpu_brand", lambda: "Apple M5")
    assert host.detect_family() == family


@pytest.mark.parametrize("value", ["zzz", "A13", "u1", "h20"])
def test_a_wrong_environment_variable_is_an_error(fresh_host, value):
    fresh_host.setenv(host.ENVIRONMENT, value)
    with pytest.raises(AneforgeError):
        host.detect_family()


@pytest.mark.parametrize(
    ("brand", "family"), [("Apple M1", 2), ("Apple M5 Pro", 5), ("Apple M2 Ultra", 3), ("Apple M6", 5)]
)
def test_the_cpu_brand_is_next(fresh_host, brand, family):
    fresh_host.setattr(host, "_cpu_brand", lambda: brand)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert host.detect_family() == family


@pytest.mark.parametrize("brand", ["Apple M99", "Intel(R) Core(TM) i7", None])
def test_the_floor_is_announced_once(fresh_host, brand):
    fresh_host.setattr(host, "_cpu_brand", lambda: brand)
    with pytest.warns(host.TargetDetectionWarning, match="ANEFORGE_TARGET"):
        assert host.detect_family() == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert host.detect_family() == 2


def test_import_loads_no_library():
    import subprocess
    import sys

    code = (
        "import sys, aneforge; print([m for m in ('numpy', 'typer', 'jinja2', 'json', 'torch') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
