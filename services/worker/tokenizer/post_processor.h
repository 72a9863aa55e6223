// Stage "post_processor" of tokenizer.json: adds special tokens around a text's tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/json/json.h"
#include "services/worker/tokenizer/component.h"

namespace lathe::worker {

// Special tokens before and behind a text. Immutable, usable from any thread.
class PostProcessor {
 public:
  // Reads the stage. InvalidArgument names the component that is broken or not supported.
  static absl::StatusOr<PostProcessor> Read(const Json& root);

  const std::vector<int32_t>& before() const { return before_; }
  const std::vector<int32_t>& behind() const { return behind_; }

 private:
  absl::Status AddTemplate(const Component& component);

  std::vector<int32_t> before_;
  std::vector<int32_t> behind_;
};

}  // namespace lathe::worker
