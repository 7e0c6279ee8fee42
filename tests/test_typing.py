"""Types: mypy --strict accepts modules and examples, and stubtest finds the stubs to be what the modules are."""

import subprocess
import sys
from pathlib import Path

import pytest

import cynorm

pytest.importorskip("mypy")
TESTS = Path(__file__).parent
EXAMPLES = sorted(TESTS.parent.glob("examples/*.py"))


def run(*command):
    """Run a tool on cynorm as it is installed."""
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def test_modules_are_typed(cache):
    folder = Path(cynorm.__file__).parent
    modules = [f"cynorm.{path.stem}" for path in folder.glob("*.py") if path.stem[0] != "_" or path.stem == "_typing"]
    run("mypy", "--strict", f"--cache-dir={cache}", *[part for name in modules for part in ("-m", name)])


def test_names_are_known_to_type_checkers(cache):
    code = "import cynorm\ncynorm.onednn\ncynorm.LNR()\n"
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={cache}", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert len(errors) == 1 and '"LNR"' in errors[0], done.stdout


def without(example):
    """Skip what needs a package that is not here."""
    library = example.stem.removesuffix("_function")
    if library != example.stem:
        pytest.importorskip(library)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_typed(example, cache):
    without(example)
    run("mypy", "--strict", f"--cache-dir={cache}", str(example))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(example, tmp_path):
    without(example)
    done = subprocess.run([sys.executable, example], cwd=tmp_path, check=True, capture_output=True, text=True)
    if example.name == "training_step.py":
        losses = [float(loss) for loss in done.stdout.partition("loss")[2].split()]
        assert len(losses) > 3 and losses == sorted(losses, reverse=True), done.stdout
    if example.stem.endswith("_function"):
        differences = [float(line.partition("difference")[2].split()[0]) for line in done.stdout.splitlines()]
        assert len(differences) == (6 if example.stem.startswith("torch") else 8), done.stdout
        assert max(differences) < 1e-6, done.stdout


def test_stubs_are_what_the_modules_are():
    run(
        "mypy.stubtest",
        "cynorm",
        "--concise",
        "--ignore-disjoint-bases",
        "--ignore-unused-allowlist",  # what NumPy's aliases are differs between its versions
        f"--allowlist={TESTS / 'stubtest.allow'}",
    )
