"""The benchmark suite: benchdnn's language, the thresholds, the comparison of runs, and a run in small."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

import cynorm
from benchmarks import check, measure, picture, problems, report, sweeps, targets, tensors
from benchmarks.__main__ import main
from benchmarks.descriptor import Descriptor
from benchmarks.peers import PEERS, Refused, library, onednn
from benchmarks.problems import Layout, Problem, Unsupported, parse, tokens

needs_onednn = pytest.mark.skipif(not onednn.available(), reason="needs oneDNN (pip install onednn-cpu-gomp)")
needs_torch = pytest.mark.skipif(not library("PyTorch").available(), reason="needs PyTorch")
needs_batch_norm = pytest.mark.skipif(not hasattr(cynorm, "BatchNorm"), reason="needs BatchNorm")


def problem(words):
    (task,) = parse(words.split())
    return task.problem


# ----------------------------------------------------------------------------------------------------------
# Descriptors


@pytest.mark.parametrize(
    ("text", "shape", "parameters"),
    [
        ('mb256ic96_ih55n"alexnet:norm1"', (256, 96, 55, 55), {}),
        ("ic16", (2, 16), {}),
        ("ic16iw9", (2, 16, 9), {}),
        ("ic16ih10iw7", (2, 16, 10, 7), {}),
        ("id3ic16", (2, 16, 3, 3, 3), {}),
        ("id2ic16_ih10iw7", (2, 16, 2, 10, 7), {}),
        ("id3ic16_ih5_ls7n", (2, 16, 3, 5, 5), {"ls": 7}),
        ("id4ic16_iw5_k14.2", (2, 16, 4, 4, 5), {"k": 14.2}),
        ("mb50ic96ih112_ls3_alpha0.00005nx", (50, 96, 112, 112), {"ls": 3, "alpha": 5e-5}),
        ("mb0ic4ih2beta1.0", (0, 4, 2, 2), {"beta": 1.0}),
        ("ic3alpha1e-4k2", (2, 3), {"alpha": 1e-4, "k": 2.0}),
    ],
)
def test_lrn_descriptor(text, shape, parameters):
    found = Descriptor.parse(text, "lrn")
    assert (found.mb, found.ic, *found.spatial) == shape
    assert found.parameters == {"ls": 5, "alpha": 1 / 8192, "beta": 0.75, "k": 1.0} | parameters
    for canonical in (False, True):
        assert Descriptor.parse(found.format(canonical), "lrn") == found


def test_bnorm_descriptor_has_its_own_parameters_and_default():
    found = Descriptor.parse("mb96_ic64_ih112iw112_eps1e-05_n'conv1/7x7_s2/bn'", "bnorm")
    assert found.parameters == {"eps": 1e-5}
    assert found.name == "conv1/7x7_s2/bn"
    assert str(found) == 'mb96ic64ih112eps1e-05n"conv1/7x7_s2/bn"'
    assert Descriptor.parse("ic1ih1", "bnorm").parameters == {"eps": 1 / 16}


@pytest.mark.parametrize("text", ["", "mb2", "ic0ih5", "ic5ih", "ic5q7", "ic5ls2.5", "ic5k1.2.3"])
def test_bad_descriptors_say_what_is_wrong(text):
    with pytest.raises(ValueError, match="lrn descriptor"):
        Descriptor.parse(text, "lrn")


@pytest.mark.parametrize(
    ("tag", "ndim", "order", "block"),
    [
        ("abx", 4, (0, 1, 2, 3), 0),
        ("axb", 5, (0, 2, 3, 4, 1), 0),
        ("axb", 2, (0, 1), 0),
        ("acdb", 4, (0, 2, 3, 1), 0),
        ("nhwc", 4, (0, 2, 3, 1), 0),
        ("xba", 3, (2, 1, 0), 0),
        ("aBx16b", 4, (0, 1, 2, 3), 16),
        ("nCdhw8c", 5, (0, 1, 2, 3, 4), 8),
    ],
)
def test_tags(tag, ndim, order, block):
    assert Layout.from_tag(tag, ndim) == Layout(order, block)


@pytest.mark.parametrize("tag", ["ABx16a16b", "abc", "undef", "aAx4a", "nchw8"])
def test_tags_beyond_the_suite_are_unsupported(tag):
    with pytest.raises(Unsupported, match="tag"):
        Layout.from_tag(tag, 4)


# ----------------------------------------------------------------------------------------------------------
# The command line


def test_comma_lists_make_a_cross_product_in_benchdnn_order():
    tasks = parse("--lrn --dir=FWD_D,BWD_D --dt=f32,bf16 --alg=WITHIN,ACROSS ic16ih5".split())
    assert [str(task.problem) for task in tasks[:3]] == [
        "--lrn --alg=WITHIN ic16ih5",
        "--lrn ic16ih5",
        "--lrn --dt=bf16 --alg=WITHIN ic16ih5",
    ]
    assert len({str(task.problem) for task in tasks}) == 8


def test_the_line_of_a_problem_reproduces_it():
    words = [
        "--bnorm",
        "--dir=BWD_DW",
        "--dt=f16",
        "--tag=axb",
        "--flags=GCHR",
        "--inplace=true",
        'mb3ic5ih7eps0.1n"x"',
    ]
    (task,) = parse(words)
    for canonical in (False, True):
        again = problem(task.problem.format(canonical))
        assert again == task.problem
        assert again.descriptor == task.problem.descriptor


def test_options_hold_until_given_again_and_reset_spares_the_common_ones():
    words = "--lrn --mode=P --dt=bf16 ic1 --tag=axb --mb=7 ic2 --reset ic3 --bnorm --flags=S ic4"
    first, second, third, fourth = parse(words.split())
    assert (first.problem.dt, first.problem.tag) == ("bf16", "abx")
    assert (second.problem.dt, second.problem.tag, second.problem.shape) == ("bf16", "axb", (7, 2))
    assert third.problem == Problem(Descriptor.parse("ic3", "lrn"))
    assert (fourth.problem.driver, fourth.problem.flags) == ("bnorm", "CH")
    assert {task.options.mode for task in (first, second, third, fourth)} == {"P"}


def test_an_empty_option_is_its_default_also_within_a_list():
    tasks = parse("--bnorm --flags=,G,CHR --dt= --attr-post-ops='',relu --inplace=true,false ic4ih2".split())
    assert len(tasks) == 12
    assert {task.problem.flags for task in tasks} == {"", "G", "CHR"}
    assert {task.problem.post_ops for task in tasks} == {"", "relu"}


def test_match_filters_and_mb_overrides():
    tasks = parse(["--lrn", "--match=alexnet", "--mb=1,2", "--batch=networks"])
    assert [task.problem.shape for task in tasks] == [
        (mb, *rest) for rest in ((96, 55, 55), (256, 27, 27)) for mb in (1, 2)
    ]


def test_nested_batch_files_lie_beside_each_other_and_their_options_go_on(tmp_path):
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.write_text('# shapes\n--alg=WITHIN\nic4_ih3n"a name"   # the first\nic5 \\\n  ic6\n')
    outer.write_text("--reset\n--dt=f32,f16\n  --batch=inner\n#--dt=bf16\nic7\n")
    tasks = parse(["--lrn", "--tag=axb", f"--batch={outer}"])
    assert [task.problem.shape[1] for task in tasks] == [4, 4, 5, 5, 6, 6, 7, 7]
    assert {task.problem.alg for task in tasks} == {"WITHIN"}
    assert {task.problem.tag for task in tasks} == {"abx"}
    assert tasks[0].problem.descriptor.name == "a name"


def test_a_batch_file_that_includes_itself_is_an_error(tmp_path):
    loop = tmp_path / "loop"
    loop.write_text("--batch=loop\n")
    with pytest.raises(ValueError, match="nested"):
        parse(["--lrn", f"--batch={loop}"])


def test_tokens():
    text = "--a=1 # no\n#--b\n x\"a b\"_y \\\n'c d'\n--flags=,G"
    assert list(tokens(text)) == ["--a=1", 'x"a b"_y', "'c d'", "--flags=,G"]


@pytest.mark.parametrize(
    "words",
    ["--lrn --frobnicate=1 ic1", "--lrn --alg=AROUND ic1", "--lrn --flags=G ic1", "--bnorm --flags=X ic1",
     "--lrn --mode=Z ic1", "--lrn --dir=SIDEWAYS ic1", "ic1", "--lrn --mb=two ic1"],
)  # fmt: skip
def test_bad_command_lines_are_refused(words):
    with pytest.raises(ValueError):
        parse(words.split())


def test_a_missing_batch_file_is_named():
    with pytest.raises(FileNotFoundError, match="--batch=nowhere"):
        parse(["--lrn", "--batch=nowhere"])


def test_onednn_input_files_are_understood(tmp_path):
    """Lines as they stand in oneDNN's own input files, of versions 2 and 3."""
    (tmp_path / "shapes_ci").write_text(
        '# random 1d problems\n\nic32iw32_n"bnorm_1d:1"\nmb1ic19id4ih6iw6_n"bnorm_3d:2"\n'
    )
    lines = """
        --reset
        --inplace=true,false
        --tag=abx,axb
        --skip-impl=ref --attr-scratchpad=user
        # training
        --dir=FWD_D,BWD_DW
        --dt=f32,bf16
        --flags=,G,S,C,H,R,GS,GR,SR,GSR,GCHR
        --batch=shapes_ci
        --dir=FWD_I
        --flags=,G --attr-post-ops=,relu,relu:-1
        --batch=shapes_ci
        --allow-enum-tags-only=0 --dt=s8 --flags=G --attr-post-ops= --tag=ABcd32a16b mb128ic64ih112iw112n"r*1"
    """
    (tmp_path / "test_bnorm_ci").write_text(lines)
    tasks = parse(["--bnorm", f"--batch={tmp_path / 'test_bnorm_ci'}"])
    assert len(tasks) == 2 * 2 * 2 * 2 * (2 * 11) + 2 * 2 * 2 * 2 * (2 * 3) + 2
    assert tasks[-1].problem.tag == "ABcd32a16b"


