"""Threads: the same bits for any number of them, after a fork, and when Python threads share an operator."""

import ctypes
import itertools
import multiprocessing
import os
import platform
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import cynorm
import reference
from reference import from_canonical
from strategies import assert_same_bits, random_values

THREADS = (1, 2, 3, 8)


def draw(shape, dtype, layout="NCHW"):
    """src and diff_dst in a layout."""
    rng = np.random.default_rng(0)
    return [from_canonical(random_values(rng, shape, np.dtype(dtype)), layout) for _ in range(2)]


# ------------------------------------------------------------------------------------------------------------
# Any number of threads gives the same bits


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw8c", "nChw16c"])
@pytest.mark.parametrize("region", ["across_channels", "within_channel"])
@pytest.mark.parametrize("dtype", reference.DTYPES, ids=str)
def test_lrn_is_the_same_for_any_number_of_threads(layout, region, dtype):
    for shape, local_size in itertools.product(((3, 32, 23, 31), (1, 160, 17, 19), (1, 330, 9, 11)), (5, 12, 17, 31)):
        src, diff_dst = draw(shape, dtype, layout)
        lrn = cynorm.LRN(local_size, 1.0, region=region, layout=layout)
        results = []
        for num_threads in THREADS:
            workspace = cynorm.Workspace(cache="always")
            results.append(
                (
                    lrn.forward(src, workspace=workspace, num_threads=num_threads),
                    lrn.backward(diff_dst, src, num_threads=num_threads),
                    lrn.backward(diff_dst, src, workspace=workspace, num_threads=num_threads),
                )
            )
        for result in results[1:]:
            for got, expected in zip(result, results[0], strict=True):
                assert_same_bits(got, expected)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "nChw16c"])
@pytest.mark.parametrize("dtype", reference.DTYPES, ids=str)
def test_batch_norm_is_the_same_for_any_number_of_threads(layout, dtype):
    for shape in ((5, 32, 23, 31), (2, 160, 33, 34), (64, 16, 3, 3), (1500, 24, 2, 2)):
        src, diff_dst = draw(shape, dtype, layout)
        bn = cynorm.BatchNorm(layout=layout, activation="relu")
        results = []
        for num_threads in THREADS:
            workspace = cynorm.Workspace()
            forward = bn.forward_training(src, workspace=workspace, num_threads=num_threads)
            backward = bn.backward_training(diff_dst, src, workspace=workspace, num_threads=num_threads)
            inference = bn.forward_inference(src, *forward[1:], num_threads=num_threads)
            results.append((*forward, inference, *backward[:3]))
        for result in results[1:]:
            for got, expected in zip(result, results[0], strict=True):
                assert_same_bits(got, expected)


def test_set_num_threads_is_the_default_of_calls():
    src, _ = draw((2, 32, 23, 31), np.float32)
    before = cynorm.get_num_threads()
    expected = cynorm.LRN().forward(src)
    try:
        for num_threads in THREADS:
            cynorm.set_num_threads(num_threads)
            assert cynorm.get_num_threads() == num_threads
            assert_same_bits(cynorm.LRN().forward(src), expected)
    finally:
        cynorm.set_num_threads(None)
    assert cynorm.get_num_threads() == before


