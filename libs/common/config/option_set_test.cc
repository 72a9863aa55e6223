#include "libs/common/config/option_set.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "libs/common/version.h"

namespace lathe {
namespace {

struct Example {
  std::string listen;
  int threads = 0;
  double ratio = 0;
  bool reflection = false;
  absl::Duration wait;
  std::vector<std::string> engines;
  std::vector<int> ranks;
  std::vector<double> shares;
  std::vector<std::string> paths;
  std::string secret;
  OptionSet options{"lathe-example", "An example."};

  Example() {
    options.Add(&listen, "gateway.listen", "127.0.0.1:8080", "address");
    options.Add(&threads, "gateway.num_threads", 2, "threads");
    options.Add(&ratio, "gateway.ratio", 0.5, "a ratio");
    options.Add(&reflection, "gateway.reflection", false, "serve reflection");
    options.Add(&wait, "gateway.wait", absl::Seconds(20), "longest poll");
    options.Add(&engines, "gateway.engine", {}, "engine addresses");
    options.Add(&ranks, "gateway.ranks", {1}, "numbers of ranks");
    options.Add(&shares, "gateway.share", {}, "shares");
    options.Add(&paths, "gateway.path", {}, "paths", {.keeps_commas = true});
    options.Add(&secret, "gateway.secret", "", "a secret", {.secret = true});
  }

  absl::Status Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "lathe-example");
    return options.Parse(static_cast<int>(arguments.size()), arguments.data());
  }
};

// A configuration file and an environment variable that are removed at the end of the test.
struct ConfigFile {
  explicit ConfigFile(const std::string& text) {
    const int fd = mkstemp(path);
    close(fd);
    std::ofstream(path) << text;
  }
  ~ConfigFile() { unlink(path); }
  char path[32] = "/tmp/lathe-config-XXXXXX";
};

struct Variable {
  Variable(const char* variable, const char* value) : name(variable) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
  const char* name;
};

TEST_CASE("Defaults hold when nothing is given", "[config]") {
  Example example;
  REQUIRE(example.Parse({}).ok());
  CHECK(example.listen == "127.0.0.1:8080");
  CHECK(example.wait == absl::Seconds(20));
  CHECK(example.engines.empty());
}

TEST_CASE("Every type is read from flags", "[config]") {
  Example example;
  const absl::Status status =
      example.Parse({"--listen", "0.0.0.0:1", "--num-threads=4", "--ratio", "0.25", "--reflection",
                     "--wait", "1.5s", "--engine", "a:1", "--engine", "b:2"});
  REQUIRE(status == absl::OkStatus());
  CHECK(example.listen == "0.0.0.0:1");
  CHECK(example.threads == 4);
  CHECK(example.ratio == 0.25);
  CHECK(example.reflection);
  CHECK(example.wait == absl::Milliseconds(1500));
  CHECK(example.engines == std::vector<std::string>{"a:1", "b:2"});
}

TEST_CASE("Lists of numbers are read as lists of text are", "[config]") {
  Example example;
  REQUIRE(example.Parse({}).ok());
  CHECK(example.ranks == std::vector<int>{1});
  SECTION("from a repeated flag, and from text with commas") {
    REQUIRE(example.Parse({"--ranks", "2", "--ranks", "4", "--share", "0.25,0.75"}).ok());
    CHECK(example.ranks == std::vector<int>{2, 4});
    CHECK(example.shares == std::vector<double>{0.25, 0.75});
    CHECK(absl::StrContains(example.options.DumpWithOrigin(), "gateway.share = 0.25,0.75  # --"));
  }
  SECTION("from a file") {
    const ConfigFile file("gateway:\n  ranks: [2, 4]\n  share: 0.5\n");
    REQUIRE(example.Parse({"--config", file.path}).ok());
    CHECK(example.ranks == std::vector<int>{2, 4});
    CHECK(example.shares == std::vector<double>{0.5});
  }
  SECTION("and refused with what is not a number") {
    const absl::Status status = example.Parse({"--ranks", "2", "--ranks", "two"});
    CHECK(status.message() == "gateway.ranks: 'two' is not a 32-bit integer (from --ranks)");
    CHECK(example.ranks == std::vector<int>{1});
  }
}

