#include "services/api-gateway/http/connection_slots.h"

#include <algorithm>

namespace lathe::gateway {
namespace {

constexpr int kPrefixBytes = 8;

}  // namespace

boost::asio::ip::address OwnerOf(const boost::asio::ip::address& address) {
  if (!address.is_v6() || address.to_v6().is_v4_mapped()) return address;
  auto bytes = address.to_v6().to_bytes();
  std::fill(bytes.begin() + kPrefixBytes, bytes.end(), 0);
  return boost::asio::ip::address_v6(bytes);
}

ConnectionSlots::Slot ConnectionSlots::Take(const boost::asio::ip::address& address) {
  if (max_per_address_ == 0) return std::make_shared<int>(0);
  const boost::asio::ip::address owner = OwnerOf(address);
  {
    absl::MutexLock lock(&counts_->mu);
    int64_t& open = counts_->open[owner];
    if (open >= max_per_address_) return nullptr;
    ++open;
  }
  // The slot's pointer is only a non-null marker. It is never dereferenced.
  return Slot(counts_.get(), [counts = counts_, owner](void*) {
    absl::MutexLock lock(&counts->mu);
    const auto found = counts->open.find(owner);
    if (--found->second == 0) counts->open.erase(found);
  });
}

}  // namespace lathe::gateway
