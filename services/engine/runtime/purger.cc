#include "services/engine/runtime/purger.h"

#include "libs/common/logging/logging.h"
#include "libs/common/time/clock.h"

namespace lathe::engine {
namespace {

// Length of a rest in times of the piece before it. Ten thousands of rows a minute still go.
constexpr int kRestsPerPiece = 3;

}  // namespace

Purger::Purger(Store& store, int64_t term)
    : store_(store), term_(term), thread_("engine-purge", [this] { Run(); }) {}

Purger::~Purger() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
}

void Purger::Start(const PurgeResults& what) {
  absl::MutexLock lock(&mu_);
  next_ = what;
}

void Purger::Run() {
  while (std::optional<PurgePass> pass = TakePass()) {
    RunPass(*pass);
    if (!Rest(absl::ZeroDuration())) return;
    MakeIndexes();
  }
}

// Comes after the first purge, a minute after the start, so that a takeover is not slower for it.
// The next purge has to wait.
void Purger::MakeIndexes() {
  if (has_indexes_) return;
  const absl::Status status = store_.MakeIndexes();
  has_indexes_ = status.ok();
  if (!status.ok()) {
    LogWarn("an index was not made and is tried again", {{"error", status.message()}});
  }
}

std::optional<PurgePass> Purger::TakePass() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &Purger::HasWorkLocked));
  if (closed_) return std::nullopt;
  PurgePass pass;
  pass.what = *next_;
  next_.reset();
  return pass;
}

void Purger::RunPass(PurgePass& pass) {
  while (pass.phase != PurgePass::Phase::kOver) {
    const absl::Time began = SteadyNow();
    if (const absl::Status status = store_.PurgePiece(term_, pass); !status.ok()) {
      LogWarn("old results were not removed", {{"error", status.message()}});
      return;
    }
    if (!Rest(kRestsPerPiece * (SteadyNow() - began))) return;
  }
}

bool Purger::Rest(absl::Duration duration) {
  absl::MutexLock lock(&mu_);
  return !mu_.AwaitWithTimeout(absl::Condition(&closed_), duration);
}

}  // namespace lathe::engine
