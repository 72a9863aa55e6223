"""What the tests of images share: one Docker engine for all of them, and each image built once."""

import concurrent.futures
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support import images  # noqa: E402
from support.docker_engine import CannotRun, DockerEngine, skip  # noqa: E402
from support.podman_engine import PodmanEngine  # noqa: E402

ENGINE = pytest.StashKey()


def pytest_terminal_summary(terminalreporter):
    """Says which levels ran, because a machine without containers skips most of them."""
    levels = {}
    if engine := terminalreporter.config.stash.get(ENGINE, None):
        terminalreporter.write_line(f"deploy: containers run with {engine}")
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


def start_engine():
    """A Docker engine, else podman. LATHE_TEST_CONTAINERS=podman takes podman at once."""
    kinds = [DockerEngine, PodmanEngine]
    if os.environ.get("LATHE_TEST_CONTAINERS") == "podman":
        kinds.remove(DockerEngine)
    reasons = []
    for kind in kinds:
        try:
            return kind().__enter__()
        except CannotRun as reason:
            reasons.append(str(reason))
    return skip("; ".join(reasons))


@pytest.fixture(scope="session")
def containers(request):
    """What builds and runs images here."""
    running = start_engine()
    request.config.stash[ENGINE] = running.name
    yield running
    running.__exit__(None, None, None)


@pytest.fixture(scope="session")
def docker(containers):
    if not isinstance(containers, DockerEngine):
        skip(f"Compose, Swarm and health checks need a Docker engine, this is {containers.name}")
    return containers


@pytest.fixture(scope="session")
def tree():
    return images.make_tree()


@pytest.fixture(scope="session")
def base_image(containers):
    images.import_base(containers)
    return images.BASE


@pytest.fixture(scope="session")
def built_images(containers, base_image, tree):
    """{name: tag}. Builds wait for archives of packages most of the time, so all go on together."""
    builds = {"control": lambda: images.build(containers, "control"),
              "worker": lambda: images.build(containers, "worker"),
              "postgres": lambda: images.build_postgres(containers)}
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
