// Keys of an object store, from the places where AWS's own programs look for them.
#pragma once

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lathe {

struct AwsKeys {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // empty: none
  absl::Time expires_at = absl::InfiniteFuture();
};

// Finds keys in this order:
//
//   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; with _FILE after a name, the
//      text of that file, which is read again every minute;
//   2. AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, exchanged at STS;
//   3. AWS_CONTAINER_CREDENTIALS_FULL_URI, or _RELATIVE_URI, with AWS_CONTAINER_AUTHORIZATION_TOKEN
//      (or _FILE);
//   4. profile AWS_PROFILE (default) of AWS_SHARED_CREDENTIALS_FILE, or of ~/.aws/credentials.
//
// A machine's metadata service is never asked: its role is that of every process on the machine.
// Thread-safe.
class AwsCredentials {
 public:
  using Environment = std::function<const char*(const char*)>;

  // `environment` is getenv but for tests. `region` is that of STS.
  AwsCredentials(Environment environment, std::string region);

  // Returns the keys. They are replaced 5 minutes before they expire. FailedPrecondition names the
  // places if none has keys; Unavailable: an endpoint gives none. It is then left alone for some
  // seconds.
  absl::StatusOr<AwsKeys> Get();
  // Makes the next Get read the keys again, because a store has refused these. Does nothing if they
  // have been replaced.
  void Forget(const AwsKeys& refused);

 private:
  void Look(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<AwsKeys> Find() const;
  absl::StatusOr<AwsKeys> FromWebIdentity() const;
  absl::StatusOr<AwsKeys> FromContainer(const std::string& url) const;
  absl::StatusOr<AwsKeys> FromProfile() const;
  // Returns the variable, or the text of the file that NAME_FILE names; "" if neither is set.
  absl::StatusOr<std::string> Variable(const char* name) const;
  std::string Text(const char* name) const;

  const Environment environment_;
  const std::string region_;
  absl::Mutex mu_;
  AwsKeys keys_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);  // of the last look
  absl::Time read_again_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace lathe
