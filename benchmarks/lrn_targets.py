"""python -m benchmarks.lrn_targets: does LRN reach its goals on this machine?

Shares are of the streaming limit measured in turn with the kernel: a read and a write for forward, two reads
and a write for backward. No case may be slower than oneDNN.
"""

import itertools
import sys

from benchmarks.targets import Case, run

LARGE = "mb64ic96ih55"
IN_CACHE = "mb1ic64ih56"
ONE_IMAGE = "mb1ic96ih55"
LAYOUTS = ("abx", "axb")
DIRECTIONS = ("FWD_D", "BWD_D")


def cases():
    """Every case of the goals."""
    plain = list(itertools.product(LAYOUTS, DIRECTIONS))
    for tag, direction in plain:
        yield Case(_words(tag, direction, LARGE), share=0.75)
    for dt, (tag, direction) in itertools.product(("bf16", "f16"), plain):
        yield Case(_words(tag, direction, LARGE, f"--dt={dt}"), share=0.6)
    for tag, direction in plain:
        yield Case(_words(tag, direction, LARGE, "--alg=WITHIN"), share=0.5)
    for variant in ("beta0.5", "beta1", "beta0.6", "ls3", "ls9", "ls15", "ls31", "ls11beta0.5"):
        for tag, direction in plain:
            yield Case(_words(tag, direction, LARGE + variant), half_of=_words(tag, direction, LARGE))
    for size, (tag, direction) in itertools.product((7, 15, 31), plain):  # of one image: oneDNN's reference takes seconds
        within = _words(tag, direction, ONE_IMAGE, "--alg=WITHIN")
        yield Case(f"{within}ls{size}", half_of=within)
    for tag, direction in itertools.product((*LAYOUTS, "aBx16b"), ("FWD_I", *DIRECTIONS)):
        yield Case(_words(tag, direction, IN_CACHE))
    for tag, direction in itertools.product(LAYOUTS, ("FWD_I", "BWD_D")):
        yield Case(_words(tag, direction, "mb1ic16ih5"), microseconds=3.0)


def _words(tag, direction, descriptor, options=""):
    return " ".join(f"--lrn --tag={tag} --dir={direction} {options} {descriptor}".split())


if __name__ == "__main__":
    sys.exit(run(list(cases()), ["oneDNN"], "LRN targets"))
