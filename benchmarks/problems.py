"""benchdnn's command line: options make states, and a descriptor makes one problem for each of them.

An option holds from where it stands until it is given again, also out of a batch file into what follows it.
A comma list makes a cross product. `parse` turns a command line into tasks.
"""

import itertools
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.descriptor import Descriptor

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

PROBLEM_SETS = Path(__file__).parent / "problems"
DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "s8": np.int8,
}
if ml_dtypes:
    DTYPES["bf16"] = ml_dtypes.bfloat16
# A significand's bits; int8 has seven and a sign.
DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8, "s8": 7}
DIRECTIONS = ("FWD_D", "FWD_I", "FWD_B", "BWD_D", "BWD_DW", "BWD_W", "BWD_WB")
FLAGS = {
    "G": "use_global_stats",
    "C": "use_scale",
    "H": "use_shift",
    "R": "fuse_norm_relu",
    "A": "fuse_norm_add_relu",
}
PERF_TEMPLATE = "perf,%engine%,%impl%,%name%,%prb%,%Gops%,%+ctime%,%-time%,%-Gflops%,%0time%,%0Gflops%"
_MAX_NESTING = 30


class Unsupported(Exception):
    """A problem that benchdnn's language can state and this suite, or the library, does not run."""


@dataclass(frozen=True)
class Layout:
    """How a tag lays a tensor out: the logical axes from slowest to fastest, the block of channels or 0."""

    order: tuple
    block: int = 0

    @classmethod
    def from_tag(cls, tag, ndim):
        """Resolve meta-tags (abx, axb, aBx16b), letter tags (acdb) and classic ones (nhwc, nChw8c)."""
        match = re.fullmatch(r"([A-Za-z]+?)(?:(\d+)([a-z]))?", "abx" if tag == "any" else tag)
        if match is None:
            raise Unsupported(f"tag {tag}")
        letters, block, blocked = match.groups()
        plain = "abcde"[:ndim]
        if re.search("[nNhHwW]", letters):
            classic = "nc" + "dhw"[5 - ndim :]
            to_letter = str.maketrans(classic + classic.upper(), plain + plain.upper())
            letters, blocked = letters.translate(to_letter), blocked and blocked.translate(to_letter)
        letters = letters.replace("x", "".join(axis for axis in plain if axis not in letters.lower()))
        upper = "".join(filter(str.isupper, letters))
        if sorted(letters.lower()) != list(plain) or upper != (blocked or "").upper():
            raise Unsupported(f"tag {tag}")
        if block and (upper != "B" or letters.lower() != plain):
            raise Unsupported(f"tag {tag}")
        return cls(tuple(plain.index(letter) for letter in letters.lower()), int(block or 0))


@dataclass(frozen=True)
class Problem:
    """One problem: a descriptor in one state of the options."""

    descriptor: Descriptor
    direction: str = "FWD_D"
    dt: str = "f32"
    tag: str = "abx"
    alg: str = "ACROSS"
    flags: str = ""
    inplace: bool = False
    strides: str = ""
    post_ops: str = ""
    attributes: str = ""
    check_alg: str = ""
    skip_impl: str = ""
    impl: str = ""

    @property
    def driver(self):
        return self.descriptor.driver

    @property
    def parameters(self):
        return self.descriptor.parameters

    @property
    def shape(self):
        """Logical shape: (N, C, spatial...)."""
        return (self.descriptor.mb, self.descriptor.ic, *self.descriptor.spatial)

    @property
    def is_forward(self):
        return self.direction.startswith("FWD")

    @property
    def with_parameter_gradients(self):
        """Whether backward gives the gradients of scale and shift; W and B are from convolution."""
        return self.direction in ("BWD_DW", "BWD_W", "BWD_WB")

    @property
    def relu(self):
        return any(flag in self.flags for flag in "RA") or self.post_ops == "relu"

    @property
    def region(self):
        return {"ACROSS": "across_channels", "WITHIN": "within_channel"}[self.alg]

    @cached_property
    def layout(self):
        return Layout.from_tag(self.tag, len(self.shape))

    @cached_property
    def dtype(self):
        if self.dt not in DTYPES:
            raise Unsupported(f"data type {self.dt}" + (" needs ml_dtypes" if self.dt == "bf16" else ""))
        return np.dtype(DTYPES[self.dt])

    @property
    def nbytes(self):
        """Bytes of one tensor."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def traffic(self):
        """(tensors read, tensors written) at the least: the minimal traffic."""
        added = int("A" in self.flags)
        return (1 + added, 1) if self.is_forward else (2, 1 + added)

    def check_supported(self):
        """Raise Unsupported for what no library here is asked to run."""
        self.layout, self.dtype  # noqa: B018 -- both refuse what they do not know
        if self.attributes:
            raise Unsupported(f"attributes {self.attributes}")
        if self.post_ops and (self.driver == "lrn" or self.post_ops != "relu" or not self.is_forward):
            raise Unsupported(f"post-operation {self.post_ops}")
        if self.dt == "s8" and not (
            self.driver == "bnorm" and self.direction == "FWD_I" and "G" in self.flags
        ):
            raise Unsupported(f"data type {self.dt} here")

    def filter_implementation(self, name):
        """Raise Unsupported where --impl or --skip-impl leaves `name` out."""
        if any(part and part in name for part in self.skip_impl.split(",")):
            raise Unsupported(f"--skip-impl={self.skip_impl} leaves out {name}")
        if self.impl and not any(part in name for part in self.impl.split(",")):
            raise Unsupported(f"--impl={self.impl} leaves out {name}")

    def __str__(self):
        return self.format()

    def format(self, canonical=False):
        """The line that reproduces the problem."""
        words = [f"--{self.driver}"]
        for option in _REPRODUCED[self.driver]:
            attribute = _LISTS[option][0] if option in _LISTS else option.replace("-", "_")
            value = getattr(self, attribute)
            if canonical or value != getattr(Problem, attribute):
                words.append(f"--{option}=" + (str(value).lower() if isinstance(value, bool) else value))
        return (
            " ".join([*words, self.attributes] if self.attributes else words)
            + " "
            + self.descriptor.format(canonical)
        )


_REPRODUCED = {
    "lrn": ("dir", "dt", "tag", "alg", "inplace", "attr-post-ops", "skip-impl", "impl"),
    "bnorm": ("dir", "dt", "tag", "strides", "flags", "check-alg", "inplace", "attr-post-ops", "skip-impl", "impl"),
}


@dataclass(frozen=True)
class Options:
    """benchdnn's common options, which --reset leaves alone."""

    mode: str = "C"
    cold_cache: str = "none"
    max_ms_per_prb: float = 3000.0
    fix_times_per_prb: int = 0
    repeats_per_prb: int = 1
    canonical: bool = False
    start: int = 0
    verbose: int = 0
    perf_template: str = PERF_TEMPLATE


