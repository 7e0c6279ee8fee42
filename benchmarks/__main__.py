"""python -m benchmarks: benchdnn's command line for cynorm and its peers.

    python -m benchmarks --quick                       a tour of about 90 seconds
    python -m benchmarks --full                        the layers of named networks, minutes
    python -m benchmarks --sweep=threads               or size, local_size, overhead
    python -m benchmarks --compare OLD.jsonl NEW.jsonl what got slower
    python -m benchmarks --lrn --mode=P --dir=FWD_D,BWD_D --tag=abx,axb 'mb256ic96_ih55n"alexnet:norm1"'

Besides the options below, --lrn, --bnorm and benchdnn's options are understood as benchdnn does: an option
holds for the problems after it, comma lists make cross products, --batch=FILE reads more of them. --mode=C,
the default, compares with a float64 reference, P measures, L lists.

What --quick and --full measure is also written to benchmark-quick.jsonl and .png, or -full, where --json and --picture
say no other place.
"""

import argparse
import contextlib
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import cynorm
from benchmarks import check, measure, picture, problems, report, sweeps, tensors
from benchmarks.peers import PEERS, Refused, library
from cynorm import _dispatch

_STATES = ("passed", "skipped", "mistrusted", "unimplemented", "invalid_arguments", "failed", "listed")


