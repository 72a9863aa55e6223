// TLS contexts of a listener whose files may be exchanged while it runs.
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

// New connections get a context of the files as they are now; files that cannot be used leave the
// last context in use. Open connections keep theirs. Thread-safe.
class TlsContexts {
 public:
  // How old the context of a new connection may be. Less: more looks at the files.
  static constexpr absl::Duration kMaxAge = absl::Seconds(1);

  explicit TlsContexts(TlsFiles files) : files_(std::move(files)) {}

  // First look; errors as LoadServerContext.
  absl::Status Load();
  // After Load.
  std::shared_ptr<boost::asio::ssl::context> Current();

 private:
  absl::Status LoadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const TlsFiles files_;
  absl::Mutex mu_;
  std::string stamp_ ABSL_GUARDED_BY(mu_);  // of the files last tried
  absl::Time checked_at_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<boost::asio::ssl::context> context_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::gateway
