#include "services/api-gateway/http/byte_budget.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

absl::Status TooLarge(int64_t bytes, int64_t limit) {
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                        "the request may need %d bytes of memory, this gateway has %d for one key "
                        "(gateway.max_inflight_bytes)",
                        bytes, limit)),
                    "body_too_large");
}

absl::Status Full(std::string_view holder, int64_t held, int64_t limit) {
  return WithDetail(absl::ResourceExhaustedError(absl::StrFormat(
                        "requests of %s hold %d bytes of the gateway, limit is %d; try again",
                        std::string(holder), held, limit)),
                    "gateway_full");
}

}  // namespace

absl::Status ByteBudget::State::CheckLocked(const std::string& key, int64_t from,
                                            int64_t to) const {
  const int64_t most_by_key = max_bytes / 2;
  if (to > most_by_key) return TooLarge(to, most_by_key);
  const auto held = by_key.find(key);
  const int64_t by_this_key = held == by_key.end() ? 0 : held->second;
  if (by_this_key + to - from > most_by_key) return Full("this key", by_this_key, most_by_key);
  const int64_t most = to > kSmallBytes ? max_bytes / 8 * 7 : max_bytes;
  if (num_reserved + to - from > most) return Full("all keys", num_reserved, most);
  return absl::OkStatus();
}

ByteBudget::ByteBudget(int64_t max_bytes) : state_(std::make_shared<State>(max_bytes)) {}

int64_t ByteBudget::num_reserved() const {
  absl::MutexLock lock(&state_->mu);
  return state_->num_reserved;
}

int64_t ByteBudget::max_bytes() const { return state_->max_bytes; }

ByteBudget::Share::Share(Share&& other) noexcept
    : state_(std::move(other.state_)),
      key_(std::move(other.key_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

ByteBudget::Share& ByteBudget::Share::operator=(Share&& other) noexcept {
  if (this == &other) return *this;
  Release();
  state_ = std::move(other.state_);
  key_ = std::move(other.key_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

absl::Status ByteBudget::Share::GrowTo(int64_t bytes) {
  if (state_ == nullptr || bytes <= bytes_) return absl::OkStatus();
  absl::MutexLock lock(&state_->mu);
  absl::Status status = state_->CheckLocked(key_, bytes_, bytes);
  if (!status.ok()) return status;
  state_->num_reserved += bytes - bytes_;
  state_->by_key[key_] += bytes - bytes_;
  bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status ByteBudget::Share::CheckRoom(int64_t bytes) const {
  if (state_ == nullptr || bytes <= bytes_) return absl::OkStatus();
  absl::MutexLock lock(&state_->mu);
  return state_->CheckLocked(key_, bytes_, bytes);
}

void ByteBudget::Share::Release() {
  if (state_ == nullptr || bytes_ == 0) return;
  absl::MutexLock lock(&state_->mu);
  state_->num_reserved -= bytes_;
  const auto held = state_->by_key.find(key_);
  held->second -= bytes_;
  if (held->second == 0) state_->by_key.erase(held);
  bytes_ = 0;
}

}  // namespace lathe::gateway
