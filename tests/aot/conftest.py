"""Compile checks run on demand (make test-aot); there, a missing compiler is a failure."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--aot"):
        return
    skip = pytest.mark.skip(reason="compiles for GPUs and TPUs: make test-aot")
    for item in items:
        if item.get_closest_marker("aot"):
            item.add_marker(skip)
