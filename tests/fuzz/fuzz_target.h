// Common parts of the fuzz targets. A target takes bytes and must return for any input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <unistd.h>

namespace lathe::fuzz {

inline std::string Text(const uint8_t* data, size_t size) {
  return std::string(reinterpret_cast<const char*>(data), size);
}

// Aborts if `holds` is false. `promise` is an invariant between two parts of Lathe that no input
// may break.
inline void Expect(bool holds, std::string_view promise) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: broken promise: %.*s\n", static_cast<int>(promise.size()),
               promise.data());
  std::abort();
}

// Returns a folder of this process for targets that read files. The folder is removed at exit; the
// path object is never destroyed.
inline const std::filesystem::path& Folder() {
  static const auto* const folder = [] {
    const auto* path = new std::filesystem::path(std::filesystem::temp_directory_path() /
                                                 ("lathe-fuzz-" + std::to_string(getpid())));
    std::filesystem::create_directories(*path);
    std::atexit([] { std::filesystem::remove_all(Folder()); });
    return path;
  }();
  return *folder;
}

inline void WriteFile(const std::filesystem::path& path, const uint8_t* data, size_t size) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
}

}  // namespace lathe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