@dataclass(frozen=True)
class Task:
    """One problem together with the common options in force."""

    problem: Problem
    options: Options


def _one_of(*allowed):
    def read(text):
        by_name = {name.lower(): name for name in allowed}
        if text.lower() not in by_name:
            raise ValueError(f"{text!r} is none of {', '.join(allowed)}")
        return by_name[text.lower()]

    return read


def _boolean(text):
    return text.lower() in ("true", "1")


def _flags(text):
    # S was the scale and shift in one of oneDNN 2.
    letters = text.replace("S", "CH")
    unknown = set(letters) - set(FLAGS)
    if unknown:
        raise ValueError(f"flag {unknown.pop()!r} is none of {', '.join(FLAGS)}")
    return "".join(letter for letter in FLAGS if letter in letters)


def _times(text):
    return min(max(float(text), 10.0), 60e3)


def _strides(text):
    if not re.fullmatch(r"(\d+(x\d+)*)?:(\d+(x\d+)*)?", text):
        raise ValueError(f"{text!r} is not SRC:DST, each of elements from 0 on, such as 20x4x1:5x1x5")
    return text


def _count(text):
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no number from 0 on")
    return int(text)


def _pattern(text):
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    return text


# The lists whose cross product makes problems, in benchdnn's order: field of Problem, but for mb, and reader.
_LISTS = {
    "dir": ("direction", _one_of(*DIRECTIONS)),
    "dt": ("dt", str),
    "tag": ("tag", str),
    "strides": ("strides", _strides),
    "alg": ("alg", _one_of("ACROSS", "WITHIN")),
    "flags": ("flags", _flags),
    "mb": ("mb", _count),
    "attr-post-ops": ("post_ops", str),
    "inplace": ("inplace", _boolean),
}
_ONLY = {"strides": "bnorm", "flags": "bnorm", "check-alg": "bnorm", "alg": "lrn"}
_SINGLES = {"match": "", "skip-impl": "", "impl": "", "check-alg": ""}
_COMMON = {
    "mode": ("mode", _one_of("C", "P", "F", "CP", "R", "I", "L")),
    "cold-cache": ("cold_cache", str),
    "max-ms-per-prb": ("max_ms_per_prb", _times),
    "fix-times-per-prb": ("fix_times_per_prb", _count),
    "repeats-per-prb": ("repeats_per_prb", _count),
    "canonical": ("canonical", _boolean),
    "start": ("start", _count),
    "verbose": ("verbose", _count),
    "perf-template": ("perf_template", str),
}
# What has no meaning for a CPU library in Python; read and passed over.
_WITHOUT_EFFECT = (
    "allow-enum-tags-only",
    "allow-unimpl",
    "attr-same-pd-check",
    "attr-scratchpad",
    "buffer-prefix",
    "check-ref-impl",
    "concise",
    "cpu-isa-hints",
    "ctx-exe",
    "ctx-init",
    "debug-check-ws",
    "engine",
    "execution-mode",
    "fast-ref",
    "fast-ref-gpu",
    "global-impl",
    "global-skip-impl",
    "mem-check",
    "memory-kind",
    "mode-modifier",
    "num-streams",
    "stream-kind",
    "summary",
)