@pytest.mark.parametrize("name", ["quick", "full"])
def test_presets_and_problem_sets_parse(name):
    assert parse([f"--batch={name}"])
    for driver in ("lrn", "bnorm"):
        assert parse([f"--{driver}", "--batch=networks"])


def test_every_layer_of_densenet_and_resnet_is_counted():
    for network, layers in (("densenet_121", 121), ("resnet_50", 53)):
        names = [task.problem.descriptor.name for task in parse(["--bnorm", f"--batch={network}"])]
        assert sum(int(name.rpartition("*")[2]) for name in names) == layers


@pytest.mark.parametrize("sweep", sweeps.SWEEPS)
def test_sweeps_make_problems(sweep):
    points = sweeps.SWEEPS[sweep](2)
    assert points
    for _, each in points:
        each.check_supported()


# ----------------------------------------------------------------------------------------------------------
# Arrays and fills


@pytest.mark.parametrize("tag", ["abx", "axb", "xba", "aBx8b", "aBx16b"])
def test_arrays_hold_what_is_stored_in_any_layout(tag):
    each = problem(f"--lrn --tag={tag} mb2ic11ih3iw4")
    values = np.arange(math.prod(each.shape), dtype=np.float32).reshape(each.shape)
    array = tensors.allocate(each)
    tensors.store(array, values, each)
    np.testing.assert_array_equal(tensors.logical(array, each), values)
    assert array.ctypes.data % 64 == 0


