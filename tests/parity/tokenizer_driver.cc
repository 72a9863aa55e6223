// Runs a tokenizer for tests/parity/test_tokenizer*.py. The argument is a JSON file:
//   {"folder": a folder with tokenizer.json,
//    "add_special_tokens": bool, "skip_special_tokens": bool,
//    "encode": [hex bytes], "decode": [[id]], "continue": [[id]]}
// Prints a JSON object:
//   {"encode": [[id] or error text], "encode_seconds": total, "decode": [hex bytes],
//    "continue": [hex bytes of the concatenated TokenBytes], "num_ids": count}
#include <chrono>
#include <iostream>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "libs/common/json/json.h"
#include "libs/common/status_macros.h"
#include "services/worker/tokenizer/tokenizer.h"

namespace lathe::worker {
namespace {

Json Encode(const Tokenizer& tokenizer, const Json& script, double& seconds) {
  Json results = Json::array();
  const bool add_special_tokens = script.value("add_special_tokens", false);
  for (const std::string& hex : script.value("encode", std::vector<std::string>{})) {
    const std::string text = absl::HexStringToBytes(hex);
    const auto begin = std::chrono::steady_clock::now();
    const auto ids = tokenizer.Encode(text, add_special_tokens);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    results.push_back(ids.ok() ? Json(*ids) : Json(std::string(ids.status().message())));
  }
  return results;
}

Json Decode(const Tokenizer& tokenizer, const Json& script) {
  Json results = Json::array();
  const bool skip_special_tokens = script.value("skip_special_tokens", false);
  for (const auto& ids : script.value("decode", std::vector<std::vector<int32_t>>{})) {
    results.push_back(absl::BytesToHexString(tokenizer.Decode(ids, skip_special_tokens)));
  }
  return results;
}

Json Continue(const Tokenizer& tokenizer, const Json& script) {
  Json results = Json::array();
  for (const auto& ids : script.value("continue", std::vector<std::vector<int32_t>>{})) {
    std::string bytes;
    for (const int32_t id : ids) bytes += tokenizer.TokenBytes(id);
    results.push_back(absl::BytesToHexString(bytes));
  }
  return results;
}

absl::StatusOr<Json> Run(const std::string& path) {
  ASSIGN_OR_RETURN(const Json script, ReadJsonFile(path));
  ASSIGN_OR_RETURN(const std::string folder, JsonString(script, "folder"));
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(folder));
  double seconds = 0;
  Json output = {{"encode", Encode(tokenizer, script, seconds)}};
  output["encode_seconds"] = seconds;
  output["decode"] = Decode(tokenizer, script);
  output["continue"] = Continue(tokenizer, script);
  output["num_ids"] = tokenizer.num_ids();
  return output;
}

}  // namespace
}  // namespace lathe::worker

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: lathe_tokenizer_driver SCRIPT\n";
    return 2;
  }
  const auto output = lathe::worker::Run(argv[1]);
  if (!output.ok()) {
    std::cerr << output.status() << '\n';
    return 1;
  }
  std::cout << lathe::ToJsonText(*output) << '\n';
}
