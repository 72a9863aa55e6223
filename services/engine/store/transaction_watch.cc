#include "services/engine/store/transaction_watch.h"

#include <optional>

namespace lathe::engine {

void TransactionWatch::Look() {
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

}  // namespace lathe::engine
