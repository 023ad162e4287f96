"""Plans of large models: layers are found by structure, programs keep every ceiling, and their chain is the model."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from cli_kit import run
from decoder_kit import onnx_decoder

import aneforge as af
from aneforge.advice.split import cuts, limits
from aneforge.advice.split.apply import Applied
from aneforge.advice.split.pieces import piece_of
from aneforge.advice.split.plan import Planner
from aneforge.advice.split.price import together
from aneforge.advice.split.resize import Resizer, TokenSizes
from aneforge.advice.split.structure import structure_of
from aneforge.chips.ceilings import Ceiling
from aneforge.chips.evidence import Fact
from aneforge.compiler.storage import STORAGES
from aneforge.cost.estimate import estimate_program
from aneforge.errors import AneforgeError
from aneforge.graph.ops.leaf import const
from aneforge.study.cache_forms import with_rows_as_outputs
from aneforge.study.placement import runtime_called
from aneforge.study.study import Study

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench"))
from decoder_graphs import CACHES, FAMILIES, REAL, SMALL, feeds_of, graph_of

pytestmark = pytest.mark.filterwarnings("ignore")  # slices of random weights may be large on old chips


@pytest.fixture
def small_programs(monkeypatch):
    """Ceilings that small models meet: two layers a program, and 64 words of a vocabulary an operation."""
    usual = limits._about

    def about(known, quantity, kind, unlike):
        evidence = Fact(1, ("TEST",), "inferred", "a small ceiling")
        ceiling = {
            "weight_bytes": Ceiling("small", "weight_bytes", 40_000, "small", "cut more", ("L15",), evidence),
            "head_rows": Ceiling("rows", "head_rows", 64, "rows", "cut the head", ("LC12",), evidence),
        }.get(quantity)
        return (ceiling,) if ceiling else usual(known, quantity, kind, unlike)

    monkeypatch.setattr(limits, "_about", about)
    monkeypatch.setattr("aneforge.advice.split.head.LEAST_ROWS", 16)


# What is found in a graph.


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cache", CACHES)
def test_layers_head_and_caches_are_found_by_structure(family, cache):
    sizes = SMALL[family]
    structure = structure_of(graph_of(sizes, 8 if cache == "none" else 1, 16, cache, seed=1))
    assert len(structure.blocks) == sizes.layers
    assert structure.start is None
    assert structure.repeats
    assert structure.vocabulary == sizes.vocabulary
    assert len(structure.writes) == (0 if cache == "none" else 2 * sizes.layers)
    assert structure.rows == (8 if cache == "none" else 1)
    inside = {node.uid for block in (*structure.blocks, structure.end) for node in block.nodes}
    assert inside == {node.uid for node in structure.graph.nodes if not node.definition.leaf}


def test_layers_of_two_kinds_are_told_apart():
    structure = structure_of(graph_of(SMALL["smollm"], 1, 16, "state", seed=1))
    assert [block.kind for block in structure.blocks] == [0, 0, 0, 1]  # nothing is turned in the fourth


def test_the_order_of_a_file_does_not_matter():
    """A graph whose cache slices are all made first has the same layers."""
    graph = graph_of(SMALL["llama"], 1, 16, "state", seed=1)
    shuffled = with_rows_as_outputs(graph)  # slices keep their old numbers, the rest is built anew
    assert len(structure_of(shuffled).blocks) == len(structure_of(graph).blocks) == 4


def test_an_onnx_decoder_with_token_ids(tmp_path):
    structure = structure_of(af.load(onnx_decoder(tmp_path)))
    assert len(structure.blocks) == 3
    assert structure.vocabulary == 96
    assert {(write.form, write.port.name) for write in structure.writes} >= {("grow", "past.0.k")}
    assert structure.start is not None
    assert [node.op for node in structure.start.nodes] == ["host"]  # the look-up of the tokens


def test_a_model_without_layers_is_no_decoder():
    x = af.input((1, 8, 16, 16), name="x")
    structure = structure_of(af.Graph([af.conv(x, np.ones((8, 8, 3, 3)), pad=1).relu().named("y")]))
    assert (structure.vocabulary, structure.writes, structure.attention) == (0, (), None)
    plan = af.split_model(structure.graph, "m1")
    assert plan.loads
    assert "tokens" not in str(plan)  # it has one kind of call, and no tokens
    assert "call: " in str(plan)


def test_a_sum_of_inputs_is_no_cache():
    x, y = af.input((1, 8), name="x"), af.input((1, 8), name="y")
    assert structure_of(af.Graph([(x + y).named("z")])).writes == ()


# Other numbers of tokens.


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cache", ["state", "in-out", "rows"])
@pytest.mark.parametrize(("now", "then"), [((1, 16), (1, 40)), ((1, 16), (8, 32)), ((4, 16), (1, 16))])
def test_layers_for_other_numbers_of_tokens_are_those_that_are_built_for_them(family, cache, now, then):
    """The same weights, so the numbers must be the same too."""
    sizes = SMALL[family]
    structure = structure_of(graph_of(sizes, *now, cache, seed=3))
    mine = Resizer(structure, TokenSizes(*then)).piece(structure.blocks[1].nodes)
    want = structure_of(graph_of(sizes, *then, cache, seed=3))
    theirs = piece_of(want, want.blocks[1].nodes)
    ours, others = _both(mine, theirs)
    if cache == "state":  # where a fixed place is in a longer cache is free: the new rows are what counts
        assert [a.shape for a in ours] == [b.shape for b in others]
        return
    for a, b in zip(ours, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_layers_of_a_file_for_one_token_are_those_of_the_file_for_many(tmp_path):
    """The reader wrote the move of the one token as a reshape, so the move has to be found again."""
    (tmp_path / "many").mkdir()
    one, many = (
        structure_of(with_rows_as_outputs(af.load(onnx_decoder(folder, rows=rows))))
        for folder, rows in ((tmp_path, 1), (tmp_path / "many", 8))
    )
    for mine, theirs in zip(one.blocks[1:], many.blocks[1:], strict=True):
        resized = Resizer(one, TokenSizes(8, 16)).piece(mine.nodes)
        for a, b in zip(*_both(resized, piece_of(many, theirs.nodes)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_what_the_host_computes_keeps_the_sizes_of_the_file(tmp_path):
    plan = af.split_model(af.load(onnx_decoder(tmp_path)), "m1")
    assert plan["m1"].prompt is not None
    written = plan.apply(tmp_path / "pieces", packages=False)
    assert "the host computes has the sizes of the file" in written.unwritten[0]
    assert af.load_split(tmp_path / "pieces").kinds == ("decode",)


def _both(mine, theirs):
    """What two graphs give for the same numbers; ports that only one of them has are paired in order."""
    ours, others = ({str(port.name): port for port in graph.inputs} for graph in (mine, theirs))
    own_name = dict(zip(sorted(ours.keys() - others.keys()), sorted(others.keys() - ours.keys()), strict=True))
    feeds, renamed = {}, {}
    for name, port in ours.items():
        other = others[own_name.get(name, name)]  # what the layer before hands on has a name of its own
        assert port.shape == other.shape
        feeds[name] = renamed[str(other.name)] = np.random.default_rng(len(feeds)).standard_normal(port.shape)
    return af.evaluate(mine, feeds), af.evaluate(theirs, renamed)


def test_what_nobody_can_tell_apart_is_refused():
    x = af.input((1, 6, 8), name="x")
    scores = (x @ x.mT).softmax(-1) @ x
    graph = af.Graph([(scores.reshape(1, 48).linear(np.ones((48, 48))).reshape(1, 6, 8) + x).named("y")])
    structure = structure_of(graph)
    with pytest.raises(AneforgeError):
        Resizer(structure, TokenSizes(12, 0)).piece(structure.blocks[0].nodes)


# Cuts.


def test_runs_are_as_few_and_as_equal_as_the_ceiling_allows():
    held = [cuts.Holdings({str(number): 10}) for number in range(10)]
    real = limits.Ceilings.on(af.target("m4"), "coreml")
    cut = cuts.cut_layers(held, real)
    assert [run.count for run in cut.runs] == [10]
    assert cut.breach is None

    ceiling = Ceiling("x", "weight_bytes", 40, "x", "x", (), Fact(40))
    few = type("Few", (), {"breaches": lambda self, a: [limits.Breach(ceiling, a.weight_bytes)] if a.weight_bytes > 40
                           else []})()  # fmt: skip
    cut = cuts.cut_layers(held, few)
    assert [run.count for run in cut.runs] == [
        4,
        4,
        2,
    ]  # none holds more than 4, and fewer programs than 3 are not possible
    assert cut.longest == 4
    assert cut.breach is not None
    assert cut.breach.amount > 40
    alone = cuts.cut_layers([cuts.Holdings({"a": 50})], few)
    assert alone.alone is not None


def test_equal_weights_count_once_in_a_program():
    assert cuts.amounts_of([cuts.Holdings({"a": 5}), cuts.Holdings({"a": 5, "b": 1})]).weight_bytes == 6


@pytest.mark.parametrize("name", [name for name in STORAGES if name != "sparse"])
@pytest.mark.parametrize("shape", [(64, 96), (33, 64)])
def test_bytes_in_a_form_are_those_of_a_weight_in_it(name, shape):
    storage = STORAGES[name]
    assert storage.bytes_of(shape) == storage.write(np.random.default_rng(0).standard_normal(shape)).stored_bytes


@pytest.mark.parametrize(
    ("name", "weights"), [*((name, None) for name in REAL), ("Llama-3.1-8B", "int4"), ("Gemma-3-1B", "int8")]
)
def test_plans_of_real_sizes_keep_every_ceiling(name, weights):
    sizes = REAL[name]
    plan = af.split_model(graph_of(sizes, 1, 2048, "state"), "m4,a17-pro", weights=weights)
    for chip in plan.values():
        assert chip.decode is not None
        layers = [number for run in chip.decode.cut.runs for number in range(run.first, run.last + 1)]
        assert layers == list(range(sizes.layers))
        ceilings = limits.Ceilings.on(chip.chip, "coreml")
        for program in chip.decode.programs:
            if program.kind == "layers":
                assert not ceilings.breaches(program.amounts)
        if chip.decode.cut.breach is not None:
            assert chip.decode.cut.breach.ceiling.label in str(chip).replace("\n    ", " ")
        rates = chip.decode.tokens_per_s
        assert rates is not None
        assert rates[0] < rates[1] < rates[2]
        assert chip.prompt is not None
        assert chip.prompt.tokens_per_s is not None
        assert chip.prompt.tokens_per_s[1] > rates[1]  # 64 tokens share the weights


def test_fewer_bytes_are_fewer_programs_and_faster():
    graph = graph_of(REAL["Qwen3-8B"], 1, 2048, "state")
    plain, small = (af.split_model(graph, "m4", weights=weights)["m4"] for weights in (None, "int4"))
    assert plain.decode
    assert small.decode
    assert len(small.programs) < len(plain.programs)
    assert small.decode.cost.us < plain.decode.cost.us


def test_the_step_of_the_issue_is_two_programs():
    """A Qwen3-0.6B step is not 59 regions: its layers are one program, the head in pieces another."""
    chip = af.split_model(graph_of(REAL["Qwen3-0.6B"], 1, 2048, "in-out"), "m4")["m4"]
    assert [program.kind for program in chip.programs] == ["layers", "head"]
    assert chip.layout.name in ("rows", "state")
    assert chip.decode is not None
    assert chip.decode.head_pieces > 1


def test_the_price_of_a_plan_is_that_of_its_programs():
    """Layers are priced once and repeated; the whole program, compiled, takes the same within a few per cent."""
    sizes = SMALL["llama"]
    graph = graph_of(sizes.__class__("llama", 4, 512, 8, 4, 64, 1024, 4096), 1, 256, "in-out", seed=1)
    study = Study(graph, "m4").by(runtime_called("coreml"))
    planner = Planner(study, None, structure_of(graph))
    phase = planner.phase("m4")
    for program in phase.programs:
        built = planner.graph_of(program, phase.head_pieces).graph
        whole = estimate_program(study.with_graph(built).partition().programs[0], "coreml_call", study.chips["m4"])
        assert program.cost.us == pytest.approx(whole.us, rel=0.02)
    assert together(program.cost for program in phase.programs).us == phase.cost.us


def test_an_encoder_above_a_ceiling_is_cut_too(small_programs):
    graph = graph_of(SMALL["gpt2"], 12, 12, "none", seed=2)
    plan = af.split_model(graph, "m4")["m4"]
    assert len(plan.prompt.cut.runs) > 1
    assert plan.decode is None
    assert "keeps no cache" in str(plan)


# Written and run.


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cache", CACHES)
def test_the_chain_of_programs_is_the_model(family, cache, tmp_path, small_programs):
    graph = graph_of(SMALL[family], 8 if cache == "none" else 1, 32, cache, seed=1)
    plan = af.split_model(graph, "m4")
    written = plan.apply(tmp_path / "pieces", packages=False)
    assert written.check is not None
    assert written.check.error == 0.0  # a cut changes no rounding
    kinds = [program.kind for program in plan["m4"].programs]
    assert kinds.count("layers") > 1
    phase = plan["m4"].phases[0]
    assert phase.head_pieces > 1
    chain = af.load_split(tmp_path / "pieces")
    feeds = feeds_of(graph)
    want = af.run(graph, "m4", feeds).outputs["logits"]
    np.testing.assert_array_equal(chain.run(chain.compare_feeds(feeds))["logits"], want)


def test_stored_weights_are_written_as_the_plan_counts_them(tmp_path):
    sizes = SMALL["llama"].__class__("llama", 3, 64, 4, 2, 16, 128, 256)
    plan = af.split_model(graph_of(sizes, 1, 32, "in-out", seed=1), "m4", weights="int8")
    written = plan.apply(tmp_path / "pieces", packages=False)
    assert written.check is not None
    assert written.check.error == 0.0  # against the whole model with the same weights
    saved = af.load_graph(tmp_path / "pieces" / "decode_layers_0_2.aneforge")
    encoded = [weight for weight in saved.weights.values() if weight.encoded is not None]
    assert len(encoded) == 3 * 7
    counted = plan["m4"].programs[0].amounts.weight_bytes
    stored = sum(w.encoded.stored_bytes if w.encoded else 2 * w.size for w in saved.weights.values())
    assert stored == pytest.approx(counted, rel=0.02)


def test_the_erratum_is_avoided_where_the_estimate_is_on_it(tmp_path):
    """On an M4, a layer with 1 MiB of weights a core streams slowly; its input axis is cut."""
    sizes = SMALL["llama"].__class__("llama", 2, 2048, 16, 8, 128, 4096, 2048)
    plan = af.split_model(graph_of(sizes, 1, 128, "in-out"), "m4,m1")
    assert {rewrite for program in plan["m4"].programs for rewrite in program.rewrites} == {"split-input-axis"}
    assert not any(program.rewrites for program in plan["m1"].programs)


def test_packages_are_written_beside_the_graphs(tmp_path):
    pytest.importorskip("coremltools")
    plan = af.split_model(graph_of(SMALL["llama"], 1, 32, "in-out", seed=1), "m4")
    plan.apply(tmp_path / "pieces")
    manifest = json.loads((tmp_path / "pieces" / "manifest.json").read_text())
    assert "decode_layers_0_3.mlpackage" in manifest["packages"]
    back = af.load(tmp_path / "pieces" / "decode_layers_0_3.mlpackage")
    assert {port.name for port in back.inputs} >= {"x", "keys_0"}


def test_steps_go_on_from_the_caches_of_the_steps_before(tmp_path):
    graph = graph_of(SMALL["qwen3"], 1, 16, "in-out", seed=1)
    af.split_model(graph, "m1").apply(tmp_path / "pieces", packages=False)
    chain = af.load_split(tmp_path / "pieces")
    caches = {f"{what}_{n}": np.zeros((2, 16, 8), np.float16) for what in ("keys", "values") for n in range(4)}
    for step in range(3):
        feeds = {name: value for name, value in feeds_of(graph, step).items() if name not in caches}
        want = af.run(graph, "m1", {**feeds, **caches}).outputs
        have = chain.run(feeds, "decode")
        np.testing.assert_array_equal(have["logits"], want["logits"])
        caches = {name: want[f"{name}_out"] for name in caches}
        for name, value in caches.items():
            np.testing.assert_array_equal(chain.caches[name], value)
    chain.reset()
    assert not chain.caches["keys_0"].any()


# Commands and bad input.


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = Path(__file__).resolve().parent.parent / "examples"
    Path("decoder.py").write_text((examples / "decoder.py").read_text())
    return tmp_path


def test_the_command_prints_the_plan_and_writes_it(home, monkeypatch, capsys):
    status, out, _ = run("split decoder.py --target m4 --apply pieces", monkeypatch, capsys)
    assert status == 0
    assert "tokens/s" in out
    assert "the chain gives the bits of the whole model" in out
    status, out, _ = run("run pieces", monkeypatch, capsys)
    assert status == 0
    assert "logits [1, 512]" in out
    status, out, _ = run("run pieces --call prompt --json", monkeypatch, capsys)
    assert status == 0
    assert json.loads(out)["logits"]


def test_the_plan_as_json(home, monkeypatch, capsys):
    status, out, _ = run("split decoder.py:large --target m4,a17-pro,m1 --weights int4 --json", monkeypatch, capsys)
    assert status == 0
    document = json.loads(out)
    assert document["layers"] == 36
    for chip in document["targets"].values():
        assert chip["decode"]["tokens_per_s"]["middle"] > 0
        assert chip["prompt"]["tokens_per_s"]["middle"] > 0
        assert all(limit["source"] for limit in chip["limits"])


def test_a_layer_above_a_ceiling_says_so(home, monkeypatch, capsys):
    monkeypatch.setattr(limits, "_about", lambda known, quantity, *_: (
        Ceiling("none", quantity, 10, "tiny", "store less", ("L15",), Fact(10, ("TEST",), "inferred")),
    ) if quantity == "weight_bytes" else ())  # fmt: skip
    status, out, _ = run("split decoder.py --target m4", monkeypatch, capsys)
    assert status == 1
    assert "one layer alone is too large" in out
    assert "would not load" in out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("split decoder.py --target m4 --context 0", "context: 0 is not a number of tokens"),
        ("split decoder.py --target m4 --context 9999999", "a cache takes at most"),
        ("split decoder.py --target m4 --weights int3", "is not an encoding"),
        ("split decoder.py --target m4 --weights sparse", "depends on the numbers"),
        ("split decoder.py --target m4,m5 --apply pieces", "--apply: it writes the programs of one chip"),
        ("split decoder.py --target m4 --apply .", "exists"),
        ("split decoder.py --target m4 --apply none/pieces", "does not exist"),
        ("run pieces", "no such file"),
        ("run decoder.py --call decode", "--call"),
    ],
)
def test_bad_input_is_one_message(home, monkeypatch, capsys, line, words):
    status, out, err = run(line, monkeypatch, capsys)
    assert status == 2
    assert words in err
    assert len(err.strip().splitlines()) <= 3
    assert not Path("pieces").exists()
    assert not out


def test_an_unknown_op_is_left_to_the_host(tmp_path):
    plan = af.split_model(af.load(onnx_decoder(tmp_path, tail="Erf")), "m4")
    assert plan["m4"].decode is not None
    assert plan["m4"].decode.tokens_per_s is not None


def test_nothing_is_left_where_writing_fails(tmp_path, monkeypatch):
    plan = af.split_model(graph_of(SMALL["llama"], 1, 32, "in-out", seed=1), "m4")

    def fail(*_, **__):
        raise AneforgeError("no")

    monkeypatch.setattr("aneforge.advice.split.apply.export_coreml", fail)
    with pytest.raises(AneforgeError):
        plan.apply(tmp_path / "pieces")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_said_before_the_work(tmp_path, monkeypatch):
    plan = af.split_model(graph_of(SMALL["llama"], 1, 32, "in-out", seed=1), "m4")
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(AneforgeError, match="are free"):
        plan.apply(tmp_path / "pieces")
    assert not (tmp_path / "pieces").exists()


@pytest.mark.parametrize(
    "text", ["", "{}", '{"aneforge_split": 1}', '{"aneforge_split": 9, "target": "m4", "calls": {}}',
             '{"aneforge_split": 1, "target": "m4", "calls": {"decode": {"programs": [{"graph": "../x"}]}}}'],
)  # fmt: skip
def test_a_damaged_manifest_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(AneforgeError, match="manifest"):
        af.load_split(tmp_path)


def test_the_runner_refuses_unknown_inputs_and_full_caches(tmp_path):
    graph = graph_of(SMALL["llama"], 1, 4, "rows", seed=1)
    plan = af.split_model(graph, "m1")
    assert isinstance(plan.apply(tmp_path / "pieces", packages=False), Applied)
    chain = af.load_split(tmp_path / "pieces")
    feeds = {name: value for name, value in feeds_of(graph).items() if name not in chain.caches}
    with pytest.raises(AneforgeError, match="not an input"):
        chain.run({**feeds, "other": np.zeros(1)})
    with pytest.raises(AneforgeError, match="no value"):
        chain.run({})
    with pytest.raises(AneforgeError, match="not a kind of call"):
        chain.run(feeds, "sideways")
    for _ in range(4):
        chain.run(feeds, "decode")
    with pytest.raises(AneforgeError, match="is full at token 5"):
        chain.run(feeds, "decode")


def test_a_weight_that_repeats_one_number_takes_no_memory():
    array = np.broadcast_to(np.float16(0.5), (1 << 12, 1 << 12))
    weight = const(array).weight
    assert weight is not None
    assert weight.array.strides == (0, 0)
    assert const(np.broadcast_to(np.float16(0.5), (1 << 12, 1 << 12))).weight is weight
    assert const(np.broadcast_to(np.float16(0.25), (1 << 12, 1 << 12))).weight is not weight
    with warnings.catch_warnings(), pytest.raises(AneforgeError):
        const(np.broadcast_to(np.float16(np.nan), (1 << 12, 1 << 12)))


def test_layers_that_a_runtime_keeps_off_the_engine_are_named(home, monkeypatch, capsys):
    """Core AI fails at attention with one query on an M5 (E08), so the layers would run on the GPU."""
    status, out, _ = run("split decoder.py --target m5 --runtime coreai", monkeypatch, capsys)
    assert status == 1
    assert "nothing of it runs on the engine" in out
    assert "0xe00002c2" in out
    status, out, _ = run("split decoder.py --target m4 --runtime direct", monkeypatch, capsys)
    assert status == 0


def test_a_time_that_nobody_knows_is_unknown(home, monkeypatch, capsys):
    """Core ML expands palettes on an M5 in every call (C55)."""
    _, out, _ = run("split decoder.py --target m5 --weights int4", monkeypatch, capsys)
    assert "decode: unknown: the time of a call is not known" in out
    assert "C55" in out


def test_far_too_many_programs_are_more_than_a_process_holds():
    sizes = REAL["Llama-3.1-8B"].__class__("llama", 150, 16384, 128, 16, 128, 53248, 128256)
    plan = af.split_model(graph_of(sizes, 1, 1024, "in-out"), "m4")["m4"]
    assert not plan.loads
    assert {"programs-mac-coreml", "program-size"} <= {breach.ceiling.id for breach in plan.breaches}
