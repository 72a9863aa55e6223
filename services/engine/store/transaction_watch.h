// Looks for transactions of others that stay open in the database.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Belongs to one thread. A transaction that somebody forgot keeps the database from using the space
// of removed rows again: it grows, and is slower from hour to hour.
class TransactionWatch {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(5);
  // None of ours is open for longer.
  static constexpr absl::Duration kLong = absl::Seconds(10);

  // `on_age`: the age of the oldest one, zero when there is none, at each look that found out.
  // `on_long`: once for each holder of a transaction that is older than kLong.
  TransactionWatch(Store& store, std::function<void(absl::Duration)> on_age,
                   std::function<void(const OpenTransaction&)> on_long)
      : store_(store), on_age_(std::move(on_age)), on_long_(std::move(on_long)) {}

  void Look();

 private:
  Store& store_;
  const std::function<void(absl::Duration)> on_age_;
  const std::function<void(const OpenTransaction&)> on_long_;
  std::string told_;
};

}  // namespace lathe::engine