def test_strides_lay_out_both_sides():
    each = problem("--bnorm --strides=200x20x5x1:60x1x15x3 ic3ih4iw5")
    assert tensors.allocate(each, "src").strides == (800, 80, 20, 4)
    assert tensors.allocate(each, "dst").strides == (240, 4, 60, 12)
    with pytest.raises(Unsupported, match="strides"):
        tensors.allocate(problem("--bnorm --strides=4x1: ic3ih4"))
    for strides in ("4x1", "-48x16x4x1:", "4xa:", "1:2:3"):
        with pytest.raises(ValueError, match="is not SRC:DST"):
            problem(f"--bnorm --strides={strides} ic3ih4")


def test_lrn_fill_is_small_integers():
    src = tensors.benchdnn_fill(problem("--lrn ic5ih3"), "src")
    assert src.ravel()[:4].tolist() == [1637 % 16 - 8, 2728 % 16 - 8, 3819 % 16 - 8, 4910 % 16 - 8]


@pytest.mark.parametrize("dt", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", ["mb2ic9ih4", "mb3ic5ih3", "mb16ic3ih50"])
def test_batch_norm_fill_makes_the_mean_exact(dt, shape):
    each = problem(f"--bnorm --dt={dt} {shape}")
    src = tensors.benchdnn_fill(each, "src").astype(np.float64)
    alg, _, _ = tensors._exactness(each)
    expected = 0.25 * 2.0 ** (np.arange(each.shape[1]) % 7) if alg == 1 else np.zeros(each.shape[1])
    if alg == 1:
        np.testing.assert_array_equal(src.mean((0, 2, 3)), expected)
    else:
        np.testing.assert_allclose(src.mean((0, 2, 3)), expected, atol=0.05)


# ----------------------------------------------------------------------------------------------------------
# Thresholds


def test_benchdnn_thresholds():
    assert check.threshold(problem("--lrn ic5ih3"), "dst") == 5 * 3 * 2**-23
    assert check.threshold(problem("--lrn --alg=WITHIN --dt=bf16 ic5ih3ls3"), "dst") == 9 * 3 * 2**-7
    assert check.threshold(problem("--bnorm ic5ih3"), "dst") == 6e-7
    assert check.threshold(problem("--bnorm --dt=f16 ic5ih3"), "dst") == 6e-7 * 2**13
    assert check.threshold(problem("--bnorm ic5ih3"), "mean") == 0
    assert check.threshold(problem("--bnorm --dir=BWD_DW --flags=C ic5ih3"), "diff_scale") == 5e-6


def test_own_tolerances():
    assert check.tolerance(problem("--lrn ic5ih3"), "dst") == 4
    assert check.tolerance(problem("--lrn --dir=BWD_D ic5ih3"), "diff_src") == 8
    assert check.tolerance(problem("--lrn ic5ih3ls256"), "dst") == 8
    assert check.tolerance(problem("--lrn --dt=f16 ic5ih3"), "dst") == 1
    assert check.tolerance(problem("--bnorm --dir=BWD_DW --flags=C ic5ih3"), "diff_scale") == 16


@pytest.mark.parametrize(
    "words", ["--lrn", "--lrn --dir=BWD_D", "--lrn --alg=WITHIN --tag=axb", "--lrn --inplace=true"]
)
def test_a_wrong_result_is_found(words):
    each = problem(f"{words} mb1ic8ih4")
    arrays = tensors.make(each, tensors.random_fill)
    given = check.inputs(each, arrays)
    prepared = library("cynorm").prepare(each, arrays)
    check.restore(each, given, arrays)
    prepared.run()
    output = arrays["dst" if each.is_forward else "diff_src"]
    for compare in (check.compare_own, check.compare_benchdnn):
        assert [result.wrong for result in compare(each, given, arrays)] == [0]
    output[0, 3, 2, 1] *= np.float32(1.01)
    for compare in (check.compare_own, check.compare_benchdnn):
        assert [result.wrong for result in compare(each, given, arrays)] == [1]
    output[0, 3, 2, 1] = np.nan
    assert check.error_in_ulp(each, given, arrays) == np.inf


# ----------------------------------------------------------------------------------------------------------
# Peers


@needs_onednn
@pytest.mark.parametrize("tag", ["abx", "axb", "aBx16b"])
@pytest.mark.parametrize("direction", ["FWD_D", "FWD_I", "BWD_D"])
def test_onednn_runs_lrn_right(tag, direction):
    each = problem(f"--lrn --tag={tag} --dir={direction} mb2ic32ih5")
    _check_peer("oneDNN", each)


@needs_onednn
@pytest.mark.parametrize("direction", ["FWD_D", "FWD_I", "BWD_DW"])
@pytest.mark.parametrize("flags", ["", "CH", "GCHR", "CHR"])
def test_onednn_runs_batch_norm_right(direction, flags):
    each = problem(f"--bnorm --dir={direction} --flags={flags} mb2ic16ih5")
    _check_peer("oneDNN", each)


@needs_torch
@pytest.mark.parametrize(
    "words", ["", "--tag=axb", "--flags=CHR", "--flags=GCH --dir=FWD_I", "--flags=CH --dir=BWD_DW"]
)
def test_torch_runs_batch_norm_right(words):
    _check_peer("PyTorch", problem(f"--bnorm {words} mb2ic16ih5"))


def _check_peer(name, each):
    arrays = tensors.make(each, tensors.benchdnn_fill)
    given = check.inputs(each, arrays)
    prepared = library(name).prepare(each, arrays)
    prepared.run()
    results = check.compare_benchdnn(each, given, arrays)
    # PyTorch leaves mean and variance to its running statistics.
    assert all(
        result.wrong == 0 for result in results if name == "oneDNN" or result.output in ("dst", "diff_src")
    )


@needs_onednn
def test_onednn_refusals_name_the_reason():
    with pytest.raises(Refused, match="unimplemented"):
        onednn.BatchNorm(
            "forward_training", onednn.MemoryDescriptor((2, 3, 4), np.float32), flags=["fuse_norm_add_relu"]
        )
    with pytest.raises(Refused, match="complex64"):
        onednn.MemoryDescriptor((2, 3), np.complex64)
    with pytest.raises(Refused, match="tag xyz"):
        onednn.MemoryDescriptor((2, 3), np.float32, tag="xyz")


@needs_onednn
def test_onednn_arguments_are_checked():
    src = np.zeros((2, 8, 3, 3), np.float32)
    lrn = onednn.Lrn("forward_training", onednn.MemoryDescriptor.of(src))
    with pytest.raises(ValueError, match="dst has dtype float64"):
        lrn.execute({"src": src, "dst": src.astype(np.float64)})
    with pytest.raises(ValueError, match="'weights'"):
        lrn.execute({"src": src, "weights": src})
    assert onednn.version().startswith("3.")


# ----------------------------------------------------------------------------------------------------------
# Measuring and reporting


def test_turns_are_paired():
    calls = []
    runs = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    samples = measure.take_turns(runs, 1.0, rounds=3)
    assert [len(values) for values in samples.values()] == [3, 3]
    assert calls[:4] == ["a", "a", "b", "b"]


def test_any_may_follow_any():
    """Rounds differ in their order: else each would always find in the caches what the same other one has left."""
    calls = []
    runs = {name: lambda name=name: calls.append(name) for name in "abc"}
    measure.take_turns(runs, 1.0, rounds=50, flush=lambda: None)
    calls = calls[6:]  # those that find out how long one takes
    rounds = ["".join(calls[i : i + 3]) for i in range(0, len(calls), 3)]
    assert set(rounds) == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_what_is_slower_than_the_time_for_all_runs_once(monkeypatch):
    suite = measure.Suite(["cynorm"], 1)
    monkeypatch.setattr(measure, "first_call", lambda run: (5.0, 0))
    result = suite.row(problem("--lrn mb1ic16ih3"), seconds=0.01)["results"]["cynorm"]
    assert (result["samples"], result["median"]) == (1, 5.0)


def test_flush_comes_before_every_timed_call():
    calls = []
    measure.take_turns({"a": lambda: calls.append("a")}, 1.0, rounds=2, flush=lambda: calls.append("flush"))
    assert calls[-4:] == ["flush", "a", "flush", "a"]


def _row(median, share=None, words="--lrn ic1", spread=0.01):
    result = {"median": median, "spread": spread, "share": share}
    return {"kind": "row", "problem": words, "threads": 1, "cache": "warm", "results": {"cynorm": result}}


def test_compare_finds_what_is_beyond_the_noise():
    old = [
        _row(1.0),
        _row(1.0, words="--lrn ic2"),
        _row(1.0, words="--lrn ic3"),
        _row(1.0, words="--lrn ic4"),
    ]
    new = [_row(1.5), _row(1.03, words="--lrn ic2"), _row(0.5, words="--lrn ic3")]
    found = report.compare(old, new)
    assert found == [
        ("gone", "--lrn ic4", math.inf),
        ("slower", "--lrn ic1", 1.5),
        ("faster", "--lrn ic3", 0.5),
    ]
    assert report.compare([_row(1.0, spread=0.3)], [_row(1.5, spread=0.3)]) == []


def test_compare_does_not_blame_the_code_for_a_slower_machine():
    assert report.compare([_row(1.0, share=0.8)], [_row(1.5, share=0.8)]) == []
    assert report.compare([_row(1.0, share=0.8)], [_row(1.5, share=0.5)])


def test_compare_mode_says_what_got_slower(tmp_path, capsys):
    for name, median in (("old", 1.0), ("new", 2.0)):
        report.write_lines(tmp_path / name, {"threads": 1}, [_row(median)])
    assert main(["--compare", str(tmp_path / "old"), str(tmp_path / "new")]) == 1
    assert "slower    2.00x the time  --lrn ic1" in capsys.readouterr().out
    assert main(["--compare", str(tmp_path / "old"), str(tmp_path / "old")]) == 0


def test_perf_template():
    (task,) = parse(["--lrn", 'mb1ic256ih4n"x:y"'])
    result = {"implementation": "impl", "prepare": 0.001, "minimum": 0.002, "mean": 0.003, "maximum": 0.004}
    row = {"results": {"cynorm": result}}
    default = 'perf,cpu,impl,x:y,--lrn mb1ic256ih4n"x:y",0,1,2,0,3,0'
    assert report.perf_line(problems.PERF_TEMPLATE, task, row) == default
    assert report.perf_line("%dir% %dt% %DESC% %+time% %Kibytes% %-Gbw%", task, row) == (
        "FWD_D f32 1,256,1,4,4,5,0.0001220703125,0.75,1.0 4 16.384 0.016384"
    )
    with pytest.raises(ValueError, match="%nonsense%"):
        report.perf_line("%nonsense%", task, row)


def test_list_mode_prints_reproducers(capsys):
    assert main(["--lrn", "--mode=L", "--dir=FWD_D,BWD_D", "ic8ih3"]) == 0
    out = capsys.readouterr().out
    assert "1:LISTED __REPRO: --lrn --dir=BWD_D ic8ih3" in out
    assert "tests:2 passed:0" in out


def test_correctness_mode_passes_and_skips(capsys):
    words = "--dt=f32,bf16,f64 --tag=abx,axb,aBx16b,ABx16a16b --alg=ACROSS,WITHIN --dir=FWD_D,FWD_I,BWD_D"
    assert main(["--lrn", *words.split(), "mb2ic20ih5"]) == 0
    out = capsys.readouterr().out
    assert "SKIPPED (tag ABx16a16b) __REPRO: --lrn --tag=ABx16a16b" in out
    assert "tests:72 passed:54 skipped:18" in out


@needs_batch_norm
def test_correctness_mode_of_batch_norm(capsys):
    words = "--dt=f32,bf16 --tag=abx,axb,aBx8b --flags=,CH,GCHR --inplace=false,true"
    assert main(["--bnorm", "--dir=FWD_D,FWD_I,BWD_D,BWD_DW", *words.split(), "mb2ic20ih5"]) == 0
    assert "tests:144 passed:144" in capsys.readouterr().out


def test_a_failure_gives_status_one_and_a_reproducer(capsys, monkeypatch):
    monkeypatch.setattr(check, "tolerance", lambda problem, name: -1.0)
    assert main(["--lrn", "ic8ih3"]) == 1
    out = capsys.readouterr().out
    assert "FAILED (own dst errors:144 total:144" in out
    assert "__REPRO: --lrn ic8ih3" in out


def test_bad_arguments_are_told_on_standard_error(capsys):
    with pytest.raises(SystemExit):
        main(["--lrn", "--frobnicate", "ic1"])
    assert "--frobnicate: no such option" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, text",
    [
        (["--quick", "--peers=foo"], "--peers must be of oneDNN, PyTorch, TensorFlow, got 'foo'"),
        (["--quick", "--threads=0"], "--threads must be at least 1, got 0"),
        (["--compare", "/nope/old", "/nope/new"], "/nope/old"),
        (["--lrn", "--json=rows.jsonl", "ic1"], "need a --mode that measures, such as P: rows.jsonl"),
        (["--lrn", "--mode=L", "--picture=rows.png", "ic1"], "need a --mode that measures, such as P: rows.png"),
        (["--lrn", "--mode=P", "--json=/nope/rows", "ic1"], "/nope/rows cannot be written"),
        (["--quick", "--picture=/nope/rows.png"], "/nope/rows.png cannot be written"),
        (["--lrn", "--mode=P", "--json=/", "ic1"], "/ cannot be written"),
        (["--quick", "--dt=bf16"], "--quick has problems and options of its own, to which --dt=bf16 does not apply"),
        (["--sweep=size", "--dt=bf16"], "--sweep has problems of its own, to which --dt=bf16 does not apply"),
        (["--sweep=size", "--match=foo"], "--sweep has problems of its own, to which --match=foo does not apply"),
        (["--lrn", "--match=[", "ic1"], "--match=[: '[' is no regular expression"),
        (["--lrn", "--mb=-1", "ic1"], "--mb=-1: '-1' is no number from 0 on"),
        (["--lrn", "--mode=P", "--fix-times-per-prb=-1", "ic1"], "--fix-times-per-prb=-1: '-1' is no number from 0 on"),
    ],
)
def test_bad_options_are_told_on_standard_error(words, text, capsys):
    with pytest.raises(SystemExit):
        main(words)
    assert text in capsys.readouterr().err


