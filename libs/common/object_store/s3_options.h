// The place of a bucket and the way it is asked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lathe {

struct S3Options {
  std::string bucket;
  std::string prefix;    // without slashes at its ends; may be empty
  std::string endpoint;  // scheme://host[:port]; empty: AWS in the region
  std::string region = "us-east-1";
  bool insecure_i_know = false;  // allows http to other machines
  // Time for one request with all its repetitions. A transfer that makes progress may take longer.
  absl::Duration patience = absl::Seconds(60);
  // An attempt that moves fewer bytes than 1 KiB a second for this long has failed.
  absl::Duration stall = absl::Seconds(20);
  int64_t part_bytes = int64_t{16} << 20;
  int num_parallel = 4;                   // parts of one transfer at a time
  std::function<void()> on_fetched = {};  // called for each piece of a file that was fetched
};

// Reads s3://BUCKET[/PREFIX] into `options`. InvalidArgument names what is wrong.
absl::Status ReadS3Url(const std::string& url, S3Options& options);

// Returns InvalidArgument for an endpoint that cannot be used: no http or https, or http to another
// machine without insecure_i_know.
absl::Status CheckS3Options(const S3Options& options);

// Returns the URL of the bucket, without a slash at its end. Buckets of AWS are part of the host's
// name unless they have dots, for which there is no certificate.
std::string BucketUrl(const S3Options& options);

}  // namespace lathe
