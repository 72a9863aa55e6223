#include "services/worker/models/families/families.h"

#include <string>
#include <vector>

#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

struct Family {
  const char* model_type;  // as in config.json
  absl::StatusOr<DecoderSpec> (*read)(ConfigReader& config);
};

constexpr Family kFamilies[] = {{"gemma3_text", ReadGemma3},
                                {"llama", ReadLlama},
                                {"mistral", ReadMistral},
                                {"qwen2", ReadQwen2},
                                {"qwen3", ReadQwen3}};

}  // namespace

absl::StatusOr<DecoderSpec> ReadModelConfig(const std::filesystem::path& folder) {
  ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Open(folder));
  const nlohmann::json type = config.Take("model_type");
  std::vector<std::string> known;
  for (const Family& family : kFamilies) {
    if (type == family.model_type) {
      ASSIGN_OR_RETURN(DecoderSpec spec, family.read(config));
      RETURN_IF_ERROR(config.CheckAllUnderstood());
      return spec;
    }
    known.push_back(absl::StrFormat("\"%s\"", family.model_type));
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("config.json: model_type is %s, supported is %s",
                      type.is_null() ? "missing" : type.dump(), absl::StrJoin(known, ", ")));
}

}  // namespace lathe::worker
