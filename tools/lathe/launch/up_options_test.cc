#include "tools/lathe/launch/up_options.h"

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "libs/common/errors.h"

namespace lathe::cli {
namespace {

absl::StatusOr<UpOptions> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "up");
  return ParseUpOptions(static_cast<int>(arguments.size()), arguments.data());
}

absl::StatusOr<UpOptions> ParseFile(const std::string& text) {
  char path[] = "/tmp/lathe-up-XXXXXX";
  const int fd = mkstemp(path);
  REQUIRE(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  close(fd);
  auto options = Parse({"--config", path});
  unlink(path);
  return options;
}

std::string Refusal(const std::vector<const char*>& arguments) {
  const absl::Status status = Parse(arguments).status();
  CHECK(ErrorCode(status) == "usage");
  return std::string(status.message());
}

std::vector<GroupPlan> Plan(const std::vector<const char*>& arguments,
                            const std::vector<std::string>& names, int64_t available = 1000) {
  const auto options = Parse(arguments);
  REQUIRE(options.ok());
  std::vector<ModelFolder> models;
  for (const std::string& name : names) models.push_back({.name = name});
  return PlanGroups(*options, models, available);
}

TEST_CASE("Up: one model has the whole machine", "[up]") {
  const auto options = Parse({"--model", "a"});
  REQUIRE(options.ok());
  REQUIRE(options->models.size() == 1);
  CHECK(options->models[0].memory_share == 1);
  CHECK(options->num_ranks() == 1);
  CHECK(ThreadsPerRank(options->models[0], options->num_all_groups(), 8) == 8);
  const auto groups = Plan({"--model", "a"}, {"org/a"});
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].name == "default");
  CHECK(groups[0].workers == std::vector<std::string>{"worker"});
  CHECK(groups[0].memory_bytes == 0);
}

TEST_CASE("Up: several models get equal parts by default", "[up]") {
  const std::vector<const char*> arguments = {"--model", "a", "--model", "b", "--groups", "2"};
  const auto options = Parse(arguments);
  REQUIRE(options.ok());
  CHECK(options->num_all_groups() == 4);
  for (const ModelOptions& model : options->models) {
    CHECK(model.memory_share == 0.5);
    CHECK(ThreadsPerRank(model, options->num_all_groups(), 8) == 2);
    CHECK(ThreadsPerRank(model, options->num_all_groups(), 2) == 1);
  }
  const auto groups = Plan(arguments, {"org/a", "b"});
  REQUIRE(groups.size() == 4);
  CHECK(groups[0].name == "org/a");
  CHECK(groups[1].name == "org/a:2");
  CHECK(groups[2].name == "b");
  CHECK(groups[1].workers == std::vector<std::string>{"worker-org+a:2"});
  CHECK(groups[1].model == 0);
  CHECK(groups[3].model == 1);
  for (const GroupPlan& group : groups) CHECK(group.memory_bytes == 250);
}

TEST_CASE("Up: each model may get a part of its own", "[up]") {
  const std::vector<const char*> arguments = {
      "--model",        "a",    "--model",     "b",    "--threads", "3", "--threads",      "1",
      "--tp",           "1",    "--tp",        "2",    "--dp",      "2", "--memory-share", "0.75",
      "--memory-share", "0.25", "--tokenizer", "org/t"};
  const auto options = Parse(arguments);
  REQUIRE(options.ok());
  const ModelOptions& a = options->models[0];
  const ModelOptions& b = options->models[1];
  CHECK(a.num_threads == 3);
  CHECK(b.num_threads == 1);
  CHECK(a.ranks_per_group() == 2);
  CHECK(b.ranks_per_group() == 4);
  CHECK(options->num_ranks() == 6);
  CHECK(a.tokenizer == "org/t");
  CHECK(b.tokenizer == "org/t");
  const auto groups = Plan(arguments, {"a", "b"});
  CHECK(groups[0].memory_bytes == 750);
  CHECK(groups[1].memory_bytes == 250);
  CHECK(groups[0].workers == std::vector<std::string>{"worker0-a", "worker1-a"});
  CHECK(groups[1].workers.back() == "worker3-b");
}

