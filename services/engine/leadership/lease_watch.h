// When a standby may take the lease.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Belongs to one thread. Looks at the lease again and again and measures by its own clock for how
// long nobody has renewed it.
class LeaseWatch {
 public:
  // Whether it is certain that a process does not run any more.
  using HasEnded = std::function<bool(const std::string& process)>;

  // `process`: who watches.
  LeaseWatch(std::string process, HasEnded has_ended)
      : process_(std::move(process)), has_ended_(std::move(has_ended)) {}

  // The lease was read as `lease`; `now` is a time after that. True: nobody has it any more.
  bool IsFree(const LeaseRow& lease, absl::Time now);
  // The lease could not be read, so perhaps not be renewed either: the time begins anew.
  void Forget() { seen_.reset(); }

 private:
  struct Seen {
    int64_t term = 0;
    int64_t num_renewals = 0;
    absl::Time since;
  };

  const std::string process_;
  const HasEnded has_ended_;
  std::optional<Seen> seen_;
};

}  // namespace lathe::engine