TEST_CASE("A list of paths is never split at commas", "[config]") {
  Example example;
  SECTION("of a flag") {
    REQUIRE(example.Parse({"--path", "a,b"}).ok());
    CHECK(example.paths == std::vector<std::string>{"a,b"});
  }
  SECTION("of a repeated flag") {
    REQUIRE(example.Parse({"--path", "a,b", "--path", "c"}).ok());
    CHECK(example.paths == std::vector<std::string>{"a,b", "c"});
  }
  SECTION("of the environment") {
    const Variable variable("LATHE_GATEWAY__PATH", "a,b");
    REQUIRE(example.Parse({}).ok());
    CHECK(example.paths == std::vector<std::string>{"a,b"});
  }
  SECTION("of a file") {
    const std::string text = GENERATE("'a,b'", "['a,b']");
    const ConfigFile file("gateway:\n  path: " + text + "\n");
    REQUIRE(example.Parse({"--config", file.path}).ok());
    CHECK(example.paths == std::vector<std::string>{"a,b"});
  }
}

TEST_CASE("A flag wins over the environment, the environment over the file", "[config]") {
  const ConfigFile file("gateway:\n  listen: file:1\n  num_threads: 7\n  ratio: 0.75\n");
  const Variable variable("LATHE_GATEWAY__NUM_THREADS", "8");
  const Variable overridden("LATHE_GATEWAY__LISTEN", "environment:1");
  Example example;
  REQUIRE(example.Parse({"--config", file.path, "--listen", "flag:1"}) == absl::OkStatus());
  CHECK(example.listen == "flag:1");
  CHECK(example.threads == 8);
  CHECK(example.ratio == 0.75);
  const std::string dump = example.options.DumpWithOrigin();
  CHECK(absl::StrContains(dump, "gateway.listen = flag:1  # --listen\n"));
  CHECK(absl::StrContains(dump, "gateway.num_threads = 8  # LATHE_GATEWAY__NUM_THREADS\n"));
  CHECK(absl::StrContains(dump, std::string("gateway.ratio = 0.75  # ") + file.path + ":4\n"));
  CHECK(absl::StrContains(dump, "gateway.wait = 20s  # default\n"));
}

TEST_CASE("Unknown keys fail and name the nearest one", "[config]") {
  SECTION("in the file") {
    const ConfigFile file("gateway:\n  lisen: x\n");
    const absl::Status status = Example().Parse({"--config", file.path});
    CHECK(ErrorCode(status) == "configuration");
    CHECK(absl::StrContains(status.message(), "unknown key 'gateway.lisen'"));
    CHECK(absl::StrContains(status.message(), std::string(file.path) + ":2"));
    CHECK(absl::StrContains(status.message(), "did you mean 'gateway.listen'?"));
  }
  SECTION("in the environment") {
    const Variable variable("LATHE_GATEWAY__LISEN", "x");
    CHECK(absl::StrContains(Example().Parse({}).message(), "did you mean 'gateway.listen'?"));
  }
  SECTION("on the command line") {
    const absl::Status status = Example().Parse({"--lisen=x"});
    CHECK(ErrorCode(status) == "usage");
    CHECK(status.message() == "unknown argument '--lisen', did you mean '--listen'?");
  }
}

TEST_CASE("Keys of other processes are left alone, unknown sections are not", "[config]") {
  const Variable variable("LATHE_WORKER__ANYTHING", "x");
  const ConfigFile file("engine:\n  store: sqlite:x\n");
  CHECK(Example().Parse({"--config", file.path}).ok());
  const ConfigFile unknown("gatway:\n  listen: x\n");
  CHECK(absl::StrContains(Example().Parse({"--config", unknown.path}).message(),
                          "unknown key 'gatway.listen'"));
}

TEST_CASE("A section that several processes have a part of is one file's", "[config]") {
  const Variable variable("LATHE_METRICS__WORKER_LISTEN", "127.0.0.1:3");
  const ConfigFile file("metrics:\n  gateway_listen: 127.0.0.1:1\n  engine_listen: 127.0.0.1:2\n");
  std::string listen;
  OptionSet options("lathe-example", "An example.");
  options.Add(&listen, "metrics.engine_listen", "", "address");
  const char* const arguments[] = {"lathe-example", "--config", file.path};
  CHECK(options.Parse(3, arguments).ok());
  CHECK(listen == "127.0.0.1:2");
  const ConfigFile unknown("metrics:\n  gatway_listen: 127.0.0.1:1\n");
  const char* const wrong[] = {"lathe-example", "--config", unknown.path};
  CHECK(
      absl::StrContains(options.Parse(3, wrong).message(), "unknown key 'metrics.gatway_listen'"));
}

TEST_CASE("A value of the wrong type names key, value and origin", "[config]") {
  const ConfigFile file("gateway:\n  num_threads: many\n");
  CHECK(Example().Parse({"--config", file.path}).message() ==
        std::string("gateway.num_threads: 'many' is not a 32-bit integer (from ") + file.path +
            ":2)");
  CHECK(ErrorCode(Example().Parse({"--wait", "5"})) == "usage");
}

