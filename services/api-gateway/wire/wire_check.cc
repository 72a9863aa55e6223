#include "services/api-gateway/wire/wire_check.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// The same limit as protobuf's own.
constexpr int kMaxDepth = 100;
constexpr uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

struct Fault {
  size_t offset = 0;
  std::string path;
  std::string reason;
};

class Walker {
 public:
  explicit Walker(std::string_view body) : body_(body) {}

  // Returns the first fault of the message in [position_, end), or nullopt.
  std::optional<Fault> Walk(const Descriptor& type, size_t end, const std::string& path,
                            int depth) {
    if (depth > kMaxDepth) return At(path, "nested deeper than 100 messages");
    while (position_ < end) {
      const std::optional<uint64_t> tag = Varint(end);
      if (!tag) return At(path, "the varint of a field tag does not end");
      if (*tag >> 3 == 0) return At(path, "field number 0");
      const FieldDescriptor* field = type.FindFieldByNumber(static_cast<int>(*tag >> 3));
      if (auto fault = Field(*tag & 7, field, end, Join(path, field), depth)) return fault;
    }
    return std::nullopt;
  }

 private:
  static std::string Join(const std::string& path, const FieldDescriptor* field) {
    if (field == nullptr) return path;
    return path.empty() ? field->name() : path + "." + field->name();
  }

  Fault At(const std::string& path, std::string reason) const {
    return {position_, path, std::move(reason)};
  }

  std::optional<uint64_t> Varint(size_t end) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && position_ < end; shift += 7) {
      const auto byte = static_cast<uint8_t>(body_[position_++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << (shift < 64 ? shift : 63);
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::optional<Fault> Field(uint32_t wire_type, const FieldDescriptor* field, size_t end,
                             const std::string& path, int depth) {
    if (wire_type == kVarint) {
      if (!Varint(end)) return At(path, "a varint does not end");
      return std::nullopt;
    }
    if (wire_type == kFixed64 || wire_type == kFixed32) {
      const size_t size = wire_type == kFixed64 ? 8 : 4;
      if (end - position_ < size) return At(path, "a fixed-width number is cut off");
      position_ += size;
      return std::nullopt;
    }
    if (wire_type != kBytes) return At(path, absl::StrFormat("unknown wire type %d", wire_type));
    return LengthDelimited(field, end, path, depth);
  }

  std::optional<Fault> LengthDelimited(const FieldDescriptor* field, size_t end,
                                       const std::string& path, int depth) {
    const std::optional<uint64_t> length = Varint(end);
    if (!length) return At(path, "the varint of a length does not end");
    if (*length > end - position_) {
      return At(path,
                absl::StrFormat("length %d exceeds the %d bytes left", *length, end - position_));
    }
    const size_t field_end = position_ + *length;
    if (field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE) {
      if (auto fault = Walk(*field->message_type(), field_end, path, depth + 1)) return fault;
    }
    if (field != nullptr && field->is_packable()) {
      const uint32_t wire_type = ElementWireType(*field);
      while (position_ < field_end) {
        if (auto fault = Field(wire_type, field, field_end, path, depth)) return fault;
      }
    }
    position_ = field_end;
    return std::nullopt;
  }

  // Returns the wire type of a number in the packed field `field`.
  static uint32_t ElementWireType(const FieldDescriptor& field) {
    switch (field.type()) {
      case FieldDescriptor::TYPE_DOUBLE:
      case FieldDescriptor::TYPE_FIXED64:
      case FieldDescriptor::TYPE_SFIXED64:
        return kFixed64;
      case FieldDescriptor::TYPE_FLOAT:
      case FieldDescriptor::TYPE_FIXED32:
      case FieldDescriptor::TYPE_SFIXED32:
        return kFixed32;
      default:
        return kVarint;
    }
  }

  const std::string_view body_;
  size_t position_ = 0;
};

}  // namespace

absl::Status ExplainBadProto(std::string_view body, const Descriptor& descriptor) {
  Walker walker(body);
  const auto fault = walker.Walk(descriptor, body.size(), "", 0);
  // The walk does not check UTF-8, so a body without a fault is assumed to violate it.
  std::string message =
      absl::StrFormat("protobuf body of %d bytes is not a valid %s: a string field is not UTF-8",
                      body.size(), descriptor.name());
  if (fault) {
    message = absl::StrFormat("protobuf body is damaged at byte %d%s: %s", fault->offset,
                              fault->path.empty() ? "" : ", in " + fault->path, fault->reason);
  }
  return WithDetail(absl::InvalidArgumentError(message), "bad_proto", fault ? fault->path : "");
}

}  // namespace lathe::gateway