@pytest.fixture
def small_machine(monkeypatch):
    """Caches so small that the machine's limits are measured at once."""
    monkeypatch.setattr(measure, "cache_sizes", lambda: {1: 1 << 12, 2: 1 << 14, 3: 1 << 16})


def test_a_run_in_small(tmp_path, capsys, small_machine):
    lines, image = tmp_path / "rows.jsonl", tmp_path / "rows.png"
    words = "--lrn --mode=P --fix-times-per-prb=2 --dir=FWD_D,BWD_D --tag=abx,axb,ABx16a16b mb1ic16ih3"
    assert main([*words.split(), f"--json={lines}", f"--picture={image}", "--threads=1"]) == 0
    out = capsys.readouterr().out
    assert "perf,cpu,lrn_across" in out
    assert "SKIPPED (tag ABx16a16b)" in out
    run, rows = report.read_lines(lines)
    assert set(run["versions"]) == {"cynorm", *PEERS}
    assert len(run["limits"]) == 15
    assert len(rows) == 6
    result = rows[0]["results"]["cynorm"]
    assert {"median", "minimum", "gbs", "share", "spread", "implementation", "workspace", "error"} <= set(
        result
    )
    assert result["ratio"] == 1
    assert all("ratio" in each or "refused" in each for each in rows[0]["results"].values())
    assert report.problem_of(rows[0]) == problem("--lrn mb1ic16ih3")
    if importable("matplotlib"):
        assert image.stat().st_size > 1000
    assert "| --- |" in report.table(rows, markdown=True)
    json.dumps(rows, allow_nan=False)


