"""What `python -m cynorm` runs."""

import argparse
import functools
import statistics
import sys
import time

import numpy as np

import cynorm
from cynorm import _dispatch
from cynorm.bandwidth import stream_pass

TITLE = "The normalization layers of AlexNet, GoogLeNet and ResNet-50, timed and checked on this machine."
NOTE = """GB/s counts the least traffic there is: forward reads src and writes dst, backward reads src and diff_dst and writes
diff_src. "of limit" compares with a plain stream of the same bytes, timed in turn with the operator. The error is the
largest one against the formula in float64, of the first and the last image (of batch norm: channel), in units in the last place
of the sum of the magnitudes of all its terms.
"""

LRN_LAYERS = {
    "AlexNet norm1": (96, 55, 55),
    "AlexNet norm2": (256, 27, 27),
    "GoogLeNet norm1": (64, 56, 56),
    "GoogLeNet norm2": (192, 56, 56),
}
BATCH_NORM_LAYERS = {
    "ResNet-50 conv1": (64, 112, 112),
    "ResNet-50 conv2": (256, 56, 56),
    "ResNet-50 conv3": (512, 28, 28),
    "ResNet-50 conv4": (1024, 14, 14),
    "ResNet-50 conv5": (2048, 7, 7),
}
TENSOR_NBYTES = {"full": 80 << 20, "quick": 4 << 20}  # of float32: the batch is lowered to stay within
SECONDS = {"full": 0.2, "quick": 0.02}  # of timing for each row

COLUMNS = "{:>6}  {:15}  {:>16}  {:4}  {:6}  {:18}  {:>7}  {:>6}  {:>8}  {:>10}  {}"
HEADING = ("", "layer", "shape", "type", "layout", "pass", "ms", "GB/s", "of limit", "error, ulp", "implementation")


def main(arguments=None):
    """Run the command line."""
    parser = argparse.ArgumentParser("python -m cynorm", description=TITLE)
    parser.add_argument("--quick", action="store_true", help="small batches: a few seconds")
    parser.add_argument("--config", action="store_true", help="only print how cynorm was built and runs")
    parser.add_argument("--threads", type=int, help="default: OMP_NUM_THREADS, else every CPU")
    options = parser.parse_args(arguments)
    if options.threads is not None:
        try:
            cynorm.set_num_threads(_dispatch.checked_threads(options.threads, "--threads"))
        except ValueError as error:
            parser.error(str(error))
    if options.config:
        cynorm.show_config()
        return
    print(f"cynorm {cynorm.__version__}, {cynorm.isa()}, threads: {cynorm.get_num_threads()}\n")
    run("quick" if options.quick else "full")
    print("\n" + NOTE, end="")


def run(mode):
    """Time and check every layer in every type and layout; prints the table row by row."""
    layers = [(lrn_passes, *layer) for layer in LRN_LAYERS.items()]
    layers += [(batch_norm_passes, *layer) for layer in BATCH_NORM_LAYERS.items()]
    dtypes = {"f32": np.dtype(np.float32)}
    try:
        import ml_dtypes
    except ImportError:
        print("bf16 is left out: it needs ml_dtypes (pip install ml_dtypes)\n")
    else:
        dtypes["bf16"] = np.dtype(ml_dtypes.bfloat16)
    rows = (2 * len(LRN_LAYERS) + 3 * len(BATCH_NORM_LAYERS)) * len(dtypes) * 2
    start, row = time.perf_counter(), 0
    print(COLUMNS.format(*HEADING))
    for passes, layer, (channels, height, width) in layers:
        batch = batch_within(TENSOR_NBYTES[mode], 4 * channels * height * width)
        text = f"{batch}x{channels}x{height}x{width}"
        for name, dtype in dtypes.items():
            for layout in ("NCHW", "NHWC"):
                shape = {"NCHW": (batch, channels, height, width), "NHWC": (batch, height, width, channels)}[layout]
                show_progress(row, rows, time.perf_counter() - start)
                for kind, reads, call, implementation, error in passes(shape, dtype, layout):
                    nbytes = (reads + 1) * np.prod(shape) * dtype.itemsize
                    seconds, share = time_call(call, streams(reads, nbytes), SECONDS[mode])
                    row += 1
                    speed, share = f"{nbytes / seconds / 1e9:.1f}", f"{share:.0%}"
                    figures = f"{seconds * 1e3:.2f}", speed, share, f"{error():.2f}", implementation
                    show_progress(0)
                    print(COLUMNS.format(f"{row}/{rows}", layer, text, name, layout, kind, *figures), flush=True)
    print(f"\n{rows} rows in {time.perf_counter() - start:.0f} s")


def show_progress(row, rows=0, seconds=0.0):
    """One line that the next one replaces, where somebody watches."""
    if sys.stdout.isatty():
        left = f", about {seconds / row * (rows - row):.0f} s left" if row else ""
        print(f"\r\033[K{row} of {rows}{left} " if rows else "\r\033[K", end="", flush=True)


