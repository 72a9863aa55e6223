"""What the tests of images share: one Docker engine for all of them, and each image built once."""

import concurrent.futures
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support import images  # noqa: E402
from support.docker_engine import CannotRun, DockerEngine, skip  # noqa: E402

def pytest_terminal_summary(terminalreporter):
    """Says which levels ran, because a machine without containers skips most of them."""
    levels = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            path = report.nodeid.partition("::")[0]
            if "tests/deploy/" in path:
                level = path.rpartition("/test_")[2].removesuffix(".py")
                levels.setdefault(level, {}).setdefault(outcome, []).append(report)
    for level, outcomes in sorted(levels.items()):
        counts = ", ".join(f"{len(reports)} {outcome}" for outcome, reports in outcomes.items())
        reasons = {report.longrepr[2] for report in outcomes.get("skipped", [])}
        terminalreporter.write_line(f"deploy: {level}: {counts}"
                                    f"{''.join(f'; {reason}' for reason in sorted(reasons))}")


@pytest.fixture(scope="session")
def docker():
    try:
        running = DockerEngine()
        running.__enter__()
    except CannotRun as reason:
        skip(str(reason))
    yield running
    running.__exit__(None, None, None)


@pytest.fixture(scope="session")
def tree():
    return images.make_tree()


@pytest.fixture(scope="session")
def base_image(docker):
    images.import_base(docker)
    return images.BASE


@pytest.fixture(scope="session")
def built_images(docker, base_image, tree):
    """{name: tag}. Builds wait for archives of packages most of the time, so all go on together."""
    builds = {"control": lambda: images.build(docker, "control"),
              "worker": lambda: images.build(docker, "worker"),
              "postgres": lambda: images.build_postgres(docker)}
    with concurrent.futures.ThreadPoolExecutor(len(builds)) as pool:
        running = {name: pool.submit(build) for name, build in builds.items()}
        return {name: build.result() for name, build in running.items()}


@pytest.fixture(scope="session")
def control_image(built_images):
    return built_images["control"]


@pytest.fixture(scope="session")
def worker_image(built_images):
    return built_images["worker"]


@pytest.fixture(scope="session")
def postgres_image(built_images):
    return built_images["postgres"]