def test_all_threads_are_measured_where_openmp_binds_the_first_to_a_core():
    run = "--fix-times-per-prb=1 --mode=P --peers= --lrn mb1ic16ih3"
    command = f"import sys, benchmarks.__main__ as b; b.measure.machine_limits = lambda n: []; b.main({run.split()})"
    environment = os.environ | {"OMP_PROC_BIND": "close", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=True)
    assert f", 2 of {os.cpu_count()} cores, pinned: close;" in done.stdout


def test_libraries_that_keep_another_number_of_threads_have_no_rows(monkeypatch):
    def keep(count):
        raise Refused(f"not {count}")

    monkeypatch.setattr(library("cynorm"), "set_num_threads", keep)
    row = measure.Suite(["cynorm"], 3).row(problem("--lrn mb1ic16ih3"), rounds=1)
    assert row["results"]["cynorm"] == {"refused": "not 3"}


def test_cold_cache_rows_say_so(small_machine):
    suite = measure.Suite(["cynorm"], 1)
    row = suite.row(problem("--lrn mb1ic16ih3"), rounds=1, cold=True)
    assert row["cache"] == "cold"
    assert "median" in row["results"]["cynorm"]


def test_sweep_rows_are_drawn(tmp_path):
    if not importable("matplotlib"):
        pytest.skip("needs matplotlib")
    suite = measure.Suite(["cynorm"], 1)
    rows = []
    for x in (1, 3):
        row = suite.row(problem(f"--lrn mb1ic16ih3ls{x}"), rounds=1, with_error=False)
        rows.append(row | {"sweep": "local_size", "x": x, "series": "f32"})
    picture.draw(rows, tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="nothing to draw"):
        picture.draw([], tmp_path / "none.png")


@pytest.mark.parametrize("argument, message", [("--match=nosuch", "no case has 'nosuch'"), ("--threads=0", "--threads must be")])
def test_targets_refuse_what_would_measure_nothing(argument, message, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["targets", argument])
    with pytest.raises(SystemExit):
        targets.run([], [], "title")
    assert message in capsys.readouterr().err


def importable(name):
    import importlib.util

    return importlib.util.find_spec(name) is not None
