"""The steps of tools/release."""

import datetime
import difflib
import hashlib
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

PROTOCOL = "libs/common/protocol.cc"
CHANGELOG = "CHANGELOG.md"
UNRELEASED = "## Unreleased\n"
# Every place of the version, with a pattern around it. The first is the one that programs are made of.
PLACES = [
    ("libs/common/version.h", r'kVersion = "(?P<version>[\d.]+)";'),
    ("deploy/helm/lathe/Chart.yaml", r"^version: (?P<version>[\d.]+)$"),
    ("deploy/helm/lathe/Chart.yaml", r"^appVersion: (?P<version>[\d.]+)$"),
    ("deploy/kubernetes/*.yaml", r"image: ghcr\.io/lathe/[a-z-]+:(?P<version>[\d.]+)$"),
]


class Refused(Exception):
    """The release cannot be made; the text says why."""


class Release:
    def __init__(self, root, version):
        self.root = pathlib.Path(root)
        self.python = self.root / ".venv/bin/python"
        self.version = version
        self.tag = f"v{version}"
        self.old_version = self._old_version()
        self._check()

    def describe(self):
        """What would change, as a diff, and the text of the tag."""
        lines = []
        for path, text in self._new_texts().items():
            before = (self.root / path).read_text(encoding="utf-8").splitlines(keepends=True)
            lines += difflib.unified_diff(before, text.splitlines(keepends=True), f"a/{path}", f"b/{path}")
        return f"{''.join(lines)}\ntag {self.tag}:\n{self._notes()}"

    def make(self, with_packages=True):
        """Works in a tree of its own, with a build folder of its own: edits that somebody makes meanwhile
        stay, and no cached option gets into the release."""
        branch = self.root
        tree = self.root / f"build/release-tree-{self.version}"
        self._git("worktree", "prune")
        self._git("worktree", "add", "--quiet", "--force", "--detach", tree)
        try:
            self.root = tree
            self._commit_version()
            released = self._git("rev-parse", "HEAD").strip()
            notes = self._notes_of_release()
            self._commit_next_protocol()
            made = self._git("rev-parse", "HEAD").strip()
            if with_packages:
                self._git("checkout", "--quiet", "--detach", released)
                self._package(branch)
        finally:
            self.root = branch
            self._git("worktree", "remove", "--force", tree)
        # Refuses, and changes nothing, if the branch or a file of the release was changed meanwhile.
        self._git("merge", "--quiet", "--ff-only", made)
        self._git("tag", "--annotate", "--cleanup=verbatim", "--message",
                  f"Lathe {self.version}\n\n{notes}", self.tag, released)

    def _old_version(self):
        path, pattern = PLACES[0]
        return re.search(pattern, (self.root / path).read_text(encoding="utf-8"))["version"]

    def _check(self):
        if not re.fullmatch(r"\d+\.\d+\.\d+", self.version):
            raise Refused(f"the version is {self.version}, expected MAJOR.MINOR.PATCH")
        if _numbers(self.version) <= _numbers(self.old_version):
            raise Refused(f"the version is {self.version}, and {self.old_version} was released")
        if changed := self._git("status", "--porcelain").splitlines():
            raise Refused(f"the tree has changes, such as {changed[0].strip()}")
        if self._git("tag", "--list", self.tag).strip():
            raise Refused(f"the tag {self.tag} exists")
        if not self._notes().strip():
            raise Refused(f"the part Unreleased of {CHANGELOG} is empty")

    def _git(self, *words):
        return subprocess.run(["git", "-C", self.root, *words], check=True, stdout=subprocess.PIPE,
                              text=True).stdout

    def _notes(self):
        """The part Unreleased of the changelog."""
        text = (self.root / CHANGELOG).read_text(encoding="utf-8")
        if text.count(UNRELEASED) != 1:
            raise Refused(f"{CHANGELOG} has no part {UNRELEASED.strip()}")
        return text.partition(UNRELEASED)[2].partition("\n## ")[0].strip()

    def _notes_of_release(self):
        text = (self.root / CHANGELOG).read_text(encoding="utf-8")
        return text.partition(f"## {self.version}")[2].partition("\n")[2].partition("\n## ")[0].strip()

    def _new_texts(self):
        """By path: the text with the new version."""
        texts = {}
        for pattern_of_path, pattern in PLACES:
            paths = sorted(self.root.glob(pattern_of_path))
            found = 0
            for path in paths:
                name = str(path.relative_to(self.root))
                text = texts.get(name) or path.read_text(encoding="utf-8")
                for match in reversed(list(re.finditer(pattern, text, re.MULTILINE))):
                    if match["version"] != self.old_version:
                        raise Refused(f"{name} has version {match['version']}, expected {self.old_version}")
                    text = text[:match.start("version")] + self.version + text[match.end("version"):]
                    texts[name] = text
                    found += 1
            if not found:
                raise Refused(f"{pattern_of_path} has no line like {pattern}")
        today = datetime.datetime.now(datetime.timezone.utc).date()
        text = (self.root / CHANGELOG).read_text(encoding="utf-8")
        texts[CHANGELOG] = text.replace(UNRELEASED, f"{UNRELEASED}\n## {self.version} ({today})\n")
        return texts

    def _commit_version(self):
        for path, text in self._new_texts().items():
            (self.root / path).write_text(text, encoding="utf-8")
        subprocess.run([self.python, self.root / "tools/record_protocol.py"], check=True, cwd=self.root)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", f"release: {self.version}")

    def _commit_next_protocol(self):
        path = self.root / PROTOCOL
        text, count = re.subn(r"(?m)^#define LATHE_PROTOCOL (\d+)$",
                              lambda match: f"#define LATHE_PROTOCOL {int(match[1]) + 1}",
                              path.read_text(encoding="utf-8"))
        if count != 1:
            raise Refused(f"{PROTOCOL} defines LATHE_PROTOCOL {count} times")
        path.write_text(text, encoding="utf-8")
        self._git("commit", "--quiet", "--all", "--message",
                  f"protocol: begin the release after {self.version}\n\n"
                  "Each release has a protocol number of its own (docs/upgrades.md).")

    def _package(self, branch):
        """Builds the committed tree and packs it. The packages go below `branch`, which has the Python
        environments."""
        out = branch / f"build/release-{self.version}"
        for environment in branch.glob(".venv*"):
            (self.root / environment.name).symlink_to(environment)
        run = lambda *command: subprocess.run([str(word) for word in command], check=True, cwd=self.root)  # noqa: E731
        run("cmake", "--preset", "release")
        run("cmake", "--build", "--preset", "release", "--target", "lathe", "lathe-engine",
            "lathe-gateway", "lathe-worker", "lathe-export")
        run("tools/package", "tree", "deb", "wheel", "--out", out)
        document = contents(self.root, out / "tree", self.version)
        (out / f"lathe-{self.version}.spdx.json").write_text(json.dumps(document, indent=1) + "\n",
                                                             encoding="utf-8")
        write_sums(out)