COUNT_THREADS = """
import os, sys
import numpy as np
import cynorm

def more(shape, **options):
    cynorm.lrn(np.ones(shape, np.float32), **options)
    return len(os.listdir("/proc/self/task")) - before

large, small = (8, 64, 40, 40), (1, 16, 5, 5)
before = len(os.listdir("/proc/self/task"))
cynorm.set_num_threads(1)
print(more(large), more(small, num_threads=3), more(large, num_threads=3))
cynorm.set_num_threads(5)
print(more(small), more(large))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
def test_calls_take_as_many_threads_as_they_are_told():
    """Those of the call, else those that were set; a small call has one."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", COUNT_THREADS], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["0", "0", "2", "2", "4"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are Linux's")
def test_more_threads_than_can_be_created():
    """OpenMP would end the process, so more than some for each CPU are not asked for."""
    code = """
import os, resource
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
import numpy as np
import cynorm
src = np.ones((64, 512, 32, 32), np.float16)
expected = cynorm.lrn(src, num_threads=1)
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
if hard == resource.RLIM_INFINITY or hard > 3 << 30:  # of which each thread's stack takes 8 MB
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, hard))
assert (cynorm.lrn(src, num_threads=60_000) == expected).all()
"""
    environment = {**os.environ, "OMP_STACKSIZE": "8M", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


# Of glibc's fenv_t: a word, and the bits of it that flush subnormals.
FLUSHES = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}


@pytest.mark.skipif(not sys.platform.startswith("linux") or platform.machine() not in FLUSHES, reason="glibc's fenv_t")
@pytest.mark.parametrize("num_threads", THREADS)
def test_threads_take_subnormals_as_their_caller_does(num_threads):
    """A program that has them flushed to 0 gets the same from any number of threads."""
    libm, environment = ctypes.CDLL("libm.so.6"), (ctypes.c_uint32 * 8)()
    word, bits = FLUSHES[platform.machine()]
    src = np.full((8, 64, 24, 24), 1e-39, np.float32)
    cynorm.lrn(src, num_threads=num_threads)  # what the threads were created with is not what counts
    bn = partial(cynorm.batch_norm_inference, src, *np.zeros((1, 64), np.float32), *np.ones((1, 64), np.float32), epsilon=0.0)
    assert (bn(num_threads=num_threads) == src).all()
    libm.fegetenv(environment)
    try:
        environment[word] |= bits
        libm.fesetenv(environment)
        flushed = cynorm.lrn(src, num_threads=num_threads), bn(num_threads=num_threads)
    finally:
        environment[word] &= ~bits
        libm.fesetenv(environment)
    for result in flushed:
        assert not result.view(np.int32).any()
    assert (cynorm.lrn(src, num_threads=num_threads) == src).all()


# ------------------------------------------------------------------------------------------------------------
# Fork


def compute_in_child(pipe, src):
    """What the forked child runs."""
    lrn = cynorm.LRN()
    assert cynorm.get_num_threads() == 1
    pipe.send((lrn.forward(src), lrn.backward(src, src, num_threads=4), lrn.forward(src, num_threads=2)))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_after_fork():
    """A child forked from a process that has used threads computes, and does not hang."""
    src, _ = draw((4, 32, 40, 41), np.float32)
    lrn = cynorm.LRN()
    expected = lrn.forward(src, num_threads=4), lrn.backward(src, src, num_threads=4), lrn.forward(src)
    context = multiprocessing.get_context("fork")
    for _ in range(2):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=compute_in_child, args=(sender, src))
        child.start()
        try:
            assert receiver.poll(60), "the forked child hangs"
            results = receiver.recv()
            child.join(60)
            assert child.exitcode == 0
        finally:
            child.kill()
        for got, wanted in zip(results, expected, strict=True):
            assert_same_bits(got, wanted)
        assert_same_bits(lrn.forward(src, num_threads=4), expected[0], "the parent, afterwards")


# ------------------------------------------------------------------------------------------------------------
# Python threads


@pytest.mark.usefixtures("isa")
def test_python_threads_share_one_operator():
    """Many threads, one operator, one workspace each."""
    lrn = cynorm.LRN(5, 1.0)
    problems = [draw((1 + seed % 3, 24, 11 + seed, 13), np.float32) for seed in range(8)]
    expected = [(lrn.forward(src), lrn.backward(diff_dst, src)) for src, diff_dst in problems]

    def work(index):
        workspace = cynorm.Workspace(cache="always")
        src, diff_dst = problems[index % len(problems)]
        dst = lrn.forward(src, workspace=workspace, num_threads=1 + index % 3)
        return dst, lrn.backward(diff_dst, src, workspace=workspace, num_threads=1 + index % 2)

    with ThreadPoolExecutor(8) as pool:
        for index, (dst, diff_src) in enumerate(pool.map(work, range(64))):
            assert_same_bits(dst, expected[index % len(problems)][0])
            assert_same_bits(diff_src, expected[index % len(problems)][1])


def test_python_threads_share_one_batch_norm():
    """Many threads, one operator, one workspace each; and one for all of them, which serves one call at a time."""
    bn = cynorm.BatchNorm(activation="relu")
    src, diff_dst = draw((4, 24, 17, 13), np.float32)
    shared = cynorm.Workspace()

    def work(workspace):
        dst, _, _ = bn.forward_training(src, workspace=workspace, num_threads=1)
        return dst, bn.backward_training(diff_dst, src, workspace=workspace, num_threads=1).diff_src

    def work_shared(_):
        try:
            return work(shared)
        except RuntimeError as error:
            assert "in use" in str(error)
            return None

    expected = work(cynorm.Workspace())
    with ThreadPoolExecutor(8) as pool:
        for result in pool.map(work, [cynorm.Workspace() for _ in range(64)]):
            for got, wanted in zip(result, expected, strict=True):
                assert_same_bits(got, wanted)
        for result in filter(None, pool.map(work_shared, range(64))):
            for got, wanted in zip(result, expected, strict=True):
                assert_same_bits(got, wanted)
    assert_same_bits(work(shared)[1], expected[1])


