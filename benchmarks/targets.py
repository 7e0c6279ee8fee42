"""Cases with a target, and the table that says which are met; shared by lrn_targets and bn_targets."""

import argparse
from dataclasses import dataclass

import cynorm
from benchmarks import measure
from benchmarks.problems import parse
from benchmarks.report import Progress
from cynorm import _dispatch


@dataclass
class Case:
    """A benchdnn problem and what it has to reach.

    Attributes
    ----------
    words : str
        The problem as on the command line.
    share : float
        The least share of the streaming limit on minimal traffic.
    factor : float
        The traffic that is actually needed, relative to the minimal; the share times it has to reach
    needed_share : float
        this much.
    half_of : str
        Another problem's words: the case may take twice its time, measured in turn.
    microseconds : float
        The most that a call may take on one thread.
    """

    words: str
    share: float = 0.0
    factor: float = 1.0
    needed_share: float = 0.0
    half_of: str = ""
    microseconds: float = 0.0


_COLUMNS = "{:44} {:>22} {:>9} {:>7} {:>8} {:>24} {:>8}  {}"


def run(cases, peers, title):
    """Measure the cases and print the table; 1 where one falls short. No peer may be faster in any case."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--threads", type=int, default=cynorm.get_num_threads())
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case")
    parser.add_argument("--match", default="", help="only cases whose words contain this")
    own = parser.parse_args()
    try:
        own.threads = _dispatch.checked_threads(own.threads, "--threads")
    except ValueError as error:
        parser.error(str(error))
    cases = [case for case in cases if own.match in case.words]
    if not cases:
        parser.error(f"no case has {own.match!r} among its words")
    suite = measure.Suite(["cynorm", *peers], own.threads)
    print(title, "--", ", ".join(f"{name} {version}" for name, version in suite.versions().items()))
    print(_COLUMNS.format("problem", "shape", "ms", "GB/s", "of limit", "fastest peer", "spread", ""))
    short = 0
    progress = Progress(len(cases))
    for case in cases:
        progress.step(case.words)
        suite.set_num_threads(1 if case.microseconds else own.threads)
        (task,) = parse(case.words.split())
        row = suite.row(task.problem, seconds=own.seconds, with_error=False)
        if case.half_of:
            (base,) = parse(case.half_of.split())
            row["times_half_of"] = suite.ratio(task.problem, base.problem, seconds=own.seconds)
        complaints = _judge(case, row)
        short += bool(complaints)
        progress.clear()
        print(_line(task.problem, row, complaints), flush=True)
    print(f"{len(cases) - short} of {len(cases)} targets met")
    return int(short > 0)


def _judge(case, row):
    """What the row falls short of, as texts."""
    result = row["results"]["cynorm"]
    if "refused" in result:
        return [result["refused"]]
    complaints = []
    if result["share"] < case.share:
        complaints.append(f"{case.share:.0%} of the limit asked")
    if row.get("times_half_of", 0) > 2:
        complaints.append(f"{row['times_half_of']:.2f} times the plain case, 2 asked")
    if result["share"] * case.factor < case.needed_share:
        complaints.append(
            f"{case.needed_share:.0%} asked on the traffic needed, {result['share'] * case.factor:.0%}"
        )
    if case.microseconds and result["median"] * 1e6 > case.microseconds:
        complaints.append(f"{case.microseconds:g} us asked")
    complaints += [
        f"{name} is faster"
        for name, peer in row["results"].items()
        # Between equals a coin decides: a tie within the noise is no loss.
        if name != "cynorm"
        and not case.microseconds
        and peer.get("ratio", 1.0) < 1 - max(0.02, result["spread"])
    ]
    return complaints


def _line(problem, row, complaints):
    result = row["results"]["cynorm"]
    extra = problem.flags if problem.driver == "bnorm" else problem.alg
    text = f"{problem.direction} {problem.dt} {problem.tag} {extra}"
    parameters = "".join(f" {name}{value:g}" for name, value in problem.descriptor.unusual().items())
    peers = [
        (peer["ratio"], name) for name, peer in row["results"].items() if name != "cynorm" and "ratio" in peer
    ]
    peer = "{:.2f}x {}".format(*min(peers)) if peers else "none runs it"
    verdict = "FALL SHORT: " + "; ".join(complaints) if complaints else "PASS"
    numbers = ("", "", "", "")
    if "median" in result:
        numbers = (
            f"{result['median'] * 1e3:.4g}",
            f"{result['gbs']:.1f}",
            f"{result['share']:.0%}",
            f"{result['spread']:.0%}",
        )
    shape = "x".join(map(str, problem.shape))
    return _COLUMNS.format(text + parameters, shape, *numbers[:3], peer, numbers[3], verdict)
