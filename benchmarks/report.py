"""Results for people and programs: benchdnn's lines, a table, JSON lines, the comparison of two runs."""

import json
import math
import re
import sys
import time
from pathlib import Path

from benchmarks.problems import parse

# Times that spread more than this are not to be trusted.
WIDE_SPREAD = 0.10
# A change smaller than this is never called one.
_LEAST_NOISE = 0.05


def perf_line(template, task, row, index=0):
    """benchdnn's performance line of the first library in a row.

    Terminals are those of benchdnn's documentation: %name% and so on, times in milliseconds, with its
    modifiers (- minimum, 0 average, + maximum) and units (K, M, G) after the first percent sign.
    """
    problem, result = task.problem, next(iter(row["results"].values()))
    tensor, (reads, writes) = problem.nbytes, problem.traffic
    texts = {
        "alg": problem.alg,
        "attr": problem.attributes,
        "desc": str(problem.descriptor),
        "driver": problem.driver,
        "DESC": ",".join(str(value) for value in (*_five_dimensions(problem), *problem.parameters.values())),
        "dir": problem.direction,
        "dt": problem.dt,
        "engine": "cpu",
        "flags": problem.flags,
        "idx": str(index),
        "impl": result.get("implementation", ""),
        "mb": str(problem.descriptor.mb),
        "name": problem.descriptor.name,
        "prb": problem.format(task.options.canonical),
        "tag": problem.tag,
    }

    def number(name, seconds):
        create = result.get("prepare", 0.0) * 1e3
        per_second = 1 / seconds if seconds else 0.0
        return {
            "time": seconds * 1e3,
            "ibytes": reads * tensor,
            "obytes": writes * tensor,
            "iobytes": (reads + writes) * tensor,
            "bw": (reads + writes) * tensor * per_second,
            "ops": 0.0,
            "flops": 0.0,
            "freq": 0.0,
            "clocks": 0.0,
            "ctime": create,
            "cptime": create,
            "cpdtime": 0.0,
        }.get(name)

    def terminal(match):
        modifier, unit, name = match.groups()
        if not modifier and not unit and name in texts:
            return texts[name]
        time_key = {"": "minimum", "-": "minimum", "0": "mean", "+": "maximum"}[modifier]
        value = number(name, result.get(time_key, 0.0))
        if value is None:
            raise ValueError(f"--perf-template: {match.group()} is unknown")
        return f"{value / {'': 1.0, 'K': 1e3, 'M': 1e6, 'G': 1e9}[unit]:g}"

    return re.sub(r"%([-0+]?)([KMG]?)([A-Za-z]+)%", terminal, template)


def _five_dimensions(problem):
    spatial = problem.descriptor.spatial
    return (*problem.shape[:2], *(1,) * (3 - len(spatial)), *spatial)


def table(rows, markdown=False):
    """The rows as lines of text, one problem each, or as a Markdown table."""
    libraries = list(dict.fromkeys(name for row in rows for name in row["results"]))
    subject, peers = libraries[0], libraries[1:]
    header = [
        "problem",
        "shape",
        "dt tag dir",
        f"{subject} ms",
        "GB/s",
        "of limit",
        "spread",
        "ulp",
        *(f"vs {name}" for name in peers),
        "workspace + scratch KiB",
        "implementation",
    ]
    cells = [header]
    for row in rows:
        result = row["results"][subject]
        extra = " ".join(re.findall(r"--(?:alg|flags|inplace|strides|attr-post-ops)=(\S+)", row["problem"]))
        cells.append(
            [
                row["name"] or row["driver"],
                "x".join(map(str, row["shape"])),
                f"{row['dt']} {row['tag']} {row['direction']} {extra}".strip() + _remarks(row),
                _number(result.get("median"), 1e3),
                _number(result.get("gbs")),
                _percent(result.get("share")),
                _percent(result.get("spread")) + ("!" if result.get("spread", 0) > WIDE_SPREAD else ""),
                _number(result.get("error")),
                *(_versus(row["results"].get(name, {})) for name in peers),
                " / ".join(_kibibytes(row["results"].get(name, {})) for name in [subject, *peers[:1]]),
                result.get("implementation", result.get("refused", "")),
            ]
        )
    if markdown:
        lines = ["| " + " | ".join(line) + " |" for line in cells]
        return "\n".join([lines[0], "|" + " --- |" * len(header), *lines[1:]])
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _remarks(row):
    remarks = [f"{key}{value:g}" for key, value in row["parameters"].items()]
    if row.get("sweep") == "threads":
        remarks.append(f"{row['threads']}t")
    if row["cache"] == "cold":
        remarks.append("cold")
    return " " + " ".join(remarks) if remarks else ""


