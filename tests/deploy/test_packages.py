"""What people install: the wheel, the .deb packages and the units of systemd."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import zipfile

import pytest
from support import images
from support.lathe_server import BIN, ROOT, LatheServer, tiny_model
from support.raw_api import RawApi
from support.stubborn_api import Program

DEPLOY_BIN = ROOT / ".venv-deploy/bin"
VENV_PACKAGES = next(ROOT.glob(".venv/lib/python3*/site-packages"))
ONLY_FULL = pytest.mark.skipif(not images.FULL, reason="tools/check deploy runs it")


def torch_version():
    return re.search(r"^TORCH_VERSION=(\S+)$", (ROOT / "tools/setup").read_text(), re.MULTILINE)[1]


def make_package(kind, out):
    told = subprocess.run([ROOT / "tools/package", kind, "--build", BIN.parent, "--out", out],
                          check=True, capture_output=True, text=True)
    return [pathlib.Path(line) for line in told.stdout.split()]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    if not (DEPLOY_BIN / "auditwheel").exists():
        pytest.skip("auditwheel is not installed: run tools/setup --deploy")
    return make_package("wheel", tmp_path_factory.mktemp("wheel"))[0]


def link_torch(packages):
    """torch and what it needs out of .venv, in place of a wheel that pip has installed before."""
    for old in packages.glob("setuptools*"):  # torch needs a newer one than venv brings
        shutil.rmtree(old)
    for name in ("torch", "torchgen", "functorch", "filelock", "fsspec", "jinja2", "markupsafe",
                 "mpmath", "networkx", "setuptools", "sympy", "typing_extensions"):
        for path in [*VENV_PACKAGES.glob(f"{name}-*.dist-info"), *VENV_PACKAGES.glob(name),
                     *VENV_PACKAGES.glob(f"{name}.py")]:
            (packages / path.name).symlink_to(path)


def run_cut(venv, *command, **options):
    """Runs a command of the environment, which finds only programs of the environment."""
    return subprocess.run([str(word) for word in command], check=True, text=True,
                          env={"PATH": str(venv / "bin"), "HOME": str(venv),
                               **{name: value for name, value in os.environ.items()
                                  if name.startswith(("PIP_", "SSL_"))}}, **options)


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """(environment, time at which the installation of the wheel began)."""
    venv = tmp_path_factory.mktemp("install") / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    if images.FULL:
        run_cut(venv, venv / "bin/pip", "install", "--quiet", f"torch=={torch_version()}")
    else:
        link_torch(next(venv.glob("lib/python3*/site-packages")))
    for compiler in ("cc", "gcc", "g++", "clang", "cmake", "ninja"):
        assert shutil.which(compiler, path=str(venv / "bin")) is None
    begin = time.monotonic()
    run_cut(venv, venv / "bin/pip", "install", "--quiet", *([] if images.FULL else ["--no-index"]), wheel)
    return venv, begin


def test_the_wheel_serves_and_trains_without_a_compiler(installed):
    venv, begin = installed
    with LatheServer(tiny_model(), programs=venv / "bin",
                     env={"PATH": str(venv / "bin"), "LD_LIBRARY_PATH": ""}) as server:
        print(f"serves {time.monotonic() - begin:.1f} s after pip install began")
        maps = pathlib.Path(f"/proc/{server.pids()['worker']}/maps").read_text()
        api = RawApi(server)
        program = Program(api)
        for _ in range(3):
            program.step()
        api.close()
    # The worker's libraries are those of the environment: its torch, and what the wheel brought.
    libraries = {line.split()[-1] for line in maps.splitlines() if ".so" in line}
    outside = {path for path in libraries if not path.startswith(
        (str(venv), "/usr/lib", "/lib", *([] if images.FULL else [str(VENV_PACKAGES / "torch")])))}
    assert not outside
    assert any(path.endswith("torch/lib/libtorch_cpu.so") for path in libraries)
    for name in ("libgrpc", "libabsl", "libprotobuf", "libicu"):
        of_name = [path for path in libraries if f"/{name}" in path]
        assert of_name and all("lathe_server.libs" in path for path in of_name)


def test_every_program_of_the_wheel_starts(installed):
    venv, _ = installed
    for program in ("lathe", "lathe-engine", "lathe-gateway", "lathe-worker", "lathe-export"):
        told = run_cut(venv, venv / "bin" / program, "--version", capture_output=True)
        assert told.stdout.split() == [program, images.version()]
    assert "No broken requirements" in run_cut(venv, venv / "bin/pip", "check",
                                               capture_output=True).stdout


def test_the_wheel_keeps_what_its_name_promises(wheel):
    """auditwheel has checked the platform when it made the wheel."""
    assert wheel.name == f"lathe_server-{images.version()}-py3-none-manylinux_2_36_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert f"Requires-Dist: torch=={torch_version()}" in metadata
    brought = {pathlib.PurePath(name).name for name in names if "lathe_server.libs/" in name}
    assert not [name for name in brought if re.match("lib(torch|c10|gomp|c[.]|stdc)", name)]
    assert any(name.startswith("libgrpc-") for name in brought)


def test_installed_programs_do_not_know_where_they_were_built(tmp_path):
    subprocess.run(["cmake", "--install", BIN.parent, "--component", "worker", "--strip", "--prefix",
                    tmp_path], check=True, stdout=subprocess.DEVNULL)
    for program in ("lathe-worker", "lathe-export"):
        dynamic = subprocess.run(["readelf", "-d", tmp_path / "bin" / program], check=True,
                                 capture_output=True, text=True).stdout
        assert "runpath: [$ORIGIN/../lib/lathe]" in dynamic


def test_systemd_accepts_the_units(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    units = sorted((ROOT / "deploy/systemd").glob("*.service"))
    assert len(units) == 4
    for unit in units:
        # The programs are not installed here.
        text = unit.read_text().replace("/usr/bin/lathe", "/bin/true #")
        (tmp_path / unit.name).write_text(text.replace("/bin/true #", "/bin/true "))
    checked = subprocess.run(["systemd-analyze", "verify", *sorted(tmp_path.iterdir())], check=False,
                             capture_output=True, text=True)
    ours = [line for line in checked.stderr.splitlines() if "lathe" in line]
    assert checked.returncode == 0 and not ours, checked.stderr


def test_units_name_only_options_that_exist():
    """Each ExecStart of a unit, with --check-config instead of a start."""
    for unit in sorted((ROOT / "deploy/systemd").glob("*.service")):
        line = next(line for line in unit.read_text().splitlines() if line.startswith("ExecStart="))
        program, *words = line.partition("=")[2].replace("%i", "0-0").split()
        place = words.index("--config")
        del words[place:place + 2]
        told = subprocess.run([BIN / pathlib.Path(program).name, *words, "--help"], check=False,
                              capture_output=True, text=True)
        assert told.returncode == 0, f"{unit.name}: {told.stderr}"
        for option in (word for word in words if word.startswith("--")):
            assert f"{option} " in told.stdout, f"{unit.name}: {option}"


@pytest.fixture(scope="session")
def debs(tmp_path_factory):
    return make_package("deb", tmp_path_factory.mktemp("deb"))


def field(deb, name):
    return subprocess.run(["dpkg-deb", "--field", deb, name], check=True, capture_output=True,
                          text=True).stdout.strip()


@ONLY_FULL
def test_the_debs_install_serve_and_leave_their_data(docker, base_image, debs):
    """In a container of Debian without any package of a compiler or of Lathe's libraries."""
    control, worker = debs
    assert field(control, "Version") == field(worker, "Version") == images.version()
    assert f"lathe (= {images.version()})" in field(worker, "Depends")
    assert "libgrpc++1.51" in field(control, "Depends")
    script = """set -e
      apt-get update -q && apt-get install -q -y --no-install-recommends /debs/*.deb
      id -u lathe; stat -c '%U %a' /var/lib/lathe; ls /usr/lib/systemd/system/lathe*.service
      cp -r /model /served && chmod -R a+rX /served
      setpriv --reuid lathe --regid lathe --clear-groups --inh-caps=-all \
        lathe up --model tiny=/served --data-dir /var/lib/lathe/d --listen 127.0.0.1:0 >/tmp/up 2>&1 &
      for i in $(seq 600); do grep -q '^ready' /tmp/up && break; sleep 0.1; done
      cat /tmp/up; grep '^ready' /tmp/up
      kill $! && wait $!
      apt-get purge -q -y lathe lathe-worker-cpu
      test ! -e /usr/bin/lathe && test ! -e /usr/lib/lathe && test -s /var/lib/lathe/d/admin.key
      echo everything done"""
    folder = debs[0].parent
    done = docker.docker("run", "--rm", "--network", "host", "-v", f"{folder}:/debs:ro", "-v",
                         f"{tiny_model()}:/model:ro", base_image, "/bin/sh", "-c", script, check=False)
    assert done.returncode == 0 and "everything done" in done.stdout, done.stdout + done.stderr
