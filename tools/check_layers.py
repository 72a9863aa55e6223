#!/usr/bin/env python3
"""Checks who may include what, and a few things no file may contain.

Includes start at the root of the tree, so CMake cannot see a forbidden one; this does. The rules:

  * arrows point down: services -> libs -> protos, and services never include each other;
  * folders form no cycle, neither the modules (services/engine/core with its subfolders) nor the
    subfolders of one module among themselves;
  * where decisions are made, files form no cycle either, a header and its source taken as one;
  * every outside library has its homes (HOMES below);
  * no translation unit sees both torch and protobuf or gRPC, through any chain of our headers;
  * no autograd outside tests: requires_grad, .backward( and torch/csrc/autograd;
  * no hash container where decisions are made, unless its line says `// lookup only`: iteration
    order differs between processes, and a replay must not;
  * no duration from the wall clock, which may be set: SteadyNow() measures, absl::Now() dates.

Prints each violation as file:line and ends with 1 if there is one.
"""

import argparse
import dataclasses
import pathlib
import re
import sys

SOURCE_SUFFIXES = {".h", ".cc", ".cuh", ".cu"}
SOURCE_FOLDERS = ("libs", "services", "tools", "tests")
SHIPPED = ("libs/", "services/", "tools/lathe/")

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
LINE_COMMENT = re.compile(r"//.*$")

# Library of an include path. The first matching pattern decides.
LIBRARIES = {
    "torch": r"(ATen|c10|torch|caffe2)/",
    "NCCL": r"nccl\.h$",
    "gRPC": r"(grpc|grpcpp|grpc\+\+)/|.*\.grpc\.pb\.h$",
    "protobuf": r"google/protobuf/|.*\.pb\.h$",
    "SQL": r"SQLiteCpp/|sqlite3\.h$|pqxx/",
    "libpq": r"libpq-fe\.h$",
    "nlohmann-json": r"nlohmann/",
    "simdjson": r"simdjson",
    "Boost.Asio": r"boost/(asio|beast)[/.]",
    "yaml-cpp": r"yaml-cpp/",
    "spdlog": r"(spdlog|fmt)/",
    "prometheus": r"prometheus/",
    "zstd": r"zstd",
    "libsodium": r"sodium",
    "libarchive": r"archive(_entry)?\.h$",
    "PCRE2": r"pcre2\.h$",
    "ICU": r"unicode/",
    "libcurl": r"curl/",
    "cjose": r"cjose/",
    "ncurses": r"n?curses(w/.*)?\.h$|term\.h$",
}

HOMES = {
    "torch": [r"services/worker/(?!rpc/|ops/|main\.cc$)"],
    "NCCL": [r"services/worker/collectives/transports/nccl_collectives\.cc$"],
    "gRPC": [
        r"libs/common/rpc/",
        r"services/[^/]+/(rpc|engine_client|dispatcher)/",
        r"services/api-gateway/(events|grpc)/",
        r"services/api-gateway/testing/",  # a fake engine for tests
        r"tools/lathe/",
    ],
    "protobuf": [
        r"libs/common/rpc/",
        r"services/api-gateway/",
        r"services/[^/]+/(rpc|dispatcher)/",
        r"services/engine/core/state/(lora_proto|plan)\.cc$",  # plans are stored as messages
        r"services/engine/runtime/result_encoder\.cc$",  # results are stored as they are served
        r"services/engine/runtime/result_points(_test)?\.cc$",  # …and their numbers are read from it
        r"services/engine/runtime/replay_divergence(_test)?\.cc$",  # …and compared as such
        r"tools/lathe/",
    ],
    "SQL": [r"services/engine/store/"],
    # Others use libpqxx.
    "libpq": [r"services/engine/store/postgres/(connection_policy|group_commit)\.cc$"],
    "nlohmann-json": [
        r"libs/common/json/",
        r"services/api-gateway/json/",
        r"services/api-gateway/http/error_response(_test)?\.cc$",
        r"services/worker/(checkpoint|export|formats|models|testing|tokenizer)/",  # the files they read and write are JSON
    ],
    "simdjson": [r"services/api-gateway/json/"],
    "Boost.Asio": [
        r"services/api-gateway/((auth|events|grpc|http|routes|engine_client|testing)/|(main|gateway)\.(h|cc)$)",
        r"libs/common/metrics/metrics_server(_test)?\.cc$",
    ],
    "yaml-cpp": [r"libs/common/config/"],
    "spdlog": [r"libs/common/logging/"],
    "prometheus": [r"libs/common/metrics/", r"services/[^/]+/metrics(_test\.cc|\.h|\.cc)$"],
    "zstd": [r"services/api-gateway/(http|testing)/"],
    "libsodium": [r"libs/common/age/", r"services/api-gateway/auth/oidc/login_state\.cc$"],
    "libarchive": [r"services/api-gateway/routes/"],
    "PCRE2": [r"services/worker/tokenizer/"],
    "ICU": [r"services/worker/tokenizer/"],
    # Others use HttpCall. A bucket's client runs several signed transfers on one thread.
    "libcurl": [r"libs/common/http_client/", r"libs/common/object_store/s3_client\.cc$"],
    "cjose": [r"services/api-gateway/auth/oidc/"],
    "ncurses": [r"tools/lathe/terminal/"],
}