@dataclass
class _State:
    driver: str = ""
    options: Options = Options()
    lists: dict = field(default_factory=dict)
    singles: dict = field(default_factory=dict)
    attributes: dict = field(default_factory=dict)
    tasks: list = field(default_factory=list)
    folders: list = field(default_factory=list)

    def reset(self):
        self.lists, self.singles, self.attributes = {}, {}, {}


def parse(words, options=None):
    """The tasks of a benchdnn command line.

    Parameters
    ----------
    words : sequence of str
        Such as ``["--lrn", "--dir=FWD_D,BWD_D", 'ic16ih5n"tiny"']``; the driver comes before what it governs.
    options : Options, optional
        The common options to start from.

    Returns
    -------
    list of Task

    Raises
    ------
    ValueError
        An unknown option, value or descriptor.
    FileNotFoundError
        A batch file that lies nowhere.
    """
    state = _State(options=options or Options())
    _read(words, state, 0)
    return state.tasks


def _read(words, state, depth):
    for word in words:
        if word in ("--lrn", "--bnorm"):
            state.driver = word[2:]
        elif word == "--reset":
            state.reset()
        elif word.startswith("--batch="):
            _read_batch(word.partition("=")[2], state, depth)
        elif word.startswith("-"):
            _read_option(re.sub(r"^-v(?=\d)", "--verbose=", word), state)
        else:
            _add_problems(word, state)


def _read_option(word, state):
    name, _, value = word.removeprefix("--").partition("=")
    try:
        if state.driver and _ONLY.get(name, state.driver) != state.driver:
            raise ValueError(f"it belongs to {_ONLY[name]}")
        if name in _COMMON:
            attribute, read = _COMMON[name]
            default = getattr(Options(), attribute)
            value = value.strip("\"'")
            if name == "perf-template" and value in ("def", "csv"):
                value = PERF_TEMPLATE if value == "def" else _csv_template(state.driver)
            state.options = replace(state.options, **{attribute: read(value) if value else default})
        elif name in _LISTS:
            attribute, read = _LISTS[name]
            default = getattr(Problem, attribute, 0)  # mb has none: 0 keeps the descriptor's
            items = [item.strip("\"'") for item in value.split(",")] if value else []
            state.lists[name] = [read(item) if item else default for item in items] or [default]
        elif name in _SINGLES:
            state.singles[name] = _pattern(value.strip("\"'")) if name == "match" else value.strip("\"'")
        elif name in _WITHOUT_EFFECT:
            pass
        elif name.startswith("attr-"):
            state.attributes[name] = value.strip("\"'")
        else:
            raise ValueError("no such option")
    except ValueError as error:
        raise ValueError(f"{word}: {error}") from None


def _csv_template(driver):
    own = "%alg%" if driver == "lrn" else "%flags%"
    middle = f"%dir%,%dt%,%tag%,{own},%attr%,%DESC%"
    return PERF_TEMPLATE.replace("%prb%", middle)


def _add_problems(word, state):
    if not state.driver:
        raise ValueError(f"{word!r}: say --lrn or --bnorm first")
    descriptor = Descriptor.parse(word, state.driver)
    attributes = " ".join(f"--{name}={value}" for name, value in state.attributes.items() if value)
    singles = _SINGLES | state.singles
    lists = {
        attribute: state.lists[name]
        for name, (attribute, _) in _LISTS.items()
        if name in state.lists and _ONLY.get(name, state.driver) == state.driver
    }
    for values in itertools.product(*lists.values()):
        knobs = dict(zip(lists, values, strict=True))
        mb = knobs.pop("mb", 0)
        problem = Problem(
            replace(descriptor, mb=mb) if mb else descriptor,
            **knobs,
            attributes=attributes,
            check_alg=singles["check-alg"],
            skip_impl=singles["skip-impl"],
            impl=singles["impl"],
        )
        if re.search(singles["match"], str(problem)):
            state.tasks.append(Task(problem, state.options))


def _read_batch(name, state, depth):
    if depth >= _MAX_NESTING:
        raise ValueError(f"--batch={name}: batch files are nested more than {_MAX_NESTING} deep")
    path = _find_batch(name, state)
    state.folders.insert(0, path.parent)
    _read(tokens(path.read_text()), state, depth + 1)
    state.folders.pop(0)


def _find_batch(name, state):
    own = [PROBLEM_SETS / state.driver, PROBLEM_SETS, Path("inputs") / state.driver]
    for folder in (Path(), *state.folders, *own):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"--batch={name}: no such file here, beside the batch file, or in {own[0]}")


def tokens(text):
    """The words of a batch file: ``#`` starts a comment, a last backslash joins lines, quotes hold blanks."""
    text = re.sub(r"\\\s*\n\s*", "", text)
    for line in text.splitlines():
        for word in re.findall(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""", line):
            if word.startswith("#"):
                break
            yield word
