"""A short test of an installed wheel on an emulated CPU without AVX. Usage: plain_cpu.py <environment>."""

import site
import sys
from pathlib import Path

(packages,) = Path(sys.argv[1]).glob("lib/python3*/site-packages")
site.addsitedir(str(packages))

import numpy as np  # noqa: E402

import cynorm  # noqa: E402

assert cynorm.available_isas() == ("x86-64",), cynorm.available_isas()
src = np.random.default_rng(0).standard_normal((2, 40, 9, 7)).astype(np.float32)
x = src.astype(np.float64)
for dtype, tolerance in ((np.float64, 1e-14), (np.float32, 1e-6), (np.float16, 2e-3)):
    dst = cynorm.LRN(alpha=1.0).forward(src.astype(dtype))
    squares = np.pad(x**2, ((0, 0), (2, 2), (0, 0), (0, 0)))
    omega = 1 + sum(squares[:, i : i + 40] for i in range(5)) / 5
    np.testing.assert_allclose(dst, x * omega**-0.75, rtol=tolerance, atol=tolerance)
    dst, mean, variance = cynorm.BatchNorm().forward_training(src.astype(dtype))
    expected = (x - x.mean((0, 2, 3), keepdims=True)) / np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(dst, expected, rtol=tolerance * 4, atol=tolerance * 4)
print(f"{cynorm.isa()} alone: correct")
