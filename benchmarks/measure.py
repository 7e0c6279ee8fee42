"""Measuring: the libraries in turn on the same arrays, beside what the machine can do at that size."""

import concurrent.futures
import contextlib
import itertools
import os
import platform
import random
import time
from pathlib import Path

import numpy as np

from benchmarks import check, tensors
from benchmarks.peers import Refused, library
from benchmarks.problems import Unsupported
from benchmarks.report import WIDE_SPREAD
from cynorm import streaming_limit
from cynorm.bandwidth import stream_pass

# A sample of many short calls lasts about this long.
_SAMPLE_SECONDS = 200e-6
# Calls shorter than (seconds) are preceded by (count) untimed ones: three bring the arrays back into the
# third-level cache, if it may hold them; longer calls are not, as that would double the time of a run for nothing.
_UNTIMED = ((2e-3, 3), (20e-3, 1))
_LEAST_ROUNDS = 5
# How many times the wished time may pass until _LEAST_ROUNDS rounds are done.
_PATIENCE = 4
_RERUNS = 2
_ERROR_ELEMENTS = 1 << 20
_DRAM_NBYTES = 1 << 30


def cpus():
    """The CPUs that this process may use."""
    return (
        sorted(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else list(range(os.cpu_count() or 1))
    )


def cache_sizes():
    """Bytes of the data caches of a core by level, as the system tells: {1: 49152, 2: ..., 3: ...}."""
    sizes = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with contextlib.suppress(OSError, ValueError):
            if (index / "type").read_text().strip() != "Instruction":
                size = (index / "size").read_text().strip()
                sizes[int((index / "level").read_text())] = int(size.rstrip("K")) << 10
    return sizes or {1: 32 << 10, 2: 1 << 20, 3: 32 << 20}


def machine():
    """What the results depend on besides the code."""
    model = platform.processor()
    with contextlib.suppress(OSError, IndexError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line for line in lines if line.startswith("model name")).split(":")[1].strip()
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "caches": cache_sizes(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "pinned": os.environ.get("OMP_PROC_BIND", "no"),
    }


class ColdCache:
    """Evicts the caches of all CPUs by sweeping through memory larger than they are."""

    _MOST = 1 << 30

    def __init__(self, cpu_numbers):
        sizes = cache_sizes()
        total = min(2 * max(sizes.values()), self._MOST) // len(cpu_numbers)
        self._pieces = [np.zeros(max(total, 4 * sizes.get(2, 0)), np.uint8) for _ in cpu_numbers]
        self._pools = [concurrent.futures.ThreadPoolExecutor(1) for _ in cpu_numbers]
        if hasattr(os, "sched_setaffinity"):
            for pool, cpu in zip(self._pools, cpu_numbers, strict=True):
                pool.submit(os.sched_setaffinity, 0, {cpu}).result()

    def __call__(self):
        sweeps = [
            pool.submit(np.add, piece, 1, piece)
            for pool, piece in zip(self._pools, self._pieces, strict=True)
        ]
        for sweep in sweeps:
            sweep.result()

    def close(self):
        for pool in self._pools:
            pool.shutdown()


def take_turns(runs, seconds, *, rounds=0, flush=None):
    """Time several callables in turn, A B B A: in rounds, each in an order of its own.

    Whatever runs after a library finds the arrays in the cache; after a pass of the limit, it does not: with one order for
    all rounds, one library would always gain.

    Parameters
    ----------
    runs : dict of str to callable
    seconds : float
        About how long to go on.
    rounds : int, optional
        How many rounds instead.
    flush : callable, optional
        Called, untimed, before every timed call.

    Returns
    -------
    dict of str to ndarray
        Seconds per call. Samples of the same index were taken in the same round.
    """
    typical = {name: min(_time(run, 1), _time(run, 1)) for name, run in runs.items()}
    repeats = {
        name: 1 if flush else max(1, round(_SAMPLE_SECONDS / time_)) for name, time_ in typical.items()
    }
    untimed = {
        name: 0 if flush else next((calls for limit, calls in _UNTIMED if time_ < limit), 0)
        for name, time_ in typical.items()
    }
    samples = {name: [] for name in runs}
    orders = random.Random(0)
    start = time.perf_counter()
    for done in itertools.count():
        spent = time.perf_counter() - start
        enough = spent > seconds and done >= _LEAST_ROUNDS or spent > _PATIENCE * seconds and done >= 2
        if done == rounds if rounds else enough:
            break
        for name in orders.sample(list(runs), len(runs)):
            for _ in range(untimed[name]):
                runs[name]()
            if flush:
                flush()
            samples[name].append(_time(runs[name], repeats[name]))
    return {name: np.array(values) for name, values in samples.items()}


def _time(run, repeats):
    start = time.perf_counter_ns()
    for _ in range(repeats):
        run()
    return (time.perf_counter_ns() - start) / repeats * 1e-9


def spread(samples):
    """Distance of the quartiles, relative to the median."""
    low, middle, high = np.percentile(samples, (25, 50, 75))
    return float((high - low) / middle)


def first_call(run):
    """(seconds, bytes by which the call raises the peak of resident memory, 0 where that is unknown)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        seconds = _time(run, 1)
        return seconds, max(0, _status("VmHWM") - before)
    except OSError:
        return _time(run, 1), 0


def _status(key):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) << 10


def limit_passes(problem, threads):
    """Callables that move a problem's minimal traffic: by name, with ordinary and with streaming stores."""
    # The kernel reads at most two arrays and writes one.
    reads, writes = (min(count, most) for count, most in zip(problem.traffic, (2, 1), strict=True))
    nbytes = traffic_nbytes(problem)
    return {
        "limit, ordinary stores": stream_pass(reads, writes, nbytes, threads, False),
        "limit, streaming stores": stream_pass(reads, writes, nbytes, threads, True),
    }


def machine_limits(threads):
    """GB/s for every pattern, kind of store and level of the memory, as a list of dicts."""
    sizes = cache_sizes()
    private = sizes.get(2, 1 << 20)
    levels = {
        "L2": private * threads // 2,
        "L3": min(8 * private * threads, sizes.get(3, 32 << 20) // 2),
        "DRAM": min(4 * max(sizes.values()), _DRAM_NBYTES),
    }
    return [
        {
            "level": level,
            "nbytes": nbytes,
            "reads": reads,
            "writes": writes,
            "streaming": streaming,
            "threads": threads,
            "gbs": streaming_limit(reads, writes, nbytes, threads, streaming),
        }
        for level, nbytes in levels.items()
        for reads, writes in ((1, 0), (1, 1), (2, 1))
        for streaming in ((False, True) if writes else (False,))
    ]


def traffic_nbytes(problem):
    """The least a call must move: each input tensor read once, each output tensor written once."""
    return sum(problem.traffic) * problem.nbytes


class Suite:
    """Measures problems with a set of libraries.

    Parameters
    ----------
    names : sequence of str
        Libraries; the first is the one that the others are compared with.
    threads : int
    """

    def __init__(self, names, threads):
        self.absent = [name for name in names if not library(name).available()]
        self.names = [name for name in names if name not in self.absent]
        self.set_num_threads(threads)

    def set_num_threads(self, threads):
        self.threads, self.unset = threads, {}
        for name in self.names:
            try:
                library(name).set_num_threads(threads)
            except Refused as reason:
                self.unset[name] = reason

    def versions(self):
        return {name: library(name).version() for name in self.names} | dict.fromkeys(
            self.absent, "not installed"
        )

    def row(self, problem, *, seconds=1.0, rounds=0, cold=False, with_error=True):
        """Measure one problem.

        Returns
        -------
        dict
            The problem, "limit" in GB/s and "results", by library: median, minimum, mean, maximum in seconds,
            spread, gbs, share of the limit, ratio (its time / the first library's, the median of pairs),
            implementation, workspace and scratch in bytes, error in ulp; or "refused" with the reason.
        """
        row = {
            "kind": "row",
            "problem": str(problem),
            "name": problem.descriptor.name,
            "driver": problem.driver,
            "direction": problem.direction,
            "dt": problem.dt,
            "tag": problem.tag,
            "shape": list(problem.shape),
            "parameters": problem.descriptor.unusual(),
            "threads": self.threads,
            "cache": "cold" if cold else "warm",
            "limit": None,
            "results": {},
        }
        try:
            problem.check_supported()
            row["nbytes"] = traffic_nbytes(problem)
            arrays = tensors.make(problem, tensors.random_fill)
        except Unsupported as reason:
            row["results"] = {name: {"refused": str(reason)} for name in self.names}
            return row
        prepared = self._prepare(problem, arrays, row["results"], with_error)
        row["results"] |= {name: {"refused": "not installed"} for name in self.absent}
        # A library slower than the time for all has its first call as its only sample.
        slow = {name: row["results"][name]["first"] for name in prepared}
        slow = {name: first for name, first in slow.items() if first > seconds and not rounds}
        runs = {name: ready.run for name, ready in prepared.items() if name not in slow}
        passes = limit_passes(problem, self.threads) if prepared and row["nbytes"] else {}
        samples = self._samples(runs | passes, seconds, rounds, cold)
        limits = [float(np.median(samples.pop(name))) for name in passes]
        row["limit"] = row["nbytes"] / min(limits) * 1e-9 if limits else None
        self._summarize(row, samples | {name: np.array([first]) for name, first in slow.items()})
        return row

    def ratio(self, problem, other, *, seconds=1.0):
        """The first library's time for a problem, relative to that for another, taken in turn."""
        ready = [
            library(self.names[0]).prepare(each, tensors.make(each, tensors.random_fill))
            for each in (problem, other)
        ]
        times = take_turns({"one": ready[0].run, "other": ready[1].run}, seconds)
        return float(np.median(times["one"]) / np.median(times["other"]))

    def _prepare(self, problem, arrays, results, with_error):
        prepared = {}
        for name in self.names:
            try:
                if name in self.unset:
                    raise self.unset[name]
                given = check.inputs(problem, arrays)
                start = time.perf_counter()
                ready = library(name).prepare(problem, arrays)
                seconds = time.perf_counter() - start
                problem.filter_implementation(ready.implementation)
            except (Refused, Unsupported) as reason:
                results[name] = {"refused": str(reason)}
                continue
            check.restore(problem, given, arrays)
            first, growth = first_call(ready.run)
            results[name] = {
                "prepare": seconds,
                "first": first,
                "implementation": ready.implementation,
                "workspace": ready.workspace_nbytes,
                "scratch": max(growth, ready.scratch_nbytes or 0),
            }
            if with_error and name == self.names[0]:
                check.restore(problem, given, arrays)
                outputs = arrays | ready.outputs(ready.run())
                results[name]["error"] = check.error_in_ulp(problem, given, outputs, most=_ERROR_ELEMENTS)
            prepared[name] = ready
        return prepared

    def _samples(self, runs, seconds, rounds, cold):
        flush = ColdCache(cpus()[: self.threads]) if cold else None
        best = None
        for _ in range(1 + _RERUNS):
            samples = take_turns(runs, seconds, rounds=rounds, flush=flush)
            width = max((spread(values) for values in samples.values()), default=0.0)
            if best is None or width < best[0]:
                best = width, samples
            if width <= WIDE_SPREAD or rounds:
                break
        if flush:
            flush.close()
        return best[1]

    def _summarize(self, row, samples):
        base = samples.get(self.names[0])
        for name, values in samples.items():
            result = row["results"][name]
            median = float(np.median(values))
            result |= {
                "median": median,
                "minimum": float(values.min()),
                "mean": float(values.mean()),
                "maximum": float(values.max()),
                "samples": len(values),
                "spread": spread(values),
                "gbs": row["nbytes"] / median * 1e-9,
            }
            if row["limit"]:
                result["share"] = result["gbs"] / row["limit"]
            if base is not None:
                pairs = values / base if len(values) == len(base) else median / np.median(base)
                result["ratio"] = float(np.median(pairs))