# ------------------------------------------------------------------------------------------------------------
# What importing and calling does to the process


def run(code):
    """Run a program of its own."""
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)


def test_import_keeps_subnormals_and_starts_no_threads():
    """The import sets no flush-to-zero, and leaves the process single-threaded, as it found it."""
    run(
        """
        import os
        import numpy as np
        def count():
            return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
        before = count()
        import cynorm
        assert count() == before, (before, count())
        for dtype in (np.float32, np.float64):
            tiny = np.full(64, np.finfo(dtype).smallest_subnormal, dtype)
            assert (tiny * dtype(3) == 3 * tiny[0]).all() and tiny[0] * dtype(3) > 0
        lrn = cynorm.LRN()
        lrn.forward(np.ones((4, 64, 40, 40), np.float32), num_threads=3)
        for dtype in (np.float32, np.float64):
            tiny = np.full(64, np.finfo(dtype).smallest_subnormal, dtype)
            assert tiny[0] * dtype(3) > 0
        """
    )


def test_a_forward_without_memory_leaves_no_workspace():
    """Backward says that the workspace holds no forward call."""
    pytest.importorskip("resource")
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("the size of a process is not known here")
    run(
        """
        import resource
        import numpy as np
        import cynorm
        src, out = np.ones((2, 1, 4, 1024, 1024), np.float32)
        with open("/proc/self/statm") as sizes:
            nbytes = int(sizes.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (nbytes + (8 << 20), resource.RLIM_INFINITY))
        lrn, bn = cynorm.LRN(), cynorm.BatchNorm(activation=cynorm.Activation("tanh"))
        for forward, backward in ((lrn.forward, lrn.backward), (bn.forward_training, bn.backward_training)):
            workspace = cynorm.Workspace("always")
            for call, inputs, error in ((forward, (src,), MemoryError), (backward, (src, src), ValueError)):
                try:
                    call(*inputs, out=out, workspace=workspace, num_threads=1)
                except error as failure:
                    assert error is MemoryError or "holds no forward call" in str(failure), failure
                else:
                    raise AssertionError(error)
        """
    )


def test_isa_can_be_forced_at_start():
    """CYNORM_ISA picks the kernels; an unknown one is refused with the names that there are."""
    for name in cynorm.available_isas():
        run(f"import os; os.environ['CYNORM_ISA'] = {name!r}; import cynorm; assert cynorm.isa() == {name!r}")
    unknown = cynorm.available_isas()[0] + "9"
    failure = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import os; os.environ['CYNORM_ISA'] = {unknown!r}; import cynorm; cynorm.isa()",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert failure.returncode != 0
    for word in ("CYNORM_ISA", unknown, "did you mean", *cynorm.available_isas()):
        assert word in failure.stderr


def test_use_isa_restores_what_was_in_force():
    before = cynorm.isa()
    for name in cynorm.available_isas():
        with cynorm._dispatch.use_isa(name):
            assert cynorm.isa() == name
        assert cynorm.isa() == before


def runs_beside(call):
    """Whether a thread that waits for the GIL gets it before some calls are over, though nothing takes it from its holder."""
    interval, gate, done = sys.getswitchinterval(), threading.Lock(), []
    gate.acquire()
    other = threading.Thread(target=lambda: (gate.acquire(), done.append(True)))
    sys.setswitchinterval(100)
    try:
        other.start()  # and goes on once the other waits at the gate
        gate.release()
        for _ in range(200):
            call()
            if done:
                break
        return bool(done)
    finally:
        sys.setswitchinterval(interval)
        other.join()


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="there is no GIL")
def test_calls_release_the_gil():
    lrn, bn, workspace = cynorm.LRN(), cynorm.BatchNorm(activation="relu"), cynorm.Workspace()
    src, out = np.random.default_rng(0).standard_normal((2, 4, 64, 56, 56)).astype(np.float32)
    mean = variance = np.ones(64, np.float32)
    bn.forward_training(src, out=out, workspace=workspace)
    held = range(100_000)
    assert not runs_beside(lambda: sum(held))
    for call in (
        lambda: lrn.forward(src, out=out, num_threads=1),
        lambda: lrn.backward(src, src, out=out, num_threads=1),
        lambda: bn.forward_training(src, out=out, num_threads=1),
        lambda: bn.forward_inference(src, mean, variance, out=out, num_threads=1),
        lambda: bn.backward_training(src, src, out=out, workspace=workspace, num_threads=1),
        lambda: bn.forward_training(src, out=out, workspace=workspace, num_threads=1),
        lambda: cynorm.streaming_limit(1, 1, 1 << 22, 1),
    ):
        assert runs_beside(call)