AUTOGRAD = ("requires_grad", ".backward(", "torch/csrc/autograd")
DECIDING_FOLDERS = re.compile(r"services/engine/(core|ledger|scheduler|batcher)/")
HASH_CONTAINER = re.compile(r"\b((flat|node)_hash_(map|set)|unordered_(multi)?(map|set))\b")
LOOKUP_ONLY = "// lookup only"
WALL_DURATION = re.compile(r"-\s*absl::Now\(\)|absl::Now\(\)\s*-")


@dataclasses.dataclass
class Include:
    line: int
    path: str

    @property
    def library(self) -> str | None:
        return next((name for name, p in LIBRARIES.items() if re.match(p, self.path)), None)


@dataclasses.dataclass
class Source:
    path: str
    lines: list[str]

    @property
    def is_test(self) -> bool:
        return self.path.startswith("tests/") or re.search(r"_test\.(cc|cu)$", self.path) is not None

    def includes(self) -> list[Include]:
        found = ((number, INCLUDE.match(line)) for number, line in enumerate(self.lines, start=1))
        return [Include(number, match[1]) for number, match in found if match]


def read_sources(root: pathlib.Path) -> dict[str, Source]:
    sources = {}
    for folder in SOURCE_FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in SOURCE_SUFFIXES and file.is_file():
                path = file.relative_to(root).as_posix()
                sources[path] = Source(path, file.read_text(encoding="utf-8").splitlines())
    return sources


def check_arrow(source: Source, include: Include) -> str | None:
    """Says what is wrong with an include of our own tree, or None."""
    target = re.match(r"(libs|services|tools|tests)/(?:([^/]+)/)?", include.path)
    if not target or source.path.startswith(("tools/", "tests/")):
        return None
    layer, service = target[1], target[2]
    own_layer, own_service = source.path.split("/")[:2]
    if layer in ("tools", "tests") and not source.is_test:
        return f"{own_layer}/ must not include {layer}/"
    if own_layer == "libs" and layer == "services":
        return "libs/ must not include services/"
    if own_layer == "services" and layer == "services" and service != own_service:
        return f"services never include each other: {own_service} includes {service}"
    return None


def check_home(source: Source, include: Include) -> str | None:
    library = include.library
    if library is None or source.path.startswith("tests/"):
        return None
    if any(re.match(home, source.path) for home in HOMES[library]):
        return None
    return f"{library} has no home here ({include.path})"


def check_includes(source: Source):
    for include in source.includes():
        for message in (check_arrow(source, include), check_home(source, include)):
            if message:
                yield include.line, message


def check_torch_and_protobuf(sources: dict[str, Source]):
    """Follows our own headers from each .cc, the unit a compiler sees."""
    for source in sources.values():
        if not source.path.endswith((".cc", ".cu")):
            continue
        seen_via = libraries_seen(source, sources)
        torch = seen_via.get("torch")
        for other in ("protobuf", "gRPC"):
            if torch and other in seen_via:
                where, line = seen_via[other]
                yield source.path, 1, (
                    f"sees torch ({torch[0]}:{torch[1]}) and {other} ({where}:{line})"
                )
                break


def libraries_seen(source: Source, sources: dict[str, Source]) -> dict[str, tuple[str, int]]:
    """Library -> the file and line that bring it in, directly or through our headers."""
    seen, visited, queue = {}, {source.path}, [source]
    while queue:
        current = queue.pop()
        for include in current.includes():
            if include.library:
                seen.setdefault(include.library, (current.path, include.line))
            if include.path in sources and include.path not in visited:
                visited.add(include.path)
                queue.append(sources[include.path])
    return seen