def batch_within(nbytes, image_nbytes):
    """The largest power of two of images, up to 256, that fits."""
    return min(256, 1 << (max(1, nbytes // image_nbytes).bit_length() - 1))


def time_call(call, stream, seconds):
    """Median seconds of a call, and its share of the speed of a stream; both in turn, for so many seconds."""
    call()
    stream()
    times, shares, spent = [], [], 0.0
    while len(times) < 3 or spent < seconds:
        start = time.perf_counter()
        stream()
        between = time.perf_counter()
        call()
        end = time.perf_counter()
        times.append(end - between)
        shares.append((between - start) / (end - between))
        spent += end - start
    return statistics.median(times), statistics.median(shares)


@functools.lru_cache(maxsize=2)
def streams(reads, nbytes):
    """A pass over nbytes in all, in so many arrays read and one written."""
    return stream_pass(reads, 1, nbytes)


def random_values(shape, dtype, seed):
    """Normal values that repeat after a million: quickly made."""
    values = np.random.default_rng(seed).standard_normal(1_000_003, np.float32)
    return np.resize((20 * values).astype(dtype), shape)


def lrn_passes(shape, dtype, layout):
    """(pass, tensors read, call, implementation, error) of an LRN layer, forward and backward."""
    lrn, workspace = cynorm.LRN(layout=layout), cynorm.Workspace()
    src, diff_dst = random_values(shape, dtype, 0), random_values(shape, dtype, 1)
    dst, diff_src = np.empty_like(src), np.empty_like(src)

    def part(array):
        return channels_second(array[[0, -1]], layout)

    def windows(x):
        padded = np.pad(x, ((0, 0), (lrn.local_size // 2,) * 2, (0, 0), (0, 0)))
        return sum(padded[:, i : i + x.shape[1]] for i in range(lrn.local_size))

    x, g, alpha = part(src), part(diff_dst), lrn.alpha / lrn.local_size
    omega = lrn.k + alpha * windows(x**2)
    y, first = x * omega**-lrn.beta, g * omega**-lrn.beta
    summands, factor = g * y / omega, 2 * alpha * lrn.beta * x
    diff, size = first - factor * windows(summands), abs(first) + abs(factor) * windows(abs(summands))
    name = lrn.implementation(src)
    yield ("forward", 1, lambda: lrn.forward(src, dst, workspace), name,
           lambda: largest_error(part(dst), y, abs(y), dtype))
    yield ("backward", 2, lambda: lrn.backward(diff_dst, src, diff_src, workspace), name,
           lambda: largest_error(part(diff_src), diff, size, dtype))


def batch_norm_passes(shape, dtype, layout):
    """As `lrn_passes`, of a batch-norm layer: inference, and training forward and backward."""
    bn, workspace = cynorm.BatchNorm(layout=layout), cynorm.Workspace()
    src, diff_dst = random_values(shape, dtype, 0), random_values(shape, dtype, 1)
    dst, diff_src = np.empty_like(src), np.empty_like(src)
    channels = shape[1] if layout == "NCHW" else shape[3]
    chosen = [0, channels - 1]
    scale, shift = np.random.default_rng(2).uniform(0.5, 1.5, (2, channels)).astype(np.float32)

    def part(array):
        return channels_second(array[:, chosen] if layout == "NCHW" else array[..., chosen], layout)

    x, g = part(src), part(diff_dst)
    w, b = (parameter[chosen].astype(np.float64).reshape(-1, 1, 1) for parameter in (scale, shift))
    mean = functools.partial(np.mean, axis=(0, 2, 3), keepdims=True)
    centred = x - mean(x)
    rstd = 1 / np.sqrt(mean(centred**2) + bn.epsilon)
    xhat = centred * rstd
    y, size = w * xhat + b, abs(w * xhat) + abs(b)
    terms = [w * rstd * term for term in (g, -mean(g), -xhat * mean(g * xhat))]
    name = bn.implementation(src)
    _, means, variances = bn.forward_training(src, scale, shift, out=dst)
    yield ("inference", 1, lambda: bn.forward_inference(src, means, variances, scale, shift, out=dst), name,
           lambda: largest_error(part(dst), y, size, dtype))
    yield ("training forward", 1, lambda: bn.forward_training(src, scale, shift, out=dst, workspace=workspace), name,
           lambda: largest_error(part(dst), y, size, dtype))
    yield ("training backward", 2,
           lambda: bn.backward_training(diff_dst, src, scale, workspace=workspace, out=diff_src), name,
           lambda: largest_error(part(diff_src), sum(terms), sum(map(abs, terms)), dtype))


def channels_second(array, layout):
    """In float64, with axes N, C, H, W."""
    return (array if layout == "NCHW" else array.transpose(0, 3, 1, 2)).astype(np.float64)


def largest_error(got, wanted, size, dtype):
    """In units in the last place of a number of that size."""
    ulp = np.ldexp(1.0, np.frexp(size)[1] - (24 if dtype == np.float32 else 8))
    return np.max(abs(got - wanted) / ulp)


if __name__ == "__main__":
    main()
