"""The record of the messages between processes, and what its check notices."""

import shutil

import pytest
import record_protocol
from record_protocol import RECORD, ROOT, Protocol, check, write_record

HELLO = "  string session = 18;\n"


@pytest.fixture
def tree(tmp_path):
    """A copy of the protos, its record, and a function that replaces text of worker.proto."""
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    record = tmp_path / "record"

    def replace(old, new):
        path = tmp_path / "protos/lathe/v1/worker.proto"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    def errors():
        return check(Protocol(tmp_path), record)

    def record_now():
        write_record(Protocol(tmp_path), record)

    record_now()
    return replace, errors, record_now


def test_this_tree_reads_what_the_recorded_release_writes():
    assert check(Protocol(), RECORD) == []


def test_each_alternative_of_the_streams_is_recorded():
    names = [name for path in RECORD.glob("*.txtpb") for name, _ in record_protocol.read_blocks(path)]
    for stream, least in (("WorkerMessage", 14), ("EngineMessage", 20), ("SupervisorMessage", 3)):
        assert names.count(f"lathe.v1.{stream}") >= least, stream


def test_a_new_field_or_alternative_is_no_change_for_the_release_before(tree):
    replace, errors, _ = tree
    replace(HELLO, HELLO + "  string colour = 1000;\n")
    replace("    VersionServed version_served = 15;\n",
            "    VersionServed version_served = 15;\n    HeldVersion colour = 1000;\n")
    assert errors() == []


@pytest.mark.parametrize("new, error", [
    ("  string session = 1000;\n", "Hello.session was `= 18 string` and is `= 1000 string`"),
    ("  bytes session = 18;\n", "was `= 18 string` and is `= 18 bytes`"),
    ("  repeated string session = 18;\n", "is `= 18 repeated string`"),
    ("", "Hello.session is gone"),
    ("  string other = 18;\n", "Hello.session is gone"),
    ("  reserved 18;\n", "Hello.session is gone"),
])
def test_a_changed_field_is_an_error(tree, new, error):
    replace, errors, _ = tree
    replace(HELLO, new)
    assert error in "\n".join(errors())


def test_a_field_may_go_a_release_after_it_was_deprecated_if_its_number_is_reserved(tree):
    replace, errors, record_now = tree
    deprecated = HELLO.replace(";", " [deprecated = true];")
    replace(HELLO, deprecated)
    assert errors() == []
    record_now()
    replace(deprecated, "")
    assert errors()
    replace("  string address = 19;\n", "  string address = 19;\n  reserved 18;\n")
    assert errors() == []


def test_changed_methods_and_enum_values_are_errors(tree):
    replace, errors, _ = tree
    replace("rpc Attach(stream WorkerMessage)", "rpc Attach(WorkerMessage)")
    replace("GROUP_ROLE_SAMPLE = 2", "GROUP_ROLE_SAMPLE = 3")
    text = "\n".join(errors())
    assert "WorkerPool.Attach was" in text
    assert "GroupRole.GROUP_ROLE_SAMPLE was" in text
