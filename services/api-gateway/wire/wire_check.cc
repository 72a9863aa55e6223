#include "services/api-gateway/wire/wire_check.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// The same limit as protobuf's own.
constexpr size_t kMaxDepth = 100;
constexpr uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

// Each function returns false after a fault, which is in status().
class Walker {
 public:
  Walker(std::string_view body, const WireLimits& limits) : body_(body), limits_(limits) {}

  // Walks over the message in [position_, end).
  bool Walk(const Descriptor& type, size_t end) {
    if (path_.size() > kMaxDepth) return Fail("nested deeper than 100 messages");
    while (position_ < end) {
      const std::optional<uint64_t> tag = Varint(end);
      if (!tag) return Fail("the varint of a field tag does not end");
      if (*tag >> 3 == 0) return Fail("field number 0");
      const FieldDescriptor* field = type.FindFieldByNumber(static_cast<int>(*tag >> 3));
      path_.push_back(field);
      if (!Field(*tag & 7, field, end)) return false;
      path_.pop_back();
    }
    return true;
  }

  const WireSize& size() const { return size_; }
  const absl::Status& status() const { return status_; }

 private:
  bool Fail(std::string_view reason) {
    const std::string path = Path();
    status_ = WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                             "protobuf body is damaged at byte %d%s: %s", position_,
                             path.empty() ? "" : ", in " + path, std::string(reason))),
                         "bad_proto", path);
    return false;
  }

  std::string Path() const {
    std::string path;
    for (const FieldDescriptor* field : path_) {
      if (field != nullptr) absl::StrAppend(&path, path.empty() ? "" : ".", field->name());
    }
    return path;
  }

  // Counts a field of the message that is walked over.
  bool Count(bool is_message, const FieldDescriptor* field) {
    ++(is_message ? size_.num_messages : size_.num_fields);
    if (path_.size() == 1) {
      num_before_ = size_.num_messages;
      const bool is_datum = field != nullptr && field == limits_.datums;
      if (is_datum && ++num_datums_ > limits_.max_datums) {
        status_ = WithDetail(
            absl::InvalidArgumentError(absl::StrFormat("%s has more datums than the limit of %d",
                                                       field->name(), limits_.max_datums)),
            "too_many_datums", field->name());
        return false;
      }
    }
    if (size_.num_messages - num_before_ > limits_.max_datum_messages) {
      status_ =
          WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                         "element %d of %s has more messages than the limit of %d", num_datums_ - 1,
                         path_[0] == nullptr ? "an unknown field" : path_[0]->name(),
                         limits_.max_datum_messages)),
                     "too_many_parts", path_[0] == nullptr ? "" : path_[0]->name());
      return false;
    }
    if (size_.PartBytes() <= limits_.max_part_bytes) return true;
    status_ = WithDetail(
        absl::InvalidArgumentError(absl::StrFormat(
            "protobuf body of %d bytes has more than %d messages and %d other fields, which would "
            "take over %d bytes of memory",
            body_.size(), size_.num_messages - 1, size_.num_fields, limits_.max_part_bytes)),
        "too_many_parts");
    return false;
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

  bool Field(uint32_t wire_type, const FieldDescriptor* field, size_t end) {
    if (wire_type == kBytes) return LengthDelimited(field, end);
    return Number(wire_type, end) && Count(/*is_message=*/false, field);
  }

  bool Number(uint32_t wire_type, size_t end) {
    if (wire_type == kVarint) return Varint(end).has_value() || Fail("a varint does not end");
    if (wire_type != kFixed64 && wire_type != kFixed32) {
      return Fail(absl::StrFormat("unknown wire type %d", wire_type));
    }
    const size_t size = wire_type == kFixed64 ? 8 : 4;
    if (end - position_ < size) return Fail("a fixed-width number is cut off");
    position_ += size;
    return true;
  }

  bool LengthDelimited(const FieldDescriptor* field, size_t end) {
    const std::optional<uint64_t> length = Varint(end);
    if (!length) return Fail("the varint of a length does not end");
    if (*length > end - position_) {
      return Fail(absl::StrFormat("length %d exceeds the %d bytes left", *length, end - position_));
    }
    const size_t field_end = position_ + *length;
    const bool is_message = field == nullptr || field->type() == FieldDescriptor::TYPE_MESSAGE;
    if (!Count(is_message, field)) return false;
    if (field != nullptr && is_message && !Walk(*field->message_type(), field_end)) return false;
    if (field != nullptr && field->is_packable() && !Packed(*field, field_end)) return false;
    position_ = field_end;
    return true;
  }

  bool Packed(const FieldDescriptor& field, size_t end) {
    const uint32_t wire_type = ElementWireType(field);
    while (position_ < end) {
      if (!Number(wire_type, end) || !Count(/*is_message=*/false, &field)) return false;
    }
    return true;
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
  const WireLimits& limits_;
  size_t position_ = 0;
  // Fields that lead to position_; null: an unknown one.
  std::vector<const FieldDescriptor*> path_;
  WireSize size_;
  int64_t num_datums_ = 0;
  // Number of messages before those in the field of the outermost message.
  int64_t num_before_ = 0;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<WireSize> MeasureProto(std::string_view body, const Descriptor& descriptor,
                                      const WireLimits& limits) {
  Walker walker(body, limits);
  if (!walker.Walk(descriptor, body.size())) return walker.status();
  return walker.size();
}

}  // namespace lathe::gateway