TEST_CASE("Up: the parts come from a file too", "[up]") {
  const auto options =
      ParseFile("up:\n  model: [org/a=./a, b]\n  memory_share: [0.5, 0.25]\n  tp: 2\n");
  REQUIRE(options.ok());
  REQUIRE(options->models.size() == 2);
  CHECK(options->models[0].model == "org/a=./a");
  CHECK(options->models[1].model == "b");
  CHECK(options->models[1].memory_share == 0.25);
  CHECK(options->models[0].tp == 2);
  CHECK(options->models[1].tp == 2);
}

TEST_CASE("Up: a file without a model is refused", "[up]") {
  CHECK(ParseFile("up:\n  model: []\n").status().message() ==
        "model is empty, expected [NAME=]PATH");
}

TEST_CASE("Up: a comma or an equals sign belongs to the path", "[up]") {
  const std::string path = GENERATE("./a,b", "mine=./a,b", "mine=./lr=3,b");
  const auto options = Parse({"--model", path.c_str(), "--tokenizer", "./t,u"});
  REQUIRE(options.ok());
  REQUIRE(options->models.size() == 1);
  CHECK(options->models[0].model == path);
  CHECK(options->models[0].tokenizer == "./t,u");
}

TEST_CASE("Up: a wrong division is refused with the option, its value and its bound", "[up]") {
  const auto of_two = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), {"--model", "a", "--model", "b"});
    return Refusal(arguments);
  };
  CHECK(of_two({"--tp", "1", "--tp", "2", "--tp", "1"}) ==
        "tp has 3 values for 2 models; expected one for all, or one for each");
  CHECK(Refusal({"--model", "a", "--threads", "1", "--threads", "2"}) ==
        "threads has 2 values for 1 model; expected one for all, or one for each");
  CHECK(of_two({"--threads", "2", "--threads", "-1"}) == "threads is -1, expected 0 or more");
  CHECK(of_two({"--fsdp", "0"}) == "fsdp is 0, expected 1 to 64");
  CHECK(of_two({"--tp", "40"}) ==
        "sum over the models of dp x fsdp x tp is 80 ranks on this machine, limit is 64");
  CHECK(of_two({"--memory-share", "0"}) == "memory_share is 0, expected more than 0 and at most 1");
  CHECK(of_two({"--memory-share", "nan"}) ==
        "memory_share is nan, expected more than 0 and at most 1");
  CHECK(of_two({"--memory-share", "0.75", "--memory-share", "0.5"}) ==
        "memory_share is 0.75 + 0.5 = 1.25 for 2 models, limit is 1");
  CHECK(of_two({"--memory-share", "0.75"}) ==
        "memory_share is 0.75 + 0.75 = 1.5 for 2 models, limit is 1");
  CHECK(of_two({"--tokenizer", "x", "--tokenizer", "y", "--tokenizer", "z"}) ==
        "tokenizer has 3 values for 2 models; expected one for all, or one for each");
}

TEST_CASE("Up: processes have names of their own whatever the models are called", "[up]") {
  const std::vector<std::string> names = {"a/b", "a", "b", "a-b", "a.b", "default", "group2"};
  std::vector<const char*> arguments = {"--groups", "2"};
  for (size_t i = 0; i < names.size(); ++i) arguments.insert(arguments.end(), {"--model", "m"});
  std::set<std::string> groups, workers;
  for (const GroupPlan& group : Plan(arguments, names)) {
    groups.insert(group.name);
    workers.insert(group.workers[0]);
    CHECK(IsPlannedName(group.name, names[group.model]));
  }
  CHECK(groups.size() == 2 * names.size());
  CHECK(workers.size() == 2 * names.size());
}

TEST_CASE("Up: groups that were started by hand are not those of lathe up", "[up]") {
  for (const char* name : {"default", "group2", "group64", "org/a", "org/a:2"}) {
    CHECK(IsPlannedName(name, "org/a"));
  }
  for (const char* name : {"a", "sampling", "group1", "groups", "org/b", "org/a:1", "org/a:x"}) {
    CHECK_FALSE(IsPlannedName(name, "org/a"));
  }
}

}  // namespace
}  // namespace lathe::cli
