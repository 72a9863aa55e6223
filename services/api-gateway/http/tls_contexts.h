// TLS contexts of a listener whose files may be replaced while it runs.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/listener/tls_files.h"

namespace lathe::gateway {

// Gives new connections a context of the current files. If the current files cannot be used, the
// last context stays in use. Open connections keep their context. Thread-safe.
class TlsContexts {
 public:
  // Time after which Current checks the files again. A lower value checks them more often.
  static constexpr absl::Duration kMaxAge = absl::Seconds(1);

  explicit TlsContexts(TlsFiles files) : files_(std::move(files)) {}

  // Loads the files for the first time. Returns the errors of LoadServerContext.
  absl::Status Load();
  // Returns the context for a new connection. Load must have succeeded before.
  std::shared_ptr<boost::asio::ssl::context> Current();

 private:
  absl::Status LoadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const TlsFiles files_;
  absl::Mutex mu_;
  std::string stamp_ ABSL_GUARDED_BY(mu_);  // stamp of the files loaded last, valid or not
  absl::Time checked_at_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<boost::asio::ssl::context> context_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::gateway
