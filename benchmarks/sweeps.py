"""Scaling runs: one quantity changes from problem to problem, all else stays."""

from benchmarks.problems import parse


def threads(most):
    """(threads, problem) for one problem of each operator from one thread to all."""
    words = (
        "--lrn --tag=abx,axb --dir=FWD_D,BWD_D mb16ic96ih55 "
        "--bnorm --tag=abx,axb --flags=CH --dir=FWD_D,BWD_DW mb16ic64ih56"
    )
    return [(count, problem) for problem in _problems(words) for count in range(1, most + 1)]


def size(_most):
    """(bytes of a tensor, problem) from what fits L1 to what fits no cache."""
    points = []
    for exponent in range(13, 28):
        height = 1 << (exponent - 2 - 6) // 2
        width = (1 << exponent - 2 - 6) // height
        words = (
            f"--lrn --dir=FWD_D,BWD_D --tag=abx,axb mb1ic64ih{height}iw{width} "
            f"--bnorm --dir=FWD_D,BWD_DW --flags=CH --tag=abx,axb mb1ic64ih{height}iw{width}"
        )
        points += [(1 << exponent, problem) for problem in _problems(words)]
    return points


def local_size(_most):
    """(local size, problem) of LRN up to 31; within a channel up to 15, where peers take seconds."""
    points = []
    for window in (1, 3, 5, 7, 9, 11, 15, 21, 31):
        regions = "ACROSS,WITHIN" if window <= 15 else "ACROSS"
        words = f"--lrn --dir=FWD_D,BWD_D --tag=abx,axb --alg={regions} mb1ic64ih28ls{window}"
        points += [(window, problem) for problem in _problems(words)]
    return points


def overhead(_most):
    """(elements, problem) of tiny tensors: the cost of a call that has next to nothing to do."""
    points = []
    for shape, elements in (("mb1ic1ih1", 1), ("mb1ic16ih1", 16), ("mb1ic16ih5", 400), ("mb1ic64ih8", 4096)):
        words = f"--lrn --dir=FWD_I,FWD_D,BWD_D {shape} --bnorm --flags=CH --dir=FWD_I,FWD_D,BWD_DW {shape}"
        points += [(elements, problem) for problem in _problems(words)]
    return points


def _problems(words):
    return [task.problem for task in parse(words.split())]


SWEEPS = {"threads": threads, "size": size, "local_size": local_size, "overhead": overhead}
UNITS = {
    "threads": "threads",
    "size": "bytes of a tensor",
    "local_size": "local size",
    "overhead": "elements",
}
