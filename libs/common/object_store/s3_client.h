// Signed requests to a bucket, with repetitions.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/object_store/credentials.h"
#include "libs/common/object_store/s3_options.h"

namespace lathe {

// A range of an open local file. Its owner keeps the descriptor open.
struct FileSlice {
  int descriptor = -1;
  int64_t offset = 0;
  int64_t num_bytes = 0;
};

struct S3Request {
  std::string method;
  std::string key;  // with the prefix; empty: the bucket itself
  std::vector<std::pair<std::string, std::string>> query = {};  // any order, not encoded
  std::vector<std::string> headers = {};  // "Name: value", besides those of the signature
  std::string body = "";
  std::optional<FileSlice> upload = {};    // in place of `body`
  std::optional<FileSlice> download = {};  // where an answer's bytes go; it must have exactly these
  bool is_slow = false;                    // the store works for minutes before it answers
  bool may_repeat = true;  // false: an attempt whose outcome is unknown is not repeated
};

struct S3Response {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

// Thread-safe. Several requests run on the calling thread at a time.
class S3Client {
 public:
  S3Client(S3Options options, AwsCredentials::Environment environment);
  ~S3Client();

  // Returns the answer if its status is 2xx, otherwise what it means: NotFound (NoSuchKey, or a 404
  // of a HEAD), AlreadyExists (412), ResourceExhausted (no room there or here, quota),
  // PermissionDenied (403), FailedPrecondition (no such bucket, another region, no keys),
  // Unavailable (after repetitions; also an answer of the wrong length), DataLoss (a range beyond
  // the end), Internal.
  absl::StatusOr<S3Response> Run(const S3Request& request);

  // Runs all requests, options().num_parallel at a time. Returns the first error at once, without
  // the others' outcome.
  absl::StatusOr<std::vector<S3Response>> RunAll(const std::vector<S3Request>& requests);

  // Makes running and later requests fail within about a second.
  void Cancel() { is_cancelled_ = true; }

  const S3Options& options() const { return options_; }
  // Returns "s3://bucket/key".
  std::string AddressOf(const std::string& key) const;

 private:
  class Transfer;
  class Session;

  std::unique_ptr<Session> TakeSession();
  void GiveBack(std::unique_ptr<Session> session);

  const S3Options options_;
  const std::string bucket_url_;
  AwsCredentials credentials_;
  std::atomic<bool> is_cancelled_ = false;
  absl::Mutex mu_;
  std::vector<std::unique_ptr<Session>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe
