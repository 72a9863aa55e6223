#include "tools/lathe/model_folder.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "libs/common/errors.h"
#include "tools/lathe/exit_code.h"
#include "tools/lathe/testing/temp_dir.h"

namespace lathe::cli {
namespace {

constexpr char kHubModel[] = "hub/models--Qwen--Qwen3-0.6B/";

void WriteModel(const TempDir& dir, const std::string& folder) {
  dir.Write(folder + "/config.json", "{}");
  dir.Write(folder + "/model.safetensors", "12345678");
}

std::string ErrorCodeOf(const TempDir& dir, const std::string& argument) {
  const auto model = ResolveModel(argument, dir.path() / "hub");
  return ErrorCode(model.status());
}

TEST_CASE("A model is named after its folder unless a name is given", "[model]") {
  const TempDir dir;
  WriteModel(dir, "tiny");
  dir.Write("tiny/more.safetensors", "12");
  const std::string path = (dir.path() / "tiny").string();
  const auto model = ResolveModel(path, dir.path());
  REQUIRE(model.ok());
  CHECK(model->name == "tiny");
  CHECK(model->path == path);
  CHECK(model->weight_bytes == 10);
  CHECK(ResolveModel(path + "/", dir.path())->name == "tiny");
  CHECK(ResolveModel("Qwen/Qwen3-0.6B=" + path, dir.path())->name == "Qwen/Qwen3-0.6B");
}

TEST_CASE("Weights are counted as a worker on a CPU holds them", "[model]") {
  const TempDir dir;
  WriteModel(dir, "m");
  const std::string path = (dir.path() / "m").string();
  CHECK(ResolveModel(path, dir.path())->loaded_bytes == 8);
  dir.Write("m/config.json", R"({"torch_dtype": "bfloat16"})");
  CHECK(ResolveModel(path, dir.path())->loaded_bytes == 8);
  dir.Write("m/config.json", R"({"torch_dtype": "float16"})");
  CHECK(ResolveModel(path, dir.path())->loaded_bytes == 16);
  dir.Write("m/config.json", R"({"dtype": "bfloat16", "torch_dtype": "float16"})");
  CHECK(ResolveModel(path, dir.path())->loaded_bytes == 8);
}

TEST_CASE("A path may hold an equals sign", "[model]") {
  const TempDir dir;
  WriteModel(dir, "lr=3");
  const auto model = ResolveModel("m=" + (dir.path() / "lr=3").string(), dir.path());
  REQUIRE(model.ok());
  CHECK(model->name == "m");
  CHECK(model->path == dir.path() / "lr=3");
  CHECK(ErrorCodeOf(dir, (dir.path() / "lr=3").string()) == "bad_model_name");
}

TEST_CASE("A name without a folder is found in the hub cache", "[model]") {
  const TempDir dir;
  SECTION("by refs/main") {
    WriteModel(dir, std::string(kHubModel) + "snapshots/abc");
    WriteModel(dir, std::string(kHubModel) + "snapshots/def");
    dir.Write(std::string(kHubModel) + "refs/main", "abc");
    const auto model = ResolveModel("Qwen/Qwen3-0.6B", dir.path() / "hub");
    REQUIRE(model.ok());
    CHECK(model->name == "Qwen/Qwen3-0.6B");
    CHECK(model->path.filename() == "abc");
  }
  SECTION("by its only snapshot, under another name") {
    WriteModel(dir, std::string(kHubModel) + "snapshots/def");
    const auto model = ResolveModel("mine=Qwen/Qwen3-0.6B", dir.path() / "hub");
    REQUIRE(model.ok());
    CHECK(model->name == "mine");
    CHECK(model->path.filename() == "def");
  }
  SECTION("or is missing") { CHECK(ErrorCodeOf(dir, "Qwen/Qwen3-0.6B") == "model_missing"); }
}

TEST_CASE("An error names the fault of a folder that is no model", "[model]") {
  const TempDir dir;
  const std::string path = (dir.path() / "m").string();
  CHECK(ErrorCodeOf(dir, path) == "model_missing");
  dir.Write("m/readme", "");
  CHECK(absl::StrContains(ResolveModel(path, dir.path()).status().message(), "no config.json"));
  dir.Write("m/config.json", "{");
  CHECK(absl::StrContains(ResolveModel(path, dir.path()).status().message(), "not valid JSON"));
  dir.Write("m/config.json", "{}");
  CHECK(absl::StrContains(ResolveModel(path, dir.path()).status().message(), ".safetensors"));
  CHECK(ErrorCodeOf(dir, path) == "not_a_model");
  CHECK(ErrorCodeOf(dir, path + "/config.json") == "not_a_model");
  CHECK(ExitCodeOf(ResolveModel(path, dir.path()).status()) == 78);
}

TEST_CASE("A model name is never a path", "[model]") {
  const TempDir dir;
  WriteModel(dir, "m");
  const std::string path = (dir.path() / "m").string();
  const std::string name = GENERATE("a/b/c", "/a", "a/", "../m", "a b", "");
  CHECK(ErrorCodeOf(dir, name + "=" + path) == "bad_model_name");
}

TEST_CASE("A model without a path is refused with what is expected", "[model]") {
  const TempDir dir;
  for (const std::string argument : {"tiny=", ""}) {
    const absl::Status status = ResolveModel(argument, dir.path()).status();
    CHECK(ErrorCode(status) == "model_missing");
    CHECK(absl::StrContains(status.message(), "model is '" + argument + "', expected [NAME=]PATH"));
  }
}

TEST_CASE("Several models have names and folders of their own", "[model]") {
  const TempDir dir;
  WriteModel(dir, "a");
  WriteModel(dir, "b");
  const std::string a = (dir.path() / "a").string(), b = (dir.path() / "b").string();
  const auto resolved = [&](const std::vector<std::string>& arguments) {
    return ResolveModels(arguments, dir.path());
  };
  SECTION("and keep their order") {
    const auto models = resolved({"org/b=" + b, a});
    REQUIRE(models.ok());
    REQUIRE(models->size() == 2);
    CHECK(models->at(0).name == "org/b");
    CHECK(models->at(1).name == "a");
  }
  SECTION("so one name for two folders is refused") {
    const absl::Status status = resolved({"m=" + a, "m=" + b}).status();
    CHECK(ErrorCode(status) == "bad_model_name");
    CHECK(status.message() == "model has the name 'm' twice, for " + a + " and " + b +
                                  "; expected a name of its own for each base model");
  }
  SECTION("so two names for one folder are refused, also by another path to it") {
    const absl::Status status = resolved({"m=" + a, "n=" + a + "/../a"}).status();
    CHECK(ErrorCode(status) == "bad_model_name");
    CHECK(status.message() == "model has two names for " + a + ", 'm' and 'n'; expected one");
  }
}

}  // namespace
}  // namespace lathe::cli
