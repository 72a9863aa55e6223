"""tools/release in a repository of its own, without a build."""

import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from packaging_steps import release

ROOT = pathlib.Path(__file__).resolve().parents[1]
COPIED = ["CHANGELOG.md", "deploy", "libs/common/protocol.cc", "libs/common/version.h"]


def git(root, *words):
    return subprocess.run(["git", "-C", root, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def root(tmp_path):
    for name in COPIED:
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile)(ROOT / name, target)
    # Stands for the recorder, which needs the protos.
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/record_protocol.py").write_text("open('recorded', 'w').close()\n")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    (tmp_path / ".gitignore").write_text("/.venv\n")
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "config", "user.name", "Tester")
    git(tmp_path, "config", "user.email", "tester@localhost")
    commit(tmp_path)
    return tmp_path


def commit(root):
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "state")


def number_of(root, define="LATHE_PROTOCOL"):
    text = (root / "libs/common/protocol.cc").read_text()
    return int(text.partition(f"#define {define} ")[2].split()[0])


def test_a_release_has_one_version_a_changelog_and_a_tag(root):
    protocol = number_of(root)
    made = release.Release(root, "77.1.2")
    made.make(with_packages=False)
    old = made.old_version
    git(root, "checkout", "--quiet", "v77.1.2")
    for place, pattern in release.PLACES:
        for path in root.glob(place):
            assert old not in [match for line in path.read_text().splitlines()
                               for match in re.findall(pattern, line)], path
    assert 'kVersion = "77.1.2"' in (root / "libs/common/version.h").read_text()
    assert (root / "recorded").exists() and number_of(root) == protocol
    changelog = (root / "CHANGELOG.md").read_text()
    unreleased, rest = changelog.partition("## Unreleased\n")[2].split("\n## 77.1.2 (20", 1)
    assert not unreleased.strip()
    notes = git(root, "tag", "--list", "--format=%(contents)", "v77.1.2")
    assert notes.startswith("Lathe 77.1.2\n") and notes.splitlines()[2] in rest
    git(root, "checkout", "--quiet", "main")
    assert number_of(root) == protocol + 1
    assert not git(root, "status", "--porcelain")
    # Nothing is unreleased now.
    with pytest.raises(release.Refused, match="is empty"):
        release.Release(root, "77.1.3")


def test_a_dry_run_changes_nothing(root):
    before = git(root, "rev-parse", "HEAD")
    shown = release.Release(root, "77.1.2").describe()
    assert '+inline constexpr std::string_view kVersion = "77.1.2";' in shown
    assert "+appVersion: 77.1.2" in shown and "+## 77.1.2 (20" in shown
    assert git(root, "rev-parse", "HEAD") == before and not git(root, "status", "--porcelain")


@pytest.mark.parametrize("version, reason", [
    ("1.2", "expected MAJOR.MINOR.PATCH"), ("v7.0.0", "expected MAJOR.MINOR.PATCH"), ("0.0.1", "was released")])
def test_wrong_versions_are_refused(root, version, reason):
    with pytest.raises(release.Refused, match=reason):
        release.Release(root, version)


def test_a_changed_tree_an_old_tag_and_two_versions_are_refused(root):
    (root / "stray").touch()
    with pytest.raises(release.Refused, match="the tree has changes, such as .. stray"):
        release.Release(root, "77.1.2")
    (root / "stray").unlink()
    git(root, "tag", "v77.1.2")
    with pytest.raises(release.Refused, match="tag v77.1.2 exists"):
        release.Release(root, "77.1.2")
    chart = root / "deploy/helm/lathe/Chart.yaml"
    chart.write_text(chart.read_text().replace("\nappVersion: ", "\nappVersion: 9"))
    commit(root)
    with pytest.raises(release.Refused, match="Chart.yaml has version 9"):
        release.Release(root, "77.1.3").describe()


def test_a_package_that_fails_takes_the_release_back(root, monkeypatch):
    before = git(root, "rev-parse", "HEAD")
    monkeypatch.setattr(release.Release, "_package", lambda self, branch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        release.Release(root, "77.1.2").make()
    assert git(root, "rev-parse", "HEAD") == before and not git(root, "status", "--porcelain")
    assert not git(root, "tag") and git(root, "worktree", "list").count("\n") == 1


def package_and(edit):
    """Stands for a build, during which somebody edits the tree. It is of the release's own commit, in a
    fresh folder."""
    def package(self, branch):
        assert self.root != branch and number_of(self.root) == number_of(branch)
        assert not (self.root / "build").exists()
        assert git(self.root, "log", "-1", "--format=%s") == "release: 77.1.2\n"
        edit(branch)
    return package


def test_edits_during_the_build_stay(root, monkeypatch):
    def edit(branch):
        (branch / "libs/common/more.h").write_text("mine\n")
        (branch / "build").mkdir(exist_ok=True)
    monkeypatch.setattr(release.Release, "_package", package_and(edit))
    release.Release(root, "77.1.2").make()
    assert (root / "libs/common/more.h").read_text() == "mine\n"
    assert 'kVersion = "77.1.2"' in (root / "libs/common/version.h").read_text()
    assert git(root, "tag") == "v77.1.2\n"


def test_edits_of_the_same_files_stay_and_there_is_no_release(root, monkeypatch):
    before = git(root, "rev-parse", "HEAD")
    changelog = root / "CHANGELOG.md"
    monkeypatch.setattr(release.Release, "_package",
                        package_and(lambda branch: changelog.write_text("mine\n")))
    with pytest.raises(subprocess.CalledProcessError):
        release.Release(root, "77.1.2").make()
    assert changelog.read_text() == "mine\n" and git(root, "rev-parse", "HEAD") == before
    assert not git(root, "tag")


def test_sums_are_of_every_file(tmp_path):
    (tmp_path / "one.deb").write_bytes(b"1")
    (tmp_path / "two.whl").write_bytes(b"2")
    (tmp_path / "tree").mkdir()
    release.write_sums(tmp_path)
    assert (tmp_path / "SHA256SUMS").read_text() == "".join(
        f"{hashlib.sha256(text).hexdigest()}  {name}\n" for text, name in ((b"1", "one.deb"), (b"2", "two.whl")))


def test_the_list_of_contents_has_components_and_libraries(tmp_path):
    tree = tmp_path / "tree/control/usr"
    (tree / "bin").mkdir(parents=True)
    shutil.copyfile("/bin/ls", tree / "bin/lathe")
    (tree / "bin/lathe-entry").write_text("#!/bin/sh\n")
    parts = tree / "share/doc/lathe/components"
    parts.mkdir(parents=True)
    (parts / "control.json").write_text(json.dumps(
        {"name": "lathe-control", "version": "7", "license": "Apache-2.0", "files": []}))
    document = release.contents(ROOT, tmp_path / "tree", "7")
    names = {package["name"] for package in document["packages"]}
    assert {"lathe-control", "libc6"} <= names and document["name"] == "lathe-7"
