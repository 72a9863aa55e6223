// Files that the build puts into the gateway (cmake/LatheEmbed.cmake).
#pragma once

#include <span>
#include <string_view>

namespace lathe::gateway {

struct EmbeddedFile {
  // Path within its directory, such as "assets/main-3RLZN5LD.js".
  std::string_view path;
  // Value of the Content-Type header.
  std::string_view content_type;
  // Hexadecimal digits.
  std::string_view sha256;
  std::string_view bytes;
  // The same bytes compressed by gzip; empty: they would not get smaller.
  std::string_view gzip_bytes;
};

// Files of docs_page/.
std::span<const EmbeddedFile> DocsFiles();
// Files of the dashboard. Without the dashboard, one page that says so.
std::span<const EmbeddedFile> DashboardFiles();

// Returns the file of that path, or null.
inline const EmbeddedFile* FindFile(std::span<const EmbeddedFile> files, std::string_view path) {
  for (const EmbeddedFile& file : files) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

}  // namespace lathe::gateway