def check_contents(source: Source):
    for number, line in enumerate(source.lines, start=1):
        code = LINE_COMMENT.sub("", line)
        if not source.is_test:
            for word in AUTOGRAD:
                if word in code:
                    yield number, f"{word} outside tests: every pass is an explicit forward and backward"
        if WALL_DURATION.search(code):
            yield number, "a duration from absl::Now(), which may jump; use SteadyNow()"
        if DECIDING_FOLDERS.match(source.path) and not INCLUDE.match(line):
            container = HASH_CONTAINER.search(code)
            if container and LOOKUP_ONLY not in line:
                yield number, (
                    f"{container[1]} where decisions are made; use an ordered container, "
                    f"or say `{LOOKUP_ONLY}` if it is never iterated"
                )


def module_of(folder: str) -> str:
    """services/engine/store/sql -> services/engine/store; tools/lathe/launch -> tools/lathe"""
    return "/".join(folder.split("/")[: 3 if folder.startswith(("services/", "libs/")) else 2])


def folder_graph(sources: dict[str, Source]) -> dict[str, dict[str, tuple[str, int, str]]]:
    """By folder: the other folders it includes, with path, line and target of the first include."""
    graph: dict[str, dict[str, tuple[str, int, str]]] = {}
    for source in sources.values():
        folder = source.path.rpartition("/")[0]
        if source.is_test or not source.path.startswith(SHIPPED) or "/testing" in folder:
            continue
        for include in source.includes():
            target = include.path.rpartition("/")[0]
            if include.path in sources and target != folder and "/testing" not in target:
                arrow = (source.path, include.line, include.path)
                graph.setdefault(folder, {}).setdefault(target, arrow)
    return graph


def find_cycle(graph: dict[str, dict[str, tuple[str, int, str]]]) -> list[str]:
    """The nodes of one cycle in order, or an empty list."""
    finished: set[str] = set()
    path: list[str] = []

    def visit(node: str) -> list[str]:
        if node in path:
            return path[path.index(node):]
        if node in finished:
            return []
        path.append(node)
        for target in sorted(graph.get(node, {})):
            if cycle := visit(target):
                return cycle
        path.pop()
        finished.add(node)
        return []

    for node in sorted(graph):
        if cycle := visit(node):
            return cycle
    return []


def deciding_file_graph(sources: dict[str, Source]) -> dict[str, dict[str, tuple[str, int, str]]]:
    """As folder_graph, by header with its source, of the folders in which decisions are made."""
    graph: dict[str, dict[str, tuple[str, int, str]]] = {}
    for source in sources.values():
        if source.is_test or "/testing/" in source.path or not DECIDING_FOLDERS.match(source.path):
            continue
        file = source.path.rpartition(".")[0]
        for include in source.includes():
            target = include.path.rpartition(".")[0]
            if include.path in sources and target != file:
                graph.setdefault(file, {}).setdefault(target, (source.path, include.line, include.path))
    return graph


def check_cycles(sources: dict[str, Source]):
    """A parent may include its subfolders and they their parent: they are one module."""
    modules: dict[str, dict[str, tuple[str, int, str]]] = {}
    subfolders: dict[str, dict[str, tuple[str, int, str]]] = {}
    for folder, targets in folder_graph(sources).items():
        for target, arrow in targets.items():
            if module_of(folder) != module_of(target):
                modules.setdefault(module_of(folder), {}).setdefault(module_of(target), arrow)
            elif not (folder + "/").startswith(target + "/") and not (target + "/").startswith(folder + "/"):
                subfolders.setdefault(folder, {})[target] = arrow
    files = deciding_file_graph(sources)
    for what, graph in (("folders", modules), ("folders", subfolders), ("files", files)):
        if cycle := find_cycle(graph):
            arrows = [graph[a][b] for a, b in zip(cycle, cycle[1:] + cycle[:1])]
            path, line, _ = arrows[0]
            yield path, line, f"{what} form a cycle: " + ", ".join(
                f"{source} includes {target}" for source, _, target in arrows)


def find_violations(root: pathlib.Path) -> list[str]:
    sources = read_sources(root)
    found = []
    for source in sources.values():
        for line, message in (*check_includes(source), *check_contents(source)):
            found.append((source.path, line, message))
    found.extend(check_torch_and_protobuf(sources))
    found.extend(check_cycles(sources))
    return [f"{path}:{line}: {message}" for path, line, message in sorted(found)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default_root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=default_root, help="tree to check")
    root = parser.parse_args().root
    violations = find_violations(root)
    print(*violations, sep="\n", end="\n" if violations else "")
    print(f"check_layers: {len(read_sources(root))} files, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