TEST_CASE("All mistakes are reported at once", "[config]") {
  const ConfigFile file("gateway:\n  num_threads: many\n  lisen: x\n");
  const Variable variable("LATHE_GATEWAY__WAIT", "soon");
  const std::string message(Example().Parse({"--config", file.path}).message());
  CHECK(absl::StrContains(message, "gateway.num_threads"));
  CHECK(absl::StrContains(message, std::string(file.path) + ":3"));
  CHECK(absl::StrContains(message, "LATHE_GATEWAY__WAIT"));
}

TEST_CASE("A broken or missing file is a configuration error", "[config]") {
  const ConfigFile file("gateway: [1, 2\n");
  CHECK(ErrorCode(Example().Parse({"--config", file.path})) == "configuration");
  CHECK(ErrorCode(Example().Parse({"--config", "/nonexistent.yaml"})) == "configuration");
}

TEST_CASE("Secrets are masked and have no flag", "[config]") {
  const Variable variable("LATHE_GATEWAY__SECRET", "hush");
  Example example;
  REQUIRE(example.Parse({}).ok());
  CHECK(example.secret == "hush");
  CHECK_FALSE(absl::StrContains(example.options.DumpWithOrigin(), "hush"));
  CHECK(ErrorCode(Example().Parse({"--secret", "x"})) == "usage");
}

TEST_CASE("Of a URL the password alone is masked", "[config]") {
  const auto [url, shown] = GENERATE(table<std::string, std::string>({
      {"postgres://me:hush@h:1/db", "postgres://me:***@h:1/db"},
      {"postgres://me:hu?sh@h/db", "postgres://me:***@h/db"},
      {"postgres://me:hu#sh@h/db", "postgres://me:***@h/db"},
      {"postgres:///db?host=/run&password=hush&user=me",
       "postgres:///db?host=/run&password=***&user=me"},
      {"postgres://me@h/db?a=b:c@d", "postgres://me@h/db?a=b:c@d"},
      {"sqlite:/data/a:b@c.db", "sqlite:/data/a:b@c.db"},
  }));
  std::string store;
  OptionSet options("program", "");
  options.Add(&store, "engine.store", "", "", {.may_hold_password = true});
  const std::array<const char*, 3> arguments = {"program", "--store", url.c_str()};
  REQUIRE(options.Parse(arguments.size(), arguments.data()).ok());
  CHECK(store == url);
  CHECK(options.DumpWithOrigin() ==
        "engine.store = " + shown + "  # --store\nengine.store_file =   # default\n");
}

TEST_CASE("Required options, choices and positional words are enforced", "[config]") {
  std::string device;
  std::string id;
  OptionSet options("lathe", "");
  options.Add(&device, "worker.device", "", "device",
              {.required = true, .choices = {"cpu", "cuda"}});
  options.AddPositional(&id, "ID", "a key id");
  const char* missing[] = {"lathe", "k1"};
  CHECK(options.Parse(2, missing).message() == "--device is missing: device");
  const char* wrong[] = {"lathe", "k1", "--device", "tpu"};
  CHECK(options.Parse(4, wrong).message() ==
        "worker.device is 'tpu', expected one of cpu, cuda (from --device)");
  const char* right[] = {"lathe", "--device", "cpu", "k1"};
  REQUIRE(options.Parse(4, right) == absl::OkStatus());
  CHECK(id == "k1");
}

TEST_CASE("A secret comes from a file that any source names", "[config]") {
  const ConfigFile secret("hush\n");
  const std::string flag = std::string("--secret-file=") + secret.path;
  const ConfigFile config(std::string("gateway:\n  secret_file: ") + secret.path + "\n");
  {
    const Variable variable("LATHE_GATEWAY__SECRET_FILE", secret.path);
    Example from_environment;
    REQUIRE(from_environment.Parse({}).ok());
    CHECK(from_environment.secret == "hush");
    const std::string dump = from_environment.options.DumpWithOrigin();
    CHECK(absl::StrContains(dump, "gateway.secret = ***  # gateway.secret_file\n"));
    CHECK(absl::StrContains(dump, absl::StrCat(secret.path, "  # LATHE_GATEWAY__SECRET_FILE")));
  }
  Example from_flag, from_config;
  REQUIRE(from_flag.Parse({flag.c_str()}).ok());
  CHECK(from_flag.secret == "hush");
  REQUIRE(from_config.Parse({"--config", config.path}).ok());
  CHECK(from_config.secret == "hush");
}

