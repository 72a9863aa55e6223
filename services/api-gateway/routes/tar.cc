#include "services/api-gateway/routes/tar.h"

#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

namespace lathe::gateway {
namespace {

constexpr size_t kMaxNameBytes = 100;

struct Sink {
  std::string bytes;
  // True if AppendTo refuses further bytes.
  bool is_full = false;
};

la_ssize_t AppendTo(struct archive*, void* sink, const void* bytes, size_t size) {
  auto* const out = static_cast<Sink*>(sink);
  if (out->is_full) return -1;
  out->bytes.append(static_cast<const char*>(bytes), size);
  return static_cast<la_ssize_t>(size);
}

// Frees a writer whose member got no bytes. archive_write_free would pad the member to its size,
// but it gives up once the sink is full. It then frees its buffers, which it does not do after
// archive_write_fail.
struct Abandon {
  Sink* sink;

  void operator()(struct archive* writer) const {
    sink->is_full = true;
    archive_write_free(writer);
  }
};

struct FreeEntry {
  void operator()(struct archive_entry* entry) const { archive_entry_free(entry); }
};

}  // namespace

absl::StatusOr<std::string> TarHeader(const TarMember& member, absl::Time modified_at) {
  if (member.name.empty() || member.name.size() > kMaxNameBytes || member.name[0] == '.' ||
      absl::StrContains(member.name, "/")) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' cannot be the name of an archive member", member.name));
  }
  const std::unique_ptr<struct archive_entry, FreeEntry> entry(archive_entry_new());
  archive_entry_set_pathname(entry.get(), member.name.c_str());
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_entry_set_perm(entry.get(), 0644);
  archive_entry_set_size(entry.get(), member.num_bytes);
  archive_entry_set_mtime(entry.get(), absl::ToUnixSeconds(modified_at), 0);
  Sink sink;
  const std::unique_ptr<struct archive, Abandon> writer(archive_write_new(), Abandon{&sink});
  archive_write_set_format_pax_restricted(writer.get());
  archive_write_set_bytes_per_block(writer.get(), 0);
  if (archive_write_open(writer.get(), &sink, nullptr, AppendTo, nullptr) != ARCHIVE_OK ||
      archive_write_header(writer.get(), entry.get()) != ARCHIVE_OK) {
    return absl::InternalError(absl::StrFormat("an archive header cannot be written: %s",
                                               archive_error_string(writer.get())));
  }
  return std::move(sink.bytes);
}

std::string TarPadding(int64_t num_bytes) {
  return std::string((kTarBlockBytes - num_bytes % kTarBlockBytes) % kTarBlockBytes, '\0');
}

std::string TarEnd() { return std::string(2 * kTarBlockBytes, '\0'); }

}  // namespace lathe::gateway
