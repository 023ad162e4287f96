"""The process belongs to the user: threads give the bits of one, the collector is put back, caches have bounds."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from random_graphs import random_graph

import aneforge as af
from aneforge.graph import node, weights
from aneforge.graph.cache import SharedCache
from aneforge.numerics import divergence as verdicts
from aneforge.numerics import ranges as stored
from aneforge.process import quiet_collector, quiet_warnings
from aneforge.sim import tables
from aneforge.study import divergences_between

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


def test_files_are_loaded_by_many_threads(restless, tmp_path):
    files = []
    for seed in range(4):
        files.append(tmp_path / f"{seed}.aneg")
        af.Graph.of(random_graph(seed)[0]).save(files[-1])

    def told(file):
        graph = af.load(file)
        return str(graph), [(each.key, each.array.tobytes()) for each in graph.weights.values()]

    alone = [told(file) for file in files]
    assert in_threads(told, files * 4) == alone * 4


def test_divergence_in_many_threads(restless):
    def told(seed):
        return divergences_between(random_graph(seed, steps=6)[0], "h13", "h16g").to_json()

    alone = [told(seed) for seed in range(4)]
    stored._known._values.clear()
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


class Meeting:
    """A call that returns when two threads have come: both have looked and found nothing, and both go on to store."""

    def __init__(self, call):
        self.call, self.barrier = call, threading.Barrier(2)

    def __call__(self, *arguments, **named):
        self.barrier.wait(10)
        return self.call(*arguments, **named)


def both(work):
    with ThreadPoolExecutor(2) as pool:
        return [each.result() for each in [pool.submit(work), pool.submit(work)]]


def test_two_threads_that_store_the_same_weight_get_one(monkeypatch):
    monkeypatch.setattr(weights, "Weight", Meeting(weights.Weight))
    one, two = both(lambda: weights.intern_weight(np.arange(77)[None] + 0.5))
    assert one is two
    parent = one
    one, two = both(lambda: weights.derived_weight("halved", (parent,), (1, 77), lambda a: a / 2))
    assert one is two


def test_two_threads_that_make_the_same_numbers_get_one_array():
    parent = weights.intern_weight(np.arange(78)[None] + 0.5)
    derived = weights.derived_weight("met", (parent,), (1, 78), Meeting(lambda a: a / 2))
    one, two = both(lambda: derived.array)
    assert one is two


@pytest.mark.parametrize(
    "make",
    [lambda x: x.relu(), lambda x: x.layer_norm(np.linspace(1, 2, 8), np.linspace(0, 1, 8))],
    ids=["plain", "with values"],
)
def test_two_threads_that_infer_the_same_signature_get_one(monkeypatch, make):
    x = af.input((31, 8))
    make(x)  # the constants have signatures of their own
    monkeypatch.setattr(node, "_signatures", SharedCache(64))
    for each in (np.linspace(1, 2, 8), np.linspace(0, 1, 8)):
        af.const(each)
    monkeypatch.setattr(node, "_infer", Meeting(node._infer))
    one, two = both(lambda: make(x))
    assert one.signature is two.signature


class SlowKey:
    """Every look-up lets another thread go first."""

    def __init__(self, number):
        self.number = number

    def __hash__(self):
        time.sleep(0)
        return self.number

    def __eq__(self, other):
        return self.number == other.number


def test_threads_may_fill_a_full_cache():
    cache = SharedCache(4)
    keys = [SlowKey(number % 50) for number in range(2000)]
    assert in_threads(lambda key: cache.keep(key, key.number), keys) == [key.number for key in keys]
    assert len(cache) <= 4


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


def test_filters_of_warnings_come_back_when_two_threads_are_quiet():
    """Python saves and restores one list for all threads: in turns, the filters of one would stay for good."""
    before = list(warnings.filters)
    entered, leave = threading.Event(), threading.Event()

    def quiet():
        with quiet_warnings():
            entered.set()
            leave.wait(10)

    other = threading.Thread(target=quiet)
    with quiet_warnings():
        warnings.warn("nobody hears this", UserWarning, stacklevel=1)
        other.start()
        entered.wait(0.2)  # in vain, where threads come in one by one
    leave.set()
    other.join()
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
    for cached in (tables._activation, verdicts.verdict_on):
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
        divergences_between(y, "h13", "h16g")
        assert len(signatures) <= 64
        assert len(digests) <= 32
        assert len(weights._recent) <= weights._recent.most
    assert len(signatures) > 32
    assert len(digests) > 16


def test_signatures_hold_no_weights():
    gc.collect()
    before = len(weights._table)
    y = af.input((3, 8)).layer_norm(np.linspace(1, 2, 8), np.linspace(0, 1, 8))
    assert len(weights._table) == before + 2
    signature = y.signature
    assert signature is af.input((3, 8)).layer_norm(np.linspace(2, 3, 8), np.linspace(1, 2, 8)).signature
    assert signature is not af.input((3, 8)).layer_norm(np.ones(8), np.zeros(8)).signature
    del y
    gc.collect()
    assert len(weights._table) == before
