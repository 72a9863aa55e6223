// Runs a fuzz target without libFuzzer, which would require Clang. Reads seeds, mutates them at
// random and calls LLVMFuzzerTestOneInput. The inputs are deterministic for a given --seed.
//
//   NAME_fuzz CORPUS [--runs=N] [--seconds=S] [--seed=X]
//       Runs N mutated inputs, or if N is 0, runs for S seconds.
//   NAME_fuzz FILE...
//       Runs only these inputs, unchanged.
//
// A file named *.esc holds C escapes (\x00) for bytes that are not text. An input that crashes, or
// takes over 20 s, is saved as ./crash-NAME_fuzz.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Defined only in a build with a sanitizer, such as the address sanitizer.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Random = std::mt19937_64;

constexpr size_t kMaxInputBytes = 64 << 10;
constexpr unsigned kHangSeconds = 20;

// Input that the crash handler saves, and the file to save it in.
std::string current_input;
std::string crash_file;

void SaveCurrentInput() {
  const int fd = open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0) return;
  const ssize_t written = write(fd, current_input.data(), current_input.size());
  if (written >= 0) dprintf(2, "fuzz: input left in %s\n", crash_file.c_str());
  close(fd);
}

void OnSignal(int signal) {
  SaveCurrentInput();
  ::signal(signal, SIG_DFL);
  raise(signal);
}

std::string ReadInput(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (path.extension() != ".esc") return text;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::string bytes, error;
  if (!absl::CUnescape(text, &bytes, &error)) {
    std::fprintf(stderr, "fuzz: %s: %s\n", path.c_str(), error.c_str());
    std::exit(2);
  }
  return bytes;
}

void RunOne(std::string input) {
  current_input = std::move(input);
  alarm(kHangSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current_input.data()),
                         current_input.size());
  alarm(0);
}

size_t Below(Random& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

// Returns a number that is often a limit, as text or as 1 to 8 raw bytes.
std::string InterestingNumber(Random& random) {
  static const int64_t kNumbers[] = {
      0,         1,        -1, 127, 128, 255, 256, 65535, 65536, INT32_MAX, int64_t{INT32_MAX} + 1,
      INT64_MAX, INT64_MIN};
  const int64_t number = kNumbers[Below(random, std::size(kNumbers))];
  if (Below(random, 2) == 0) return std::to_string(number);
  const size_t size = size_t{1} << Below(random, 4);
  return std::string(reinterpret_cast<const char*>(&number), size);
}

void MutateOnce(Random& random, const std::vector<std::string>& seeds, std::string& input) {
  const size_t at = Below(random, input.size() + 1);
  const size_t length = std::min(Below(random, 16) + 1, input.size() - at);
  const std::string& other = seeds[Below(random, seeds.size())];
  const size_t other_at = Below(random, other.size() + 1);
  switch (Below(random, 9)) {
    case 0:
      if (at < input.size()) input[at] ^= static_cast<char>(1 << Below(random, 8));
      break;
    case 1:
      if (at < input.size()) input[at] = static_cast<char>(random());
      break;
    case 2:
      input.erase(at, length);
      break;
    case 3:
      input.insert(at, input.substr(at, length));
      break;
    case 4:
      input.insert(at, 1, static_cast<char>(random()));
      break;
    case 5:
      input.replace(at, length, InterestingNumber(random));
      break;
    case 6:
      input.insert(at, other.substr(other_at, Below(random, 64)));
      break;
    case 7:
      input = input.substr(0, at) + other.substr(other_at);
      break;
    case 8: {
      // Repeat a piece many times, for deep nesting or long input.
      const std::string piece = input.substr(at, std::min<size_t>(length, 4));
      std::string many;
      for (size_t i = Below(random, 2000); i > 0; --i) many += piece;
      input.insert(at, many);
      break;
    }
  }
  if (input.size() > kMaxInputBytes) input.resize(kMaxInputBytes);
}

std::string Mutated(Random& random, const std::vector<std::string>& seeds) {
  std::string input = seeds[Below(random, seeds.size())];
  for (size_t i = Below(random, 6) + 1; i > 0; --i) MutateOnce(random, seeds, input);
  return input;
}

struct Options {
  std::vector<std::filesystem::path> paths;
  int64_t num_runs = 0;
  int64_t seconds = 0;
  uint64_t seed = 1;
};

Options ReadOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const char* const value = argv[i] + argument.find('=') + 1;
    if (argument.starts_with("--runs=")) {
      options.num_runs = std::atoll(value);
    } else if (argument.starts_with("--seconds=")) {
      options.seconds = std::atoll(value);
    } else if (argument.starts_with("--seed=")) {
      options.seed = std::strtoull(value, nullptr, 10);
    } else {
      options.paths.emplace_back(argument);
    }
  }
  return options;
}

std::vector<std::string> ReadSeeds(const std::filesystem::path& corpus) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(corpus)) files.push_back(entry);
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const auto& file : files) seeds.push_back(ReadInput(file));
  return seeds;
}

int Fuzz(const Options& options) {
  const std::vector<std::string> seeds = ReadSeeds(options.paths[0]);
  if (seeds.empty()) return std::fputs("fuzz: the corpus is empty\n", stderr), 2;
  for (const std::string& seed : seeds) RunOne(seed);
  Random random(options.seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  int64_t done = 0;
  while (options.num_runs > 0 ? done < options.num_runs : std::chrono::steady_clock::now() < end) {
    RunOne(Mutated(random, seeds));
    ++done;
  }
  std::printf("fuzz: %lld runs from %zu seeds with --seed=%llu, no fault\n",
              static_cast<long long>(done), seeds.size(),
              static_cast<unsigned long long>(options.seed));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = ReadOptions(argc, argv);
  if (options.paths.empty()) return std::fputs("usage: NAME_fuzz CORPUS | FILE...\n", stderr), 2;
  crash_file = "crash-" + std::filesystem::path(argv[0]).filename().string();
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) {
    ::signal(signal, OnSignal);
  }
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(SaveCurrentInput);
  if (std::filesystem::is_directory(options.paths[0])) return Fuzz(options);
  for (const auto& path : options.paths) RunOne(ReadInput(path));
  return 0;
}
