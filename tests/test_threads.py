"""The process belongs to the user: threads give the bits of one, the collector is put back, caches have bounds."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from random_graphs import random_graph

import aneforge as af
from aneforge.divergence import verdicts
from aneforge.graph import node, weights
from aneforge.graph.cache import SharedCache
from aneforge.numerics import diverges, stored
from aneforge.process import quiet_collector, quiet_warnings
from aneforge.sim import tables

THREADS = 8
CHIPS = ["h13", "h14", "h16g", "h17s"]


@pytest.fixture
def restless():
    """Threads take turns as often as they can, so that a race has a chance to show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work, jobs):
    """Every job in a pool of threads that start together; the results in order."""
    start = threading.Barrier(THREADS)
    with ThreadPoolExecutor(THREADS, initializer=start.wait) as pool:
        return list(pool.map(work, jobs))


def bits(arrays):
    listed = arrays if isinstance(arrays, list) else [arrays]
    return [(each.shape, np.asarray(each, np.float16).tobytes()) for each in listed]


def compiled_and_run(job):
    """Build, check, compile and run: the program as text and the bits that it gives, or why there is none."""
    seed, chip = job
    out, x = random_graph(seed, steps=8)
    graph = af.Graph.of(out)
    checked = af.preflight(graph, chip).ok
    try:
        model = af.compile(graph, target=chip)
    except af.AneforgeError as error:
        return checked, type(error).__name__
    data = np.random.default_rng(seed).standard_normal(x.shape)
    return checked, str(model), bits(model(data))


