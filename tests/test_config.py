"""What an installation says of itself."""

from pathlib import Path

import ml_dtypes
import numpy as np

import cynorm
import cynorm.config


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


def test_headers_and_declarations_are_installed():
    assert Path(cynorm.get_include(), "cynorm", "cynorm.h").is_file()
    assert Path(cynorm.__file__).with_name("_kernels.pxd").is_file()