def _numbers(version):
    return [int(part) for part in version.split(".")]


def write_sums(folder):
    """SHA256SUMS of the files of a folder, for `sha256sum -c`."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
             for path in sorted(folder.iterdir()) if path.is_file() and path.name != "SHA256SUMS"]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def contents(root, tree, version):
    """What the packages are made of (SPDX): the components of the tree, and the Debian packages whose
    libraries the programs load on this machine."""
    spec = importlib.util.spec_from_file_location("sbom", root / "deploy/images/sbom.py")
    sbom = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(sbom)
    parts = {part["name"]: part for folder in sorted(tree.iterdir()) for part in sbom.components(folder)}
    names = _libraries_of(tree)
    packages = [package for package in sbom.debian_packages(pathlib.Path("/"))
                if package["name"] in names]
    epoch = int(subprocess.run(["git", "-C", root, "log", "-1", "--format=%ct"], check=True,
                               stdout=subprocess.PIPE, text=True).stdout)
    return sbom.spdx_document(f"lathe-{version}", epoch, packages, list(parts.values()))


def _libraries_of(tree):
    """Names of the Debian packages of the libraries that the programs load."""
    programs = [path for path in tree.glob("*/usr/bin/lathe*") if path.read_bytes()[:4] == b"\x7fELF"]
    told = subprocess.run(["ldd", *programs], check=True, stdout=subprocess.PIPE, text=True).stdout
    paths = {str(pathlib.Path(path).resolve()) for path in re.findall(r"=> (/\S+)", told)}
    paths |= {path.removeprefix("/usr") for path in paths}
    owned = subprocess.run(["dpkg-query", "--search", *sorted(paths)], check=False,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return {line.partition(":")[0] for line in owned.splitlines()}