def test_threads_give_the_bits_of_one(restless):
    jobs = [(seed, chip) for seed in range(6) for chip in CHIPS] * 2  # each job twice: the same graph at the same time
    alone = [compiled_and_run(job) for job in jobs[: len(jobs) // 2]]
    assert sum(len(each) == 3 for each in alone) > len(alone) // 2
    assert in_threads(compiled_and_run, jobs) == [*alone, *alone]


def test_one_model_in_many_threads(restless):
    out, x = random_graph(3)
    data = [np.random.default_rng(seed).standard_normal(x.shape) for seed in range(16)]
    model = af.compile(out, target="h13")
    fresh = af.compile(out, target="h13")  # its weights are laid out by whichever thread comes first
    assert in_threads(lambda each: bits(fresh(each)), data) == [bits(model(each)) for each in data]


def test_one_graph_for_many_chips_in_many_threads(restless):
    out, x = random_graph(5)
    graph = af.Graph.of(out)
    chips = CHIPS * 4
    data = np.random.default_rng(5).standard_normal(x.shape)

    def run(chip):
        return bits(af.compile(graph, target=chip)(data))

    alone = {chip: run(chip) for chip in CHIPS}
    assert in_threads(run, chips) == [alone[chip] for chip in chips]


def test_divergence_in_many_threads(restless):
    def told(seed):
        return diverges(random_graph(seed, steps=6)[0], "h13", "h16g").to_json()

    alone = [told(seed) for seed in range(4)]
    stored._known._held.clear()
    assert in_threads(told, [0, 1, 2, 3] * 3) == alone * 3


# Weights and signatures.


def test_derived_weights_are_read_by_many_threads(restless):
    """More derived weights than are kept, each forgotten and made again while others read it."""
    parent = weights.intern_weight(np.arange(64, dtype=np.float16).reshape(8, 8))
    derived = [
        weights.derived_weight(f"times {factor}", (parent,), (8, 8), lambda a, factor=factor: a * factor)
        for factor in range(1, 13)
    ]

    def read(number):
        factor = number % 12 + 1
        return bool((derived[factor - 1].array == parent.array * factor).all())

    assert all(in_threads(read, range(12000)))
    assert len(weights._recent) <= weights._recent.most


def test_equal_weights_are_one_in_many_threads(restless):
    contents = np.arange(500, dtype=np.float16)
    made = in_threads(lambda number: weights.intern_weight(contents[: number // 16 + 1]), range(1600))
    for first in range(0, 1600, 16):
        assert len({id(each) for each in made[first : first + 16]}) == 1


def test_equal_nodes_share_one_signature_in_many_threads(restless):
    gain = np.arange(1, 9, dtype=np.float16)

    def made(number):
        x = af.input((number // 16 + 3001, 8))
        return x.relu().signature, x.layer_norm(gain, gain).signature

    found = in_threads(made, range(1600))
    for first in range(0, 1600, 16):
        assert len({tuple(map(id, each)) for each in found[first : first + 16]}) == 1


# The first use of anything, by all threads at once.


def test_the_first_import_may_come_from_many_threads():
    code = """
        import sys, threading
        sys.setswitchinterval(1e-6)
        start, failed, done = threading.Barrier(8), [], []

        def work(number):
            try:
                start.wait()
                import numpy as np
                import aneforge as af
                x = af.input((1, 4, 8, 8))
                y = af.conv(x, np.ones((4, 4, 3, 3)), pad=1).relu()
                chip = ["h13", "h14", "h16g", "h17s"][number % 4]
                assert af.preflight(y, chip).ok
                done.append(float(af.compile(y, target=chip)(np.ones((1, 4, 8, 8))).sum()))
                af.estimate(y, target=chip)
                af.partition(y, chip)
            except BaseException as error:
                failed.append(repr(error))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        [each.start() for each in threads]
        [each.join() for each in threads]
        assert not failed, failed
        assert len(done) == 8 and len(set(done)) == 1, done
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


# The collector and the filters of warnings.


@pytest.fixture
def collector():
    was_on = gc.isenabled()
    yield
    (gc.enable if was_on else gc.disable)()


@pytest.mark.parametrize("on", [True, False])
def test_a_compile_leaves_the_collector_as_it_was(collector, on):
    (gc.enable if on else gc.disable)()
    frozen = gc.get_freeze_count()
    af.compile(af.input((1, 4, 8, 8)).relu(), target="h13")
    assert gc.isenabled() is on
    assert gc.get_freeze_count() == frozen


def test_a_refused_compile_leaves_the_collector_as_it_was(collector):
    gc.enable()
    with pytest.raises(af.CompileError):
        af.compile(af.input((1, 70000)).relu(), target="h13")
    assert gc.isenabled()


def test_a_compile_never_freezes(collector, monkeypatch):
    def refuse():
        raise AssertionError("the heap is the caller's")

    monkeypatch.setattr(gc, "freeze", refuse)
    monkeypatch.setattr(gc, "unfreeze", refuse)
    gc.enable()
    af.compile(af.input((1, 4, 8, 8)).relu(), target="h13")


def test_the_collector_pauses_until_the_last_one_is_out(collector):
    gc.enable()
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with quiet_collector():
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=stay)
    with quiet_collector():
        assert not gc.isenabled()
        with quiet_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
        other.start()
        assert inside.wait(10)
    assert not gc.isenabled()  # the other thread came in later and is still at work
    leave.set()
    other.join()
    assert gc.isenabled()


def test_many_compiles_at_a_time_leave_the_collector_on(collector, restless):
    gc.enable()
    in_threads(lambda number: af.compile(af.input((1, 4, 8, number + 8)).relu(), target="h13"), range(32))
    assert gc.isenabled()


def test_filters_of_warnings_come_back_from_many_threads(restless):
    before = list(warnings.filters)

    def quiet(number):
        with quiet_warnings():
            warnings.warn("nobody hears this", UserWarning, stacklevel=1)
        return number

    in_threads(quiet, range(400))
    assert list(warnings.filters) == before


# Bounds.


def test_a_cache_forgets_the_oldest_and_stays_within_its_bound():
    cache = SharedCache(16)
    for number in range(1000):
        assert cache.keep(number, str(number)) == str(number)
        assert len(cache) <= 16
    assert cache.get(999) == "999"
    assert cache.get(0) is None
    assert cache.keep(999, "another") == "999"


def test_caches_keyed_by_what_users_pass_in_have_a_bound():
    """Whatever is kept by shapes, attributes or weights."""
    for cached in (tables.activation, verdicts._verdict):
        assert cached.cache_info().maxsize
    for cached in (node._signatures, weights._recent, stored._known):
        assert isinstance(cached, SharedCache)


def test_caches_stay_within_their_bounds_after_many_graphs(monkeypatch):
    signatures, digests = SharedCache(64), SharedCache(32)
    monkeypatch.setattr(node, "_signatures", signatures)
    monkeypatch.setattr(stored, "_known", digests)
    for number in range(24):
        x = af.input((1, 4, 8, number + 2))
        y = af.conv(x, np.full((4, 4, 1, 1), 0.01 * (number + 1))).linear_activation(1.0 + number / 8, 0.5)
        diverges(y, "h13", "h16g")
        assert len(signatures) <= 64
        assert len(digests) <= 32
        assert len(weights._recent) <= weights._recent.most
    assert len(signatures) > 32
    assert len(digests) > 16


def test_signatures_that_hold_weights_let_them_go():
    gc.collect()
    before, kept = len(weights._table), len(node._with_values)
    y = af.input((3, 8)).layer_norm(np.linspace(1, 2, 8), np.linspace(0, 1, 8))
    assert len(weights._table) == before + 2
    assert len(node._with_values) == kept + 1
    del y
    gc.collect()
    assert len(weights._table) == before
    assert len(node._with_values) == kept