def main(arguments=None):
    """Run the command line; the status is 1 where something failed or got slower."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    preset = parser.add_mutually_exclusive_group()
    preset.add_argument("--quick", action="store_true", help="about 90 seconds on two cores")
    preset.add_argument("--full", action="store_true", help="all named networks, minutes")
    preset.add_argument("--sweep", choices=sweeps.SWEEPS, help="a scaling run")
    preset.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"), help="compare two files of --json")
    parser.add_argument("--threads", type=int, default=cynorm.get_num_threads(), help="default: OMP_NUM_THREADS, else every CPU")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s; empty for none")
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON lines")
    parser.add_argument("--picture", metavar="FILE", help="draw the rows (needs matplotlib)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    own, words = parser.parse_known_args(arguments)
    own.peers = [name for name in own.peers.split(",") if name]
    for name in own.peers:
        if name not in PEERS:
            parser.error(f"--peers must be of {', '.join(PEERS)}, got {name!r}")
    try:
        _dispatch.checked_threads(own.threads, "--threads")
        if own.compare:
            return _compare(*own.compare)
        tasks = _tasks(own, words)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if not tasks:
        parser.error("no problem was given")
    if own.quick or own.full:
        stem = "benchmark-quick" if own.quick else "benchmark-full"
        own.json, own.picture = own.json or f"{stem}.jsonl", own.picture or f"{stem}.png"
    for path in filter(None, (own.json, own.picture)):
        if not _measures(tasks):
            parser.error(f"--json and --picture need a --mode that measures, such as P: {path} would hold nothing")
        if Path(path).is_dir() or not os.access(Path(path).parent, os.W_OK):
            parser.error(f"{path} cannot be written")
    return _Run(own, tasks).status()


def _measures(tasks):
    return any(set(task.options.mode) & set("PF") for *_, task in tasks)


def _tasks(own, words):
    """(sweep name, x, task) for everything to run."""
    if own.sweep:
        # Common options given beside a sweep hold for all its problems: a placeholder problem collects them.
        placeholder = ["--lrn", "ic1"]
        tasks = problems.parse([*words, *placeholder], problems.Options(mode="P", max_ms_per_prb=300))
        if [task.problem for task in tasks] != [task.problem for task in problems.parse(placeholder)]:
            raise ValueError(f"--sweep has problems of its own, to which {' '.join(words)} does not apply")
        options = tasks[0].options
        return [
            (own.sweep, x, problems.Task(problem, options))
            for x, problem in sweeps.SWEEPS[own.sweep](own.threads)
        ]
    if own.quick or own.full:
        name = "quick" if own.quick else "full"
        if words:
            raise ValueError(f"--{name} has problems and options of its own, to which {' '.join(words)} does not apply")
        return [(None, None, task) for task in problems.parse([f"--batch={name}"], problems.Options(mode="P"))]
    return [(None, None, task) for task in problems.parse(words)]


def _compare(old, new):
    found = report.compare(report.read_lines(old)[1], report.read_lines(new)[1])
    for verdict, problem, ratio in found:
        print(f"{verdict:7} {ratio:6.2f}x the time  {problem}")
    slower = sum(verdict != "faster" for verdict, *_ in found)
    print(f"{slower} slower or gone, {len(found) - slower} faster beyond the noise")
    return int(slower > 0)


class _Run:
    """One run over all tasks, and what it prints."""

    def __init__(self, own, tasks):
        self.own, self.tasks = own, tasks
        self.preset = own.quick or own.full or bool(own.sweep)
        self.counts, self.rows, self.failures = Counter(), [], []
        self.progress, self.suite = report.Progress(len(tasks)), None

    def status(self):
        if _measures(self.tasks):
            self._start_measuring()
        for number, (sweep, x, task) in enumerate(self.tasks):
            self.progress.step(str(task.problem))
            if number < task.options.start:
                self._say(number, "SKIPPED", task, "Skip-start option hit")
                continue
            for _ in range(task.options.repeats_per_prb):
                self._one(number, task, sweep, x)
        self.progress.clear()
        self._finish()
        return int(bool(self.failures))

    def _one(self, number, task, sweep, x):
        mode = task.options.mode
        if mode == "L":
            self._say(number, "LISTED", task)
            return
        if mode in ("C", "CP", "R", "I"):
            self._check(number, task)
        if mode in ("P", "F", "CP"):
            self._measure(number, task, sweep, x)

    def _say(self, number, state, task, reason="", seconds=None):
        self._count({"EXECUTED": "passed", "INITIALIZED": "passed"}.get(state, state.lower()))
        took = "" if seconds is None else f" ({1e3 * seconds:.0f} ms)"
        reason = f" ({reason})" if reason else ""
        line = f"{number}:{state}{reason}{took} __REPRO: {task.problem.format(task.options.canonical)}"
        if state == "FAILED":
            self.failures.append(line)
        self._print(line)

    def _print(self, line):
        self.progress.clear()
        print(line, flush=True)

    def _count(self, state):
        self.counts.update((state, "tests"))

    def _check(self, number, task):
        """benchdnn's fill and thresholds, then random values and the project's own tolerances."""
        problem, start = task.problem, time.perf_counter()
        rounds = [
            (tensors.benchdnn_fill, check.compare_benchdnn, "benchdnn"),
            (tensors.random_fill, check.compare_own, "own"),
        ]
        complaints = []
        try:
            problem.check_supported()
            for fill, compare, kind in rounds:
                arrays = tensors.make(problem, fill)
                given = check.inputs(problem, arrays)
                prepared = library("cynorm").prepare(problem, arrays)
                problem.filter_implementation(prepared.implementation)
                if task.options.mode == "I":
                    break
                check.restore(problem, given, arrays)
                outputs = arrays | prepared.outputs(prepared.run())
                if task.options.mode == "R":
                    break
                for result in compare(problem, given, outputs):
                    counts = f"errors:{result.wrong} total:{result.total}"
                    text = f"{kind} {result.output} {counts} {result.ulp:.3g} ulp"
                    if task.options.verbose:
                        self._print(f"  {text}")
                    if result.wrong:
                        complaints.append(text)
        except (Refused, problems.Unsupported) as reason:
            self._say(number, "SKIPPED", task, str(reason))
            return
        state = {"I": "INITIALIZED", "R": "EXECUTED"}.get(
            task.options.mode, "FAILED" if complaints else "PASSED"
        )
        self._say(number, state, task, "; ".join(complaints), time.perf_counter() - start)

    def _start_measuring(self):
        self.suite = measure.Suite(["cynorm", *self.own.peers], self.own.threads)
        if not self.preset:
            print(f"Output template: {self.tasks[0][2].options.perf_template}")

    def _measure(self, number, task, sweep, x):
        options = task.options
        seconds = 0.01 if options.mode == "F" else options.max_ms_per_prb * 1e-3
        if sweep == "threads":
            self.suite.set_num_threads(x)
        row = self.suite.row(
            task.problem,
            seconds=seconds,
            rounds=options.fix_times_per_prb,
            cold=options.cold_cache not in ("", "none"),
            with_error=sweep is None,
        )
        if sweep:
            row |= {"sweep": sweep, "x": x, "series": _series(sweep, task.problem)}
        self.rows.append(row)
        refused = row["results"]["cynorm"].get("refused")
        if options.mode != "CP":
            self._count("skipped" if refused else "passed")
        if self.preset:
            return
        if refused:
            self._print(f"{number}:SKIPPED ({refused}) __REPRO: {task.problem}")
        else:
            self._print(report.perf_line(options.perf_template, task, row, number))

    def _finish(self):
        if self.rows:
            self._finish_measuring()
        for line in self.failures:
            print(line)
        print(" ".join(f"{state}:{self.counts[state]}" for state in ("tests", *_STATES)))

    def _finish_measuring(self):
        own = self.own
        self.suite.set_num_threads(own.threads)
        limits = measure.machine_limits(own.threads)
        run = {
            "machine": measure.machine(),
            "versions": self.suite.versions(),
            "threads": own.threads,
            "limits": limits,
        }
        machine = run["machine"]
        print(
            f"{machine['cpu']}, {own.threads} of {machine['cores']} cores, pinned: {machine['pinned']}; "
            + ", ".join(f"{name} {version}" for name, version in run["versions"].items())
        )
        print(report.limits_table(limits))
        print(report.table(self.rows, own.markdown))
        print(
            "ulp: largest error against float64; vs: a peer's time over cynorm's, the median of pairs;\n"
            "workspace and scratch: cynorm's / the first peer's; !: times spread too widely to be trusted"
        )
        if own.json:
            report.write_lines(own.json, run, self.rows)
            print(f"rows: {own.json}")
        if own.picture:
            try:
                picture.draw(self.rows, own.picture, f"{machine['cpu']}, {own.threads} threads")
                print(f"picture: {own.picture}")
            except ImportError:
                print("no picture: pip install matplotlib")
            except ValueError as error:
                print(f"no picture: {error}")


def _series(sweep, problem):
    """What stays the same along a sweep."""
    alike = {
        "size": replace(problem.descriptor, spatial=()),
        "overhead": replace(problem.descriptor, ic=1, spatial=()),
        "local_size": replace(problem.descriptor, parameters={}),
    }
    descriptor = alike.get(sweep, problem.descriptor)
    return replace(problem, descriptor=descriptor).format().partition(" ")[2]


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
