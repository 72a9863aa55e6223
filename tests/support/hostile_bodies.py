"""Protobuf bodies of forward_backward that take much more memory parsed than on the wire."""

MIB = 1 << 20


def varint(number):
    result = b""
    while number > 0x7f:
        result += bytes([number & 0x7f | 0x80])
        number >>= 7
    return result + bytes([number])


def nested(number, content):
    """A field of a message that has a length."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


IDS = nested(1, b"absent") + b"\x10\x01"
DATUM, CHUNK, TENSORS, SPANS = 3, 1, 2, 3
MANY = 4 << 20


def distinct_entries(count):
    return b"".join(nested(TENSORS, nested(1, b"%07d" % i)) for i in range(count))


def spread(content, count):
    """As many datums of this content."""
    return nested(DATUM, content) * count


HOSTILE = {
    "datums": nested(DATUM, b"") * MANY,
    "datums within their bound": nested(DATUM, nested(CHUNK, nested(1, nested(1, b"abcd")))) * 65_536,
    "chunks": nested(DATUM, nested(CHUNK, b"") * MANY),
    "chunks of text": nested(DATUM, nested(CHUNK, nested(1, b"")) * MANY),
    "chunks within their bound": spread(nested(CHUNK, b"") * 60_000, 10),
    "chunks of text within their bound": spread(nested(CHUNK, nested(1, b"")) * 30_000, 10),
    "spans": nested(DATUM, nested(SPANS, b"") * MANY),
    "spans within their bound": spread(nested(SPANS, nested(1, b"")) * 30_000, 10),
    "named spans within their bound": spread(nested(SPANS, nested(1, nested(1, b"a"))) * 30_000, 9),
    "tensors": nested(DATUM, distinct_entries(1_000_000)),
    "tensors within their bound": spread(distinct_entries(60_000), 8),
    "tensors with a type within their bound": spread(b"".join(
        nested(TENSORS, nested(1, b"%05d" % i) + nested(2, b"\x18\1\x22\1\1")) for i in range(30_000)), 8),
    "shapes": nested(DATUM, nested(TENSORS, nested(2, nested(4, b"\1" * MANY)))),
    "unknown fields": nested(DATUM, nested(9, b"") * MANY),
    "unknown fields outside": nested(9, b"") * MANY,
    "numbers": b"\x30\x01" * MANY,
    "damaged at the end": nested(DATUM, nested(CHUNK, b"") * 400_000) + b"\x1a\x05",
    "one large string": nested(4, b"a" * (100 * MIB)),
    "one large text": nested(DATUM, nested(CHUNK, nested(1, nested(1, b"abcd" * (25 * MIB))))),
}
