"""Arrays that begin or end at memory nobody may touch: a call that reads or writes beyond one ends its process. Fresh memory
that is full of something: a call that uses what it has not written has other results where this is something else."""

import ctypes
import hashlib
import mmap
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import cynorm
from strategies import assert_same_windows

CASES = 250
DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
LAYOUTS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}
LONGEST = {3: 300, 4: 35, 5: 18}


class Guarded:
    """Arrays of one memory, between two pages that may not be read, from its beginning on or up to its end."""

    def __init__(self, nbytes):
        libc = ctypes.CDLL(None)
        self.pages = mmap.mmap(-1, (-(-nbytes // mmap.PAGESIZE) + 2) * mmap.PAGESIZE)
        self.begin = ctypes.addressof(ctypes.c_char.from_buffer(self.pages)) + mmap.PAGESIZE
        self.end = self.begin + len(self.pages) - 2 * mmap.PAGESIZE
        for page in self.begin - mmap.PAGESIZE, self.end:
            assert libc.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, 0) == 0  # PROT_NONE

    def array(self, shape, dtype, order, reversed_axes, at_end):
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = (ctypes.c_char * nbytes).from_address(self.end - nbytes if at_end else self.begin)
        array = np.frombuffer(memory, dtype).reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
        return np.flip(array, reversed_axes)


def run(seed):
    """Drawn calls, whose results are those on arrays of their own; returns a digest of these."""
    digest = hashlib.sha256()
    rng = np.random.default_rng(seed)
    memories = [Guarded(1 << 20) for _ in range(3)]
    for case in range(CASES):
        ndim = int(rng.integers(3, 6))
        channels = int(rng.choice([1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33]))
        images, channels = (1, min(channels, 16)) if ndim == 5 else (int(rng.integers(1, 4)), channels)
        shape = (images, channels, *(int(n) for n in rng.integers(1, LONGEST[ndim], ndim - 2)))
        dtype = np.dtype(DTYPES[case // 4 % len(DTYPES)])
        last = (0, *range(2, ndim), 1)

        def placed(memory, shape=shape, dtype=dtype, ndim=ndim, last=last):
            order = (tuple(range(ndim)), last, last, tuple(rng.permutation(ndim)))[rng.integers(4)]
            flipped = tuple(axis for axis in range(ndim) if rng.random() < 0.15)
            return memory.array(shape, dtype, order, flipped, bool(rng.integers(2)))

        src, diff_dst, out = map(placed, memories)
        dense = [rng.standard_normal(shape).astype(dtype) for _ in range(2)]
        src[...], diff_dst[...] = dense
        if case % 4:
            region = ("across_channels", "within_channel")[rng.integers(2)]
            size = int(rng.choice([1, 3, 4, 5, 7, 9, 12, 31]))
            lrn = cynorm.LRN(size, 0.3, region=region, window="torch", layout=LAYOUTS[ndim])
            expected = lrn.forward(dense[0]), lrn.backward(dense[1], dense[0])
            results = lrn.forward(src, out=out).copy(), lrn.backward(diff_dst, src, out=out)
            for result, wanted in zip(results, expected, strict=True):
                digest.update(result.tobytes())
                assert_same_windows(result, wanted, size, (case, shape, dtype, lrn), dense[1])
        else:
            bn = cynorm.BatchNorm(layout=LAYOUTS[ndim])
            training, mean, variance = bn.forward_training(src)
            grads = bn.backward_training(diff_dst, src, mean=mean, variance=variance)
            for result in (training, mean, variance, *grads[:3], bn.forward_inference(src, mean, variance)):
                digest.update(result.tobytes())
            bn.forward_training(src, out=out)
            bn.backward_training(diff_dst, src, mean=mean, variance=variance, out=out)
            bn.forward_inference(src, mean, variance, out=out)
            integers = rng.integers(-128, 128, (2, *shape)).astype(np.int8)
            src, add, out = (placed(memory, dtype=integers.dtype) for memory in memories)
            src[...], add[...] = integers
            statistics = mean.astype(np.float32), variance.astype(np.float32)
            result = bn.forward_inference(src, *statistics, add=add, out=out)
            assert result.tobytes() == bn.forward_inference(integers[0], *statistics, add=integers[1]).tobytes(), (case, shape)
    return digest.hexdigest()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mprotect")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("isa", cynorm.available_isas())
def test_nothing_beyond_arrays_is_touched_and_nothing_used_that_is_not_written(isa, seed):
    digests = set()
    for fill in "85", "170":  # glibc fills fresh memory with this
        environment = {**os.environ, "CYNORM_ISA": isa, "MALLOC_PERTURB_": fill}
        done = subprocess.run(
            [sys.executable, __file__, str(seed)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        digests.add(done.stdout)
    assert len(digests) == 1


if __name__ == "__main__":
    print(run(int(sys.argv[1])))