TEST_CASE("A secret and its file are not given both", "[config]") {
  const ConfigFile secret("hush\n");
  const Variable value("LATHE_GATEWAY__SECRET", "other");
  {
    const Variable none("LATHE_GATEWAY__SECRET_FILE", "");
    CHECK(Example().Parse({}).ok());
  }
  const Variable file("LATHE_GATEWAY__SECRET_FILE", secret.path);
  const absl::Status status = Example().Parse({});
  CHECK(ErrorCode(status) == "configuration");
  CHECK(status.message() ==
        "gateway.secret (from LATHE_GATEWAY__SECRET) and gateway.secret_file (from "
        "LATHE_GATEWAY__SECRET_FILE) are both given");
}

TEST_CASE("A secret's file that cannot be used is named, and its content is not", "[config]") {
  const ConfigFile empty("\n"), several("hush\nhush\n");
  const std::string paths[] = {"/no/such/file", "/tmp", empty.path, several.path};
  for (const std::string& path : paths) {
    const Variable file("LATHE_GATEWAY__SECRET_FILE", path.c_str());
    const absl::Status status = Example().Parse({});
    CHECK(ErrorCode(status) == "configuration");
    CHECK(absl::StartsWith(status.message(), absl::StrCat("gateway.secret_file: '", path, "' ")));
    CHECK_FALSE(absl::StrContains(status.message(), "hush"));
  }
}

TEST_CASE("A URL with a password from a file is masked as a whole", "[config]") {
  const ConfigFile file("postgres://me:hush@h/db?sslpassword=x\n");
  std::string store;
  OptionSet options("program", "");
  options.Add(&store, "engine.store", "", "", {.may_hold_password = true});
  const std::array<const char*, 3> arguments = {"program", "--store-file", file.path};
  REQUIRE(options.Parse(arguments.size(), arguments.data()).ok());
  CHECK(store == "postgres://me:hush@h/db?sslpassword=x");
  CHECK(absl::StartsWith(options.DumpWithOrigin(), "engine.store = ***  # engine.store_file\n"));
}

TEST_CASE("A borrowed option is read like its owner's, and claims nothing", "[config]") {
  const ConfigFile file("gateway:\n  listen: 0.0.0.0:80\n  threads: 2\n");
  const Variable variable("LATHE_GATEWAY__NAME", "x");
  std::string listen;
  OptionSet options("lathe probe", "");
  options.Add(&listen, "gateway.listen", "", "", {.borrowed = true});
  const char* arguments[] = {"lathe", "--config", file.path};
  REQUIRE(options.Parse(3, arguments) == absl::OkStatus());
  CHECK(listen == "0.0.0.0:80");
  const char* flag[] = {"lathe", "--listen", "x"};
  CHECK(ErrorCode(options.Parse(3, flag)) == "usage");
}

TEST_CASE("A bare flag does not take the positional word after it", "[config]") {
  bool live = false;
  std::string url;
  OptionSet options("lathe probe", "");
  options.Add(&live, "probe.live", false, "");
  options.AddPositional(&url, "URL", "a page");
  const char* bare[] = {"lathe", "--live", "http://x"};
  REQUIRE(options.Parse(3, bare) == absl::OkStatus());
  CHECK(live);
  CHECK(url == "http://x");
  const char* with_value[] = {"lathe", "--live", "false", "http://y"};
  REQUIRE(options.Parse(4, with_value) == absl::OkStatus());
  CHECK_FALSE(live);
  CHECK(url == "http://y");
}

TEST_CASE("A positional word may be left out if it is not required", "[config]") {
  std::string url = "none";
  OptionSet options("lathe probe", "");
  options.AddPositional(&url, "URL", "a page", /*required=*/false);
  const char* arguments[] = {"lathe", "http://x"};
  REQUIRE(options.Parse(1, arguments) == absl::OkStatus());
  CHECK(url == "none");
  REQUIRE(options.Parse(2, arguments) == absl::OkStatus());
  CHECK(url == "http://x");
}

TEST_CASE("Help and version are answered without an error", "[config]") {
  const absl::Status help = Example().Parse({"--help"});
  CHECK(absl::IsCancelled(help));
  CHECK(absl::StrContains(help.message(), "--num-threads"));
  CHECK(absl::StrContains(help.message(), "longest poll"));
  CHECK(Example().Parse({"--version"}).message() ==
        absl::StrCat("lathe-example ", std::string(kVersion), "\n"));
}

}  // namespace
}  // namespace lathe