def _number(value, factor=1.0):
    return "-" if value is None else f"{value * factor:.3g}"


def _percent(value):
    return "-" if value is None else f"{100 * value:.0f}%"


def _kibibytes(result):
    if "workspace" not in result:
        return "-"
    return f"{result['workspace'] / 1024:.0f} + {result['scratch'] / 1024:.0f}"


def _versus(result):
    """How many times faster than the peer, with the peer's implementation."""
    if "ratio" in result:
        return f"{result['ratio']:.2f}x {result['implementation']}"
    if "median" in result:
        return f"{result['median'] * 1e3:.3g} ms {result['implementation']}"
    return f"({result['refused'][:40]})" if result.get("refused") else "-"


def limits_table(limits):
    """The machine's streaming bandwidth as lines of text."""
    lines = ["streaming bandwidth, GB/s (1r1w: one read, one write; nt: streaming stores)"]
    levels = dict.fromkeys((limit["threads"], limit["level"], limit["nbytes"]) for limit in limits)
    for threads, level, nbytes in levels:
        values = [
            f"{limit['reads']}r{limit['writes']}w{' nt' if limit['streaming'] else ''} {limit['gbs']:.1f}"
            for limit in limits
            if (limit["threads"], limit["level"]) == (threads, level)
        ]
        lines.append(f"  {level:4} {nbytes >> 20:5} MiB, {threads} threads: " + "   ".join(values))
    return "\n".join(lines)


def write_lines(path, run, rows):
    """Write a run as JSON lines: one that describes it, then one for each row."""
    with Path(path).open("w") as file:
        for record in ({"kind": "run", **run}, *rows):
            file.write(json.dumps(record) + "\n")


def read_lines(path):
    """(run, rows) as `write_lines` wrote them."""
    records = [json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()]
    run = next((record for record in records if record["kind"] == "run"), {})
    return run, [record for record in records if record["kind"] == "row"]


def compare(old, new):
    """What got slower, or faster, from one list of rows to another beyond the noise.

    The noise of a row is the sum of both spreads, at least 5 %. Where both runs know the machine's limit, the
    share of it has to fall as well, so that a slower machine is not taken for slower code.

    Returns
    -------
    list of (str, str, float)
        ("slower" or "faster" or "gone", the problem, new time / old time), the slowest first.
    """
    found = []
    after = {_key(row): row for row in new}
    for before in old:
        name = next(iter(before["results"]))
        was = before["results"].get(name, {})
        if "median" not in was:
            continue
        row = after.get(_key(before))
        now = row["results"].get(name, {}) if row else {}
        if "median" not in now:
            found.append(("gone", before["problem"], math.inf))
            continue
        noise = 1 + max(_LEAST_NOISE, was["spread"] + now["spread"])
        ratio = now["median"] / was["median"]
        by_share = was["share"] / now["share"] if was.get("share") and now.get("share") else ratio
        if min(ratio, by_share) > noise:
            found.append(("slower", before["problem"], ratio))
        elif max(ratio, by_share) < 1 / noise:
            found.append(("faster", before["problem"], ratio))
    return sorted(found, key=lambda item: -item[2])


def _key(row):
    return row["problem"], row["threads"], row["cache"], row.get("sweep"), row.get("x")


def problem_of(row):
    """The problem that a row states."""
    return parse(row["problem"].split(" "))[0].problem


class Progress:
    """A bar with the time to go, on a terminal; else nothing."""

    _WIDTH = 24

    def __init__(self, total, stream=None):
        self.total, self.done, self.start = total, 0, time.monotonic()
        self.stream = stream or sys.stderr

    def step(self, text):
        """Say what is being done next."""
        if self.stream.isatty() and self.total:
            filled = self._WIDTH * self.done // self.total
            spent = time.monotonic() - self.start
            left = f"{spent / self.done * (self.total - self.done):.0f} s to go" if self.done else "..."
            bar = "#" * filled + "." * (self._WIDTH - filled)
            self.stream.write(f"\r\033[K[{bar}] {self.done}/{self.total}, {left}  {text[:60]}")
            self.stream.flush()
        self.done += 1

    def clear(self):
        """Take the bar off the terminal, before a line is printed or at the end."""
        if self.stream.isatty():
            self.stream.write("\r\033[K")
            self.stream.flush()
