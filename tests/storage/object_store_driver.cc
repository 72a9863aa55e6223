// Runs one call of an object store for the tests in this folder.
//
//   lathe_object_store_driver [OPTION...] CALL [ARGUMENT...]
//
// Prints the result, or `error CODE: MESSAGE` with exit code 1.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "libs/common/errors.h"
#include "libs/common/logging/logging.h"
#include "libs/common/object_store/checkpoint_objects.h"
#include "libs/common/object_store/s3_store.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

using Words = std::vector<std::string>;
using Result = absl::StatusOr<std::string>;

int64_t ToInt(const std::string& text) {
  int64_t number = 0;
  static_cast<void>(absl::SimpleAtoi(text, &number));
  return number;
}

Result Done(const absl::Status& status) {
  if (!status.ok()) return status;
  return std::string("ok");
}

std::string ToText(const std::vector<ObjectInfo>& objects) {
  std::string text;
  for (const ObjectInfo& object : objects) {
    text += absl::StrFormat("%s %d\n", object.name, object.size_bytes);
  }
  return text;
}

std::string Joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += word + "\n";
  return text;
}

Result CallStore(S3Store& store, const Words& words) {
  const std::string& call = words[0];
  if (call == "put") return Done(store.PutFile(words[1], words[2]));
  if (call == "put_text") return Done(store.PutText(words[1], words[2]));
  if (call == "put_if_absent") return Done(store.PutIfAbsent(words[1], words[2]));
  if (call == "get") return store.Get(words[1], ToInt(words[2]), ToInt(words[3]));
  if (call == "get_file") return Done(store.GetFile(words[1], ToInt(words[2]), words[3]));
  if (call == "copy") return Done(store.Copy(words[1], words[2], ToInt(words[3])));
  if (call == "delete") return Done(store.Delete(words[1]));
  if (call == "head") {
    ASSIGN_OR_RETURN(const ObjectInfo info, store.Head(words[1]));
    return absl::StrFormat("%d", info.size_bytes);
  }
  if (call == "list") {
    ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, store.List(words[1]));
    return ToText(objects);
  }
  if (call == "folders") {
    ASSIGN_OR_RETURN(const Words folders, store.ListFolders(words[1]));
    return Joined(folders);
  }
  if (call == "abort_uploads") {
    ASSIGN_OR_RETURN(const int64_t aborted,
                     store.AbortUploads(words[1], absl::Now() + absl::Seconds(ToInt(words[2]))));
    return absl::StrFormat("%d", aborted);
  }
  return absl::InvalidArgumentError("unknown call " + call);
}

Result CallCheckpoints(CheckpointObjects& checkpoints, const Words& words) {
  const std::string& call = words[0];
  if (call == "claim") return Done(checkpoints.Claim(words[1]));
  if (call == "publish") return Done(checkpoints.Publish(words[1], words[2]));
  if (call == "fetch") return Done(checkpoints.Fetch(words[1], words[2]));
  return absl::InvalidArgumentError("unknown call " + call);
}

bool IsOfCheckpoints(const std::string& call) {
  return call == "claim" || call == "publish" || call == "fetch";
}

int Run(int argc, char** argv) {
  std::map<std::string, std::string> options;
  int i = 1;
  for (; i + 1 < argc && argv[i][0] == '-'; i += 2) options[argv[i] + 2] = argv[i + 1];
  const Words words(argv + i, argv + argc);
  if (words.empty()) return 2;
  S3Options s3;
  absl::Status status = ReadS3Url(options["files"], s3);
  s3.endpoint = options["endpoint"];
  if (options.count("region") > 0) s3.region = options["region"];
  if (options.count("part-bytes") > 0) s3.part_bytes = ToInt(options["part-bytes"]);
  if (options.count("patience") > 0) s3.patience = absl::Seconds(ToInt(options["patience"]));
  if (options.count("stall") > 0) s3.stall = absl::Seconds(ToInt(options["stall"]));
  if (status.ok()) status = CheckS3Options(s3);
  Result result = std::string();
  if (!status.ok()) {
    result = status;
  } else {
    const auto store =
        std::make_shared<S3Store>(s3, [](const char* name) { return std::getenv(name); });
    CheckpointObjects checkpoints(store);
    result =
        IsOfCheckpoints(words[0]) ? CallCheckpoints(checkpoints, words) : CallStore(*store, words);
  }
  if (result.ok()) {
    std::fwrite(result->data(), 1, result->size(), stdout);
    return 0;
  }
  std::printf("error %s: %s\n", StatusCodeName(result.status().code()).c_str(),
              std::string(result.status().message()).c_str());
  return 1;
}

}  // namespace
}  // namespace lathe

int main(int argc, char** argv) {
  lathe::InitLogging("driver");
  return lathe::Run(argc, argv);
}
