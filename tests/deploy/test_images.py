"""What is in the images, and how a container of them behaves."""

import json
import subprocess

import pytest
from support import images
from support.lathe_server import ROOT

DEPLOY_BIN = ROOT / ".venv-deploy/bin"
MIB = 1024 * 1024
# Options of a container that may do as little as possible.
CONFINED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network",
            "none")
SIZES_MIB = {"control": 380, "worker": 900}


@pytest.fixture(scope="session", params=SIZES_MIB)
def target(request):
    return request.param


@pytest.fixture(scope="session")
def image(target, request):
    return request.getfixturevalue(f"{target}_image")


def shell(containers, image, script):
    return containers.docker("run", "--rm", *CONFINED, "--entrypoint", "/bin/sh", image, "-c", script)


@pytest.mark.parametrize("file", ["Dockerfile", "Dockerfile.cuda"])
def test_hadolint_finds_nothing(file):
    linted = subprocess.run([DEPLOY_BIN / "hadolint", "--ignore", "DL3008",
                             ROOT / "deploy/images" / file],
                            check=False, capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize("file", ["images/entry", "images/base.sh", "compose/init.sh"])
def test_shellcheck_finds_nothing(file):
    checked = subprocess.run([DEPLOY_BIN / "shellcheck", ROOT / "deploy" / file], check=False,
                             capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_an_image_is_small(containers, image, target):
    size = images.inspect(containers, image)["Size"] / MIB
    print(f"{target}: {size:.0f} MiB")
    assert size <= SIZES_MIB[target]


def test_a_container_is_not_root_and_cannot_change_its_image(containers, image):
    """Also where the file system is not read-only."""
    told = containers.docker("run", "--rm", "--network", "none", "--entrypoint", "/bin/sh", image, "-c",
                         """id -u
                         for path in /x /usr/bin/x /etc/x /usr/lib/lathe; do
                           touch $path 2>/dev/null && echo changed $path; done
                         # The folders of data and sockets belong to the user.
                         touch /var/lib/lathe/x /run/lathe/x && stat -c %a /run/lathe""").stdout
    assert told.split() == ["10001", "700"]
    assert "/var/lib/lathe" in images.inspect(containers, image)["Config"]["Volumes"]


def test_nothing_gives_a_user_more_rights(containers, image):
    # As root, who sees all folders.
    found = containers.docker("run", "--rm", *CONFINED, "--cap-add", "DAC_READ_SEARCH", "--user", "0:0",
                          "--entrypoint", "/usr/bin/find", image, "/", "-xdev", "-perm", "/6000")
    assert found.stdout == ""


def test_an_image_has_no_tools_and_no_lists(containers, image):
    script = """for name in gcc cc g++ make cmake python3 curl wget git ssh find; do
                  command -v $name; done
                find /var/lib/apt/lists /var/cache/apt -type f ! -name lock"""
    # find itself shows that the search works.
    assert shell(containers, image, f"{script} 2>/dev/null; true").stdout.split() == ["/usr/bin/find"]


def test_every_program_finds_its_libraries(containers, image, target):
    programs = {"control": ["lathe", "lathe-engine", "lathe-gateway"],
                "worker": ["lathe", "lathe-worker", "lathe-export"]}[target]
    told = shell(containers, image, f"""for name in {' '.join(programs)}; do
                   echo; /usr/bin/$name --version; ldd /usr/bin/$name; done""").stdout
    assert "not found" not in told
    for program, part in zip(programs, told.split("\n\n"), strict=True):
        assert part.split()[:2] == [program, images.version()] and "libabsl" in part
    assert ("/lib/lathe/libtorch_cpu.so" in told) == (target == "worker")
    # Programs have no symbols.
    assert "no symbols" in subprocess.run(
        ["nm", images.TREE / target / "usr/bin" / programs[1]], check=False, capture_output=True,
        text=True).stderr


def test_labels_say_what_the_image_is(containers, image, target):
    labels = images.inspect(containers, image)["Config"]["Labels"]
    prefix = "org.opencontainers.image."
    assert labels[prefix + "title"] == f"lathe-{target}"
    assert labels[prefix + "version"] == images.version()
    assert labels[prefix + "revision"] == "test"
    assert labels[prefix + "base.name"] == images.BASE
    assert labels[prefix + "licenses"] == "Apache-2.0"
    assert {prefix + name for name in ("description", "created", "source", "base.digest")} <= set(labels)


def test_the_image_asks_its_process_how_it_is(containers, image):
    told = images.inspect(containers, image)
    config = told["Config"]
    check = config.get("Healthcheck") or told["Healthcheck"]  # Podman's place for it
    assert check["Test"] == ["CMD", "/usr/bin/lathe", "probe"]
    assert config["Entrypoint"] == ["/usr/bin/tini", "-g", "--", "/usr/bin/lathe-entry"]
    assert config["User"] == "10001:10001"


def test_the_list_of_contents_is_valid_and_complete(containers, image, target, tmp_path):
    file = tmp_path / "sbom.spdx.json"
    file.write_text(shell(containers, image, "cat /usr/share/doc/lathe/sbom.spdx.json").stdout)
    checked = subprocess.run([DEPLOY_BIN / "pyspdxtools", "--infile", file], check=False,
                             capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    packages = {package["name"]: package["versionInfo"]
                for package in json.loads(file.read_text())["packages"]}
    assert packages[f"lathe-{target}"] == images.version()
    # The list names the packages that dpkg names.
    installed = shell(containers, image, "dpkg-query -W -f '${Package} ${Version}\\n'").stdout
    assert len(installed.splitlines()) > 80
    for name, version in (line.split() for line in installed.splitlines()):
        assert packages[name] == version
    assert ("torch" in packages) == (target == "worker")


def test_history_and_environment_have_no_secret(containers, image):
    history = containers.docker("history", "--no-trunc", image).stdout
    config = json.dumps(images.inspect(containers, image)["Config"])
    assert "lathe-entry" in history + config
    for text in (history, config):
        assert "tml-" not in text and "password" not in text.lower()
