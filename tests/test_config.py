"""What an installation says of itself."""

import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import cynorm
import cynorm.config
from cynorm import __main__ as command_line
from cynorm.__main__ import main


def test_config_says_what_runs():
    config = cynorm.config.config()
    assert config["version"] == cynorm.__version__
    assert config["numpy"] == np.__version__
    assert config["ml_dtypes"] == ml_dtypes.__version__
    assert config["isa"] == cynorm.isa()
    assert set(config["isas_available"]) <= set(config["isas_built"])
    assert config["threads"] == cynorm.get_num_threads()
    assert "-O3" in config["flags"]["all"]
    assert "fast-math" not in config["flags"]["all"]


def test_show_config_prints_all_of_it(capsys):
    cynorm.show_config()
    printed = capsys.readouterr().out
    for name, value in cynorm.config.config().items():
        assert name in printed
        if isinstance(value, str):
            assert value in printed


def test_modules_of_other_libraries_are_there_without_an_import():
    code = "import cynorm; print([getattr(cynorm, n).__name__ for n in ('directml', 'onednn', 'tensorflow')])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["['cynorm.directml',", "'cynorm.onednn',", "'cynorm.tensorflow']"]
    with pytest.raises(AttributeError, match="'cynorm' has no attribute 'pytorch'"):
        getattr(cynorm, "pytorch")  # noqa: B009


def test_headers_and_declarations_are_installed():
    assert Path(cynorm.get_include(), "cynorm", "cynorm.h").is_file()
    assert Path(cynorm.__file__).with_name("_types.pxd").is_file()


def test_the_command_line_without_docstrings():
    command = [sys.executable, "-OO", "-m", "cynorm", "--config"]
    assert "isa" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_table_of_layers(capsys, monkeypatch):
    """Every layer, in each type, layout and pass, as far from the formula as README says."""
    of_lrn, of_batch_norm = {"AlexNet": (24, 9, 7)}, {"ResNet-50": (32, 6, 5)}
    for name, value in (("LRN_LAYERS", of_lrn), ("BATCH_NORM_LAYERS", of_batch_norm), ("TENSOR_NBYTES", {"quick": 1 << 16}),
                        ("SECONDS", {"quick": 0.0})):  # fmt: skip
        monkeypatch.setattr(command_line, name, value)
    main(["--quick"])
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines if re.match(r" *\d+/20 ", line)]
    assert [row[0] for row in rows] == [f"{i}/20" for i in range(1, 21)]
    for row in rows:
        gradient = 16 if "batch_norm" in row[-1] else 8
        assert 0 < float(row[-2]) <= (1 if "bf16" in row else gradient if "backward" in row else 4), row
    assert any("20 rows in" in line for line in lines) and "GB/s counts" in "\n".join(lines)


@pytest.mark.parametrize("threads", ["0", "-1", "two"])
def test_threads_of_the_command_line(threads, capsys):
    with pytest.raises(SystemExit):
        main(["--config", f"--threads={threads}"])
    error = capsys.readouterr().err
    assert "--threads" in error and threads in error


def test_the_command_line_shows_the_threads_it_is_given(capsys):
    try:
        main(["--config", "--threads=1"])
    finally:
        cynorm.set_num_threads(None)
    assert re.search(r"^threads +1$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("reads, writes", [(1, 0), (1, 1), (2, 1)])
@pytest.mark.parametrize("streaming", [True, False])
def test_streaming_limit(reads, writes, streaming):
    assert cynorm.streaming_limit(reads, writes, 1 << 20, 2, streaming) > 0
    assert cynorm.streaming_limit(reads, writes, 1, streaming=streaming) > 0


@pytest.mark.parametrize(
    "arguments, error, word",
    [
        ({"reads": 3}, ValueError, "reads"),
        ({"reads": 2, "writes": 0}, ValueError, "writes"),
        ({"reads": 1.0}, TypeError, "reads must be an integer of at least 1, got 1.0"),
        ({"writes": True}, TypeError, "writes must be an integer of at least 0, got True"),
        ({"streaming": "no"}, TypeError, "streaming must be True or False, got 'no'"),
        ({"nbytes": 0}, ValueError, "nbytes"),
        ({"nbytes": 1.5}, TypeError, "nbytes"),
        ({"num_threads": 0}, ValueError, "num_threads"),
        ({"num_threads": "2"}, TypeError, "num_threads"),
    ],
    ids=str,
)
def test_streaming_limit_refuses(arguments, error, word):
    with pytest.raises(error, match=word):
        cynorm.streaming_limit(**arguments)


def test_a_checkout_that_is_not_built_says_so(tmp_path):
    (tmp_path / "cynorm").mkdir()
    for source in Path(cynorm.__file__).parent.glob("*.py"):
        (tmp_path / "cynorm" / source.name).write_bytes(source.read_bytes())
    done = subprocess.run([sys.executable, "-c", "import cynorm"], cwd=tmp_path, capture_output=True, text=True)
    assert f"ImportError: the checkout {tmp_path} is not built for this Python: `pip install -e .` there" in done.stderr
