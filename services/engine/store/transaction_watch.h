// Watches for transactions of other programs that stay open in the database.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Not thread-safe. A forgotten transaction keeps the database from reusing the space of removed
// rows, so it grows and becomes slower every hour.
class TransactionWatch {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(5);
  // Age that none of the engine's own transactions reaches.
  static constexpr absl::Duration kLong = absl::Seconds(10);

  // Look calls `on_age` with the age of the oldest transaction, zero when there is none, unless the
  // store fails. It calls `on_long` once for each holder of a transaction that is older than kLong.
  TransactionWatch(Store& store, std::function<void(absl::Duration)> on_age,
                   std::function<void(const OpenTransaction&)> on_long)
      : store_(store), on_age_(std::move(on_age)), on_long_(std::move(on_long)) {}

  void Look() {
    const absl::StatusOr<std::optional<OpenTransaction>> oldest = store_.OldestTransaction();
    if (!oldest.ok()) return;  // the database is away, which other calls report
    on_age_(*oldest ? (*oldest)->age : absl::ZeroDuration());
    if (!*oldest || (*oldest)->age < kLong) {
      reported_.clear();
    } else if (reported_ != (*oldest)->holder) {
      reported_ = (*oldest)->holder;
      on_long_(**oldest);
    }
  }

 private:
  Store& store_;
  const std::function<void(absl::Duration)> on_age_;
  const std::function<void(const OpenTransaction&)> on_long_;
  std::string reported_;
};

}  // namespace lathe::engine
