// Writes and reads packed numbers: varints, zigzag varints, raw doubles, short texts.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace lathe::engine {

// Appends packed numbers to a string.
class Packer {
 public:
  explicit Packer(std::string& out) : out_(out) {}

  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
    out_.push_back(static_cast<char>(value));
  }
  // A small negative number takes as few bytes as a small positive one.
  void Signed(int64_t value) {
    Varint((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  // Little-endian, as every machine that Lathe runs on.
  void Double(double value) {
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    out_.append(bytes, sizeof(value));
  }
  void Text(std::string_view text) {
    Varint(text.size());
    out_.append(text);
  }

 private:
  std::string& out_;
};

// Reads what a Packer wrote. After a read beyond the end, ok() is false and all values are zero.
class Unpacker {
 public:
  explicit Unpacker(std::string_view in) : in_(in) {}

  bool ok() const { return ok_; }
  bool at_end() const { return in_.empty(); }

  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !in_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(in_.front());
      in_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return Fail();
  }
  int64_t Signed() {
    const uint64_t value = Varint();
    return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1));
  }
  double Double() {
    double value = 0;
    if (in_.size() < sizeof(value)) {
      Fail();
      return 0;
    }
    std::memcpy(&value, in_.data(), sizeof(value));
    in_.remove_prefix(sizeof(value));
    return value;
  }
  std::string Text() {
    const uint64_t size = Varint();
    if (size > in_.size()) {
      Fail();
      return "";
    }
    std::string text(in_.substr(0, size));
    in_.remove_prefix(size);
    return text;
  }

 private:
  uint64_t Fail() {
    ok_ = false;
    in_ = {};
    return 0;
  }

  std::string_view in_;
  bool ok_ = true;
};

}  // namespace lathe::engine
