"""python -m benchmarks.bn_targets: does batch normalization reach its goals on this machine?

Shares are of the streaming limit measured in turn with the kernel, on minimal traffic: each tensor once.
What is needed beyond it depends on the cache: training reads its inputs a second time where the slab of one
channel does not fit the cache of a core. No case may be slower than oneDNN or PyTorch.
"""

import itertools
import sys

from benchmarks.measure import cache_sizes
from benchmarks.problems import parse
from benchmarks.targets import Case, run

SHAPES = ("mb50ic256ih56", "mb50ic64ih112")
MANY_CHANNELS = ("mb16ic512ih14", "mb16ic2048ih7")
LAYOUTS = ("abx", "axb")
INFERENCE = "--flags=GCH --dir=FWD_I"
TRAINING = ("--flags=CH --dir=FWD_D", "--flags=CH --dir=BWD_DW")


def cases():
    """Every case of the goals."""
    for shape, tag in itertools.product(SHAPES, LAYOUTS):
        yield Case(f"--bnorm --tag={tag} {INFERENCE} {shape}", share=0.8)
        for training in TRAINING:
            words = f"--bnorm --tag={tag} {training} {shape}"
            yield Case(words, share=0.55, factor=_traffic_factor(words), needed_share=0.85)
    for dt, tag in itertools.product(("bf16", "f16"), LAYOUTS):
        yield Case(f"--bnorm --dt={dt} --tag={tag} {INFERENCE} {SHAPES[0]}", share=0.6)
        for training in TRAINING:
            yield Case(f"--bnorm --dt={dt} --tag={tag} {training} {SHAPES[0]}", share=0.4)
    for dt, tag, direction in itertools.product(("f32", "bf16"), LAYOUTS, ("FWD_D", "BWD_DW")):
        yield Case(f"--bnorm --dt={dt} --tag={tag} --flags=CHR --dir={direction} {SHAPES[0]}")
    for tag, training in itertools.product((*LAYOUTS, "aBx16b"), (INFERENCE, *TRAINING)):
        yield Case(f"--bnorm --tag={tag} {training} mb1ic64ih56")
    for tag, flags, images in itertools.product(LAYOUTS, ("GCH", "GCHR"), (1, 16)):
        yield Case(f"--bnorm --dt=s8 --tag={tag} --flags={flags} --dir=FWD_I mb{images}ic64ih56")
    for tag, training, shape in itertools.product((*LAYOUTS, "aBx16b"), TRAINING, MANY_CHANNELS):
        yield Case(f"--bnorm --tag={tag} {training} {shape}")
    for tag, training in itertools.product(LAYOUTS, (INFERENCE, *TRAINING)):
        yield Case(f"--bnorm --tag={tag} {training} mb1ic16ih5", microseconds=4.0)


def _traffic_factor(words):
    """Traffic that training needs, relative to the minimum."""
    (task,) = parse(words.split())
    problem = task.problem
    reads, writes = problem.traffic
    # Channels-last memory has the channels of a cache line side by side.
    channels = 64 // problem.dtype.itemsize if problem.tag == "axb" else 1
    slab = reads * problem.nbytes // problem.shape[1] * channels
    fits = slab <= cache_sizes().get(2, 1 << 20)
    return 1.0 if fits else (2 * reads + writes) / (reads + writes)


if __name__ == "__main__":
    sys.exit(run(list(cases()), ["oneDNN", "PyTorch"], "Batch normalization targets"))
