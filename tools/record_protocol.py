#!/usr/bin/env python3
"""Records the messages between Lathe's processes, and checks the protos against the last record.

    tools/record_protocol.py            write tests/compat, when a release is made
    tools/record_protocol.py --check    compare the protos with it, as tools/test does

The record has the messages of the release before. Two releases work together only if each reads
what the other writes (docs/upgrades.md), so these rules hold between two records:

  * Each recorded field, enum value and method still exists, with the same number and type.
  * A field may go if the record says `deprecated` and its number is reserved now.
  * Each recorded message parses.

Files: fields.txt has one line for each field, enum value and method. SERVICE.txtpb has messages
with a value in every field, in protobuf's text format; a line `# message NAME` begins each.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.descriptor import FieldDescriptor

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "compat"
PROTOS = "protos/lathe/v1"
PACKAGE = "lathe.v1."
# Messages that the engine keeps in its store.
STORE = "Store"
TYPES = {number: name.removeprefix("TYPE_").lower()
         for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()}
BEGIN = "# message "
# Elements of messages that contain themselves stay empty from this depth on.
MAX_DEPTH = 12


class Protocol:
    """The protos of a tree."""

    def __init__(self, root=ROOT):
        with tempfile.NamedTemporaryFile() as out:
            subprocess.run(
                ["protoc", f"-I{root}", "--include_imports", f"--descriptor_set_out={out.name}",
                 *sorted(str(path.relative_to(root)) for path in (root / PROTOS).glob("*.proto"))],
                check=True, cwd=root)
            files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())
        self.files = [file for file in files.file if file.package + "." == PACKAGE]
        self.pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            self.pool.Add(file)

    def message_class(self, name):
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(name))

    def messages(self):
        """(full name, DescriptorProto) of all messages."""
        def walk(prefix, messages):
            for message in messages:
                yield prefix + message.name, message
                yield from walk(f"{prefix}{message.name}.", message.nested_type)
        for file in self.files:
            yield from walk(PACKAGE, file.message_type)

    def lines(self):
        """The lines of fields.txt, without its comments."""
        found = []
        for name, message in self.messages():
            for field in message.field:
                kind = field.type_name.lstrip(".") or TYPES[field.type]
                if field.label == field.LABEL_REPEATED:
                    kind = f"repeated {kind}"
                if field.proto3_optional:
                    kind = f"optional {kind}"
                elif field.HasField("oneof_index"):
                    kind += f" of {message.oneof_decl[field.oneof_index].name}"
                if field.options.deprecated:
                    kind += DEPRECATED
                found.append(f"{name}.{field.name} = {field.number} {kind}")
            for enum in message.enum_type:
                found += [f"{name}.{enum.name}.{value.name} = {value.number} value"
                          for value in enum.value]
        for file in self.files:
            for enum in file.enum_type:
                found += [f"{PACKAGE}{enum.name}.{value.name} = {value.number} value"
                          for value in enum.value]
            for service in file.service:
                for method in service.method:
                    sent, answered = (
                        ("stream " if is_stream else "") + kind.lstrip(".")
                        for kind, is_stream in ((method.input_type, method.client_streaming),
                                                (method.output_type, method.server_streaming)))
                    found.append(f"{PACKAGE}{service.name}.{method.name} ({sent}) returns ({answered})")
        return sorted(found)

    def reserved(self, name):
        """The reserved numbers of a message."""
        message = dict(self.messages()).get(name)
        return [] if message is None else [range(one.start, one.end) for one in message.reserved_range]

    def groups(self):
        """Names of messages by the file that records them."""
        groups = {}
        for file in self.files:
            for service in file.service:
                kinds = [kind.lstrip(".") for method in service.method
                         for kind in (method.input_type, method.output_type)]
                groups[service.name] = list(dict.fromkeys(kinds))
        groups[STORE] = [PACKAGE + message.name for file in self.files if file.name.endswith("/store.proto")
                         for message in file.message_type]
        # A message with alternatives is recorded once for each, wherever it stands.
        recorded = {name for names in groups.values() for name in names}
        groups["Alternatives"] = [name for name, message in self.messages()
                                  if cases(self.pool.FindMessageTypeByName(name)) > 1
                                  and name not in recorded]
        return {name: names for name, names in groups.items() if names}


DEPRECATED = " deprecated"


def cases(descriptor):
    """The largest number of alternatives in a oneof of the message itself."""
    return max((len(oneof.fields) for oneof in descriptor.oneofs), default=1)


def value_of(field, case, depth):
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return None
    if field.type == FieldDescriptor.TYPE_ENUM:
        return field.enum_type.values[-1].number
    if field.type == FieldDescriptor.TYPE_STRING:
        return field.name
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"\x01\x02\x03\x04"
    if field.type == FieldDescriptor.TYPE_BOOL:
        return True
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return field.number + 0.5
    return field.number


def is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def fill(message, case=0, depth=0):
    """Sets every field; of each oneof, the alternative `case` modulo their number."""
    chosen = {oneof.fields[case % len(oneof.fields)].name for oneof in message.DESCRIPTOR.oneofs}
    for field in message.DESCRIPTOR.fields:
        if field.containing_oneof is not None and field.name not in chosen:
            continue
        if is_map(field):
            value = field.message_type.fields_by_name["value"]
            entries = getattr(message, field.name)
            if value.type == FieldDescriptor.TYPE_MESSAGE:
                fill(entries["key"], case, depth + 1)
            else:
                entries["key"] = value_of(value, case, depth)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth == MAX_DEPTH:
                continue
            inner = getattr(message, field.name)
            if field.is_repeated:
                fill(inner.add(), case, depth + 1)
            else:
                inner.SetInParent()
                fill(inner, case, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).append(value_of(field, case, depth))
        else:
            setattr(message, field.name, value_of(field, case, depth))
    return message


def write_record(protocol, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.txtpb"):
        old.unlink()
    (folder / "fields.txt").write_text(
        "# Written by tools/record_protocol.py: fields, enum values and methods.\n"
        + "".join(line + "\n" for line in protocol.lines()))
    for group, names in protocol.groups().items():
        blocks = []
        for name in names:
            make = protocol.message_class(name)
            for case in range(cases(make.DESCRIPTOR)):
                blocks.append(f"{BEGIN}{name}\n{text_format.MessageToString(fill(make(), case))}")
        (folder / f"{group}.txtpb").write_text("".join(blocks))


def read_blocks(path):
    """(name, text) of each message of a file."""
    for block in path.read_text().split(BEGIN)[1:]:
        name, _, text = block.partition("\n")
        yield name, text


def split(line):
    """What a line names, how it is encoded, and whether it was deprecated."""
    name, _, encoding = line.removesuffix(DEPRECATED).partition(" ")
    return name, encoding, line.endswith(DEPRECATED)


def check_fields(protocol, recorded):
    """What a release of the recorded lines would misread."""
    errors = []
    current = {name: encoding for name, encoding, _ in map(split, protocol.lines())}
    for line in recorded:
        name, encoding, was_deprecated = split(line)
        now = current.get(name)
        if now == encoding:
            continue
        if now is not None:
            errors.append(f"{name} was `{encoding}` and is `{now}`: add a field with a new number instead")
            continue
        number = int(encoding.split()[1]) if encoding.startswith("= ") else 0
        is_reserved = any(number in one for one in protocol.reserved(name.rpartition(".")[0]))
        if was_deprecated and is_reserved:
            continue
        errors.append(f"{name} is gone: mark it deprecated in one release, and reserve its number in the next")
    return errors


def check_messages(protocol, folder):
    errors = []
    for path in sorted(folder.glob("*.txtpb")):
        for name, text in read_blocks(path):
            try:
                text_format.Parse(text, protocol.message_class(name)(), allow_unknown_field=True)
            except (KeyError, text_format.ParseError) as error:
                errors.append(f"{path.name}: {name} does not parse: {error}")
    return errors


def check(protocol, folder):
    recorded = [line for line in (folder / "fields.txt").read_text().splitlines()
                if not line.startswith("#")]
    return check_fields(protocol, recorded) + check_messages(protocol, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    protocol = Protocol()
    # A first record has nothing before it.
    errors = check(protocol, RECORD) if (RECORD / "fields.txt").exists() else []
    for error in errors:
        print(f"record_protocol: {error}", file=sys.stderr)
    if not errors and not options.check:
        write_record(protocol, RECORD)
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
