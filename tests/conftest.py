"""Hypothesis profiles, the instruction-set fixture and the opt-in for slow tests."""

import os

import pytest
from hypothesis import HealthCheck, settings

import cynorm
from cynorm import _dispatch

settings.register_profile(
    "default",
    deadline=None,
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the tests that need many gigabytes too")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: needs many gigabytes of memory; run with --slow")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="run with --slow"))


# Of module scope, so that one instruction set stays in force through all examples of a hypothesis test.
@pytest.fixture(scope="module", params=cynorm.available_isas())
def isa(request):
    """Each instruction set of this machine in turn."""
    with _dispatch.use_isa(request.param):
        assert cynorm.isa() == request.param
        yield request.param
