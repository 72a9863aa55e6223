"""Plants each kind of violation in a small tree and expects check_layers to name it."""

import pathlib
import subprocess
import sys

import pytest
from planted_tree import run_check

CHECK = pathlib.Path(__file__).with_name("check_layers.py")


def check(root, files):
    return run_check(CHECK, root, files)


VIOLATIONS = {
    "a service includes another": (
        {"services/engine/a.cc": '\n#include "services/worker/ops/commands.h"\n'},
        "services/engine/a.cc:2: services never include each other: engine includes worker"),
    "a library includes a service": (
        {"libs/common/a.h": '#include "services/engine/a.h"\n'},
        "libs/common/a.h:1: libs/ must not include services/"),
    "torch in a library": (
        {"libs/common/a.cc": "#include <ATen/ATen.h>\n"}, "libs/common/a.cc:1: torch has no home"),
    "torch in the worker's rpc": (
        {"services/worker/rpc/a.cc": "#include <c10/util/Exception.h>\n"},
        "services/worker/rpc/a.cc:1: torch has no home"),
    "torch in the border": (
        {"services/worker/ops/commands.h": "#include <ATen/ATen.h>\n"},
        "services/worker/ops/commands.h:1: torch has no home"),
    "gRPC in the ledger": (
        {"services/engine/ledger/a.h": "#include <grpcpp/server.h>\n"},
        "services/engine/ledger/a.h:1: gRPC has no home"),
    "protobuf in the scheduler": (
        {"services/engine/scheduler/a.h": '#include "protos/lathe/v1/types.pb.h"\n'},
        "services/engine/scheduler/a.h:1: protobuf has no home"),
    "SQL outside the store": (
        {"services/engine/core/a.cc": "#include <SQLiteCpp/SQLiteCpp.h>\n"},
        "services/engine/core/a.cc:1: SQL has no home"),
    "libpq beside libpqxx": (
        {"services/engine/store/postgres/a.cc": "#include <libpq-fe.h>\n"},
        "services/engine/store/postgres/a.cc:1: libpq has no home"),
    "JSON in a route": (
        {"services/api-gateway/routes/a.cc": "#include <nlohmann/json.hpp>\n"},
        "services/api-gateway/routes/a.cc:1: nlohmann-json has no home"),
    "HTTP in the engine": (
        {"services/engine/rpc/a.cc": "#include <boost/beast.hpp>\n"},
        "services/engine/rpc/a.cc:1: Boost.Asio has no home"),
    "torch and protobuf through headers": (
        {"services/worker/layers/a.h": "#include <ATen/ATen.h>\n",
         "services/worker/rpc/b.h": '#include "protos/lathe/v1/worker.pb.h"\n',
         "services/worker/rpc/a.cc": '#include "services/worker/rpc/b.h"\n'
                                     '#include "services/worker/layers/a.h"\n'},
        "services/worker/rpc/a.cc:1: sees torch (services/worker/layers/a.h:1) and protobuf "
        "(services/worker/rpc/b.h:1)"),
    "a cycle of folders": (
        {"services/worker/layers/a.h": '#include "services/worker/models/b.h"\n',
         "services/worker/models/b.h": '#include "services/worker/spec/c.h"\n',
         "services/worker/spec/c.h": '#include "services/worker/layers/a.h"\n'},
        "services/worker/layers/a.h:1: folders form a cycle: services/worker/layers/a.h includes "
        "services/worker/models/b.h, services/worker/models/b.h includes services/worker/spec/c.h, "
        "services/worker/spec/c.h includes services/worker/layers/a.h"),
    "a cycle inside a module": (
        {"services/worker/executor/saves/a.h": '#include "services/worker/executor/versions/b.h"\n',
         "services/worker/executor/versions/b.h": '#include "services/worker/executor/saves/c.h"\n',
         "services/worker/executor/saves/c.h": "\n"},
        "services/worker/executor/saves/a.h:1: folders form a cycle: "),
    "a cycle of files in the core": (
        {"services/engine/core/models/a.h": "\n",
         "services/engine/core/models/a.cc": '#include "services/engine/core/models/a.h"\n\n'
                                             '#include "services/engine/core/models/b.h"\n',
         "services/engine/core/models/b.h": "\n",
         "services/engine/core/models/b.cc": '#include "services/engine/core/models/a.h"\n'},
        "services/engine/core/models/a.cc:3: files form a cycle: services/engine/core/models/a.cc "
        "includes services/engine/core/models/b.h, services/engine/core/models/b.cc includes "
        "services/engine/core/models/a.h"),
    "a subject that includes the core": (
        {"services/engine/core/core.h": "\n",
         "services/engine/core/core.cc": '#include "services/engine/core/state/a.h"\n',
         "services/engine/core/state/a.h": '#include "services/engine/core/core.h"\n'},
        "services/engine/core/core.cc:1: files form a cycle: "),
    "a cycle of the core's folders": (
        {"services/engine/core/models/a.cc": '#include "services/engine/core/groups/b.h"\n',
         "services/engine/core/models/c.h": "\n",
         "services/engine/core/groups/b.h": '#include "services/engine/core/models/c.h"\n'},
        "services/engine/core/groups/b.h:1: folders form a cycle: services/engine/core/groups/b.h "
        "includes services/engine/core/models/c.h, services/engine/core/models/a.cc includes "
        "services/engine/core/groups/b.h"),
    "autograd": (
        {"services/worker/training/a.cc": "void F(at::Tensor x) { x.backward({}); }\n"},
        "services/worker/training/a.cc:1: .backward( outside tests"),
    "requires_grad": (
        {"services/worker/lora/a.cc": "\n\nx.set_requires_grad(true);\n"},
        "services/worker/lora/a.cc:3: requires_grad outside tests"),
    "a hash container in the core": (
        {"services/engine/core/a.h": "std::unordered_map<int, int> models_;\n"},
        "services/engine/core/a.h:1: unordered_map where decisions are made"),
    "a flat hash container in the batcher": (
        {"services/engine/batcher/a.h": "absl::flat_hash_set<int> rows_;\n"},
        "services/engine/batcher/a.h:1: flat_hash_set where decisions are made"),
    "a duration from the wall clock": (
        {"services/worker/executor/a.cc": "\nspent = absl::Now() - began;\n"},
        "services/worker/executor/a.cc:2: a duration from absl::Now()"),
    "a wait until a time of the wall clock": (
        {"tests/bench/a.cc": "Wait(deadline - absl::Now());\n"},
        "tests/bench/a.cc:1: a duration from absl::Now()"),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_named_with_its_line(name, tmp_path):
    files, message = VIOLATIONS[name]
    result = check(tmp_path, files)
    assert message in result.stdout
    assert result.returncode == 1


def test_what_the_rules_allow_passes(tmp_path):
    result = check(tmp_path, {
        "libs/common/json/json.h": "#include <nlohmann/json.hpp>\n",
        "services/worker/layers/a.cc": "#include <ATen/ATen.h>\n// no requires_grad here\n",
        "services/worker/layers/a_test.cc": "x.requires_grad_(true); y.backward();\n",
        "services/worker/rpc/a.cc": '#include "protos/lathe/v1/worker.pb.h"\n'
                                    '#include "services/worker/ops/commands.h"\n',
        "services/worker/ops/commands.h": "#include <string>\n",
        "services/engine/core/a.h": "absl::flat_hash_map<int, int> ids_;  // lookup only\n",
        "services/engine/runtime/a.h": "std::unordered_map<int, int> calls_;\n",
        "services/engine/store/sqlite/a.cc": "#include <sqlite3.h>\n",
        "services/engine/store/a.cc": "old = created < absl::Now() + absl::Hours(-1);\n",
    })
    assert result.returncode == 0, result.stdout
    assert "9 files, 0 violations" in result.stdout


def test_this_tree_passes():
    result = subprocess.run([sys.executable, str(CHECK)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
