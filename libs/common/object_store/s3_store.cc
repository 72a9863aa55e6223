#include "libs/common/object_store/s3_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "libs/common/logging/logging.h"
#include "libs/common/object_store/local_file_error.h"
#include "libs/common/object_store/object_name.h"
#include "libs/common/object_store/s3_errors.h"
#include "libs/common/object_store/s3_xml.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

// S3 allows 10,000 parts of an upload.
constexpr int64_t kMaxParts = 9'000;
// S3 copies larger objects only in parts; its limit is 5 GiB.
constexpr int64_t kMaxCopiedAtOnce = int64_t{4} << 30;
constexpr int64_t kCopiedPart = int64_t{64} << 20;
constexpr int kMaxCompletions = 5;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const fs::path& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Time ParseTime(const std::string& text, const char* format) {
  absl::Time time;
  std::string error;
  return absl::ParseTime(format, text, &time, &error) ? time : absl::Now();
}

std::string RangeHeader(int64_t offset, int64_t size) {
  return absl::StrFormat("Range: bytes=%d-%d", offset, offset + size - 1);
}

// The body that completes an upload in parts.
std::string CompletionOf(const std::vector<std::string>& tags) {
  std::string body = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (size_t i = 0; i < tags.size(); ++i) {
    absl::StrAppend(&body, "<Part><PartNumber>", i + 1, "</PartNumber><ETag>", tags[i],
                    "</ETag></Part>");
  }
  return body + "</CompleteMultipartUpload>";
}

}  // namespace

S3Store::S3Store(S3Options options, AwsCredentials::Environment environment)
    : client_(std::move(options), std::move(environment)) {}

std::string S3Store::KeyOf(const std::string& name) const {
  const std::string& prefix = client_.options().prefix;
  return prefix.empty() ? name : absl::StrCat(prefix, "/", name);
}

std::string S3Store::NameOf(const std::string& key) const {
  const std::string& prefix = client_.options().prefix;
  return prefix.empty() ? key : key.substr(std::min(key.size(), prefix.size() + 1));
}

std::string S3Store::AddressOf(const std::string& name) const {
  return client_.AddressOf(KeyOf(name));
}

int64_t S3Store::PartBytes(int64_t size) const {
  return std::max(client_.options().part_bytes, (size + kMaxParts - 1) / kMaxParts);
}

absl::Status S3Store::PutText(const std::string& name, const std::string& text) {
  RETURN_IF_ERROR(CheckObjectName(name));
  return client_.Run({.method = "PUT", .key = KeyOf(name), .body = text}).status();
}

absl::Status S3Store::PutIfAbsent(const std::string& name, const std::string& text) {
  RETURN_IF_ERROR(CheckObjectName(name));
  const absl::Status put =
      client_
          .Run({.method = "PUT", .key = KeyOf(name), .headers = {"If-None-Match: *"}, .body = text})
          .status();
  if (!absl::IsAlreadyExists(put)) return put;
  // An earlier attempt may have made it without our knowing.
  const auto existing = GetText(name, static_cast<int64_t>(text.size()));
  return existing.ok() && *existing == text ? absl::OkStatus() : put;
}

absl::Status S3Store::PutFile(const std::string& name, const fs::path& file) {
  RETURN_IF_ERROR(CheckObjectName(name));
  const Descriptor source(file, O_RDONLY);
  struct stat info {};
  if (source.get() < 0 || fstat(source.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, file.string());
  }
  if (info.st_size > client_.options().part_bytes) {
    return PutLargeFile(name, source.get(), info.st_size);
  }
  return client_
      .Run({.method = "PUT",
            .key = KeyOf(name),
            .upload = FileSlice{.descriptor = source.get(), .num_bytes = info.st_size}})
      .status();
}

absl::Status S3Store::PutLargeFile(const std::string& name, int descriptor, int64_t size) {
  const int64_t part_bytes = PartBytes(size);
  return PutParts(name, size, [&](const std::string& upload_id) {
    std::vector<S3Request> parts;
    for (int64_t offset = 0; offset < size; offset += part_bytes) {
      parts.push_back(
          {.method = "PUT",
           .key = KeyOf(name),
           .query = {{"partNumber", absl::StrCat(parts.size() + 1)}, {"uploadId", upload_id}},
           .upload = FileSlice{.descriptor = descriptor,
                               .offset = offset,
                               .num_bytes = std::min(part_bytes, size - offset)}});
    }
    return client_.RunAll(parts);
  });
}

template <typename Put>
absl::Status S3Store::PutParts(const std::string& name, int64_t size, const Put& put) {
  ASSIGN_OR_RETURN(const S3Response begun,
                   client_.Run({.method = "POST", .key = KeyOf(name), .query = {{"uploads", ""}}}));
  const std::string upload_id = XmlElement::Parse(begun.body).Text("UploadId");
  if (upload_id.empty()) {
    return absl::UnavailableError(
        absl::StrFormat("POST %s: the store began no upload in parts", AddressOf(name)));
  }
  const auto upload = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<S3Response> parts, put(upload_id));
    std::vector<std::string> tags;
    for (const S3Response& response : parts) {
      const auto tag = response.headers.find("etag");
      tags.push_back(tag == response.headers.end() ? "" : tag->second);
    }
    return Complete(name, upload_id, CompletionOf(tags), size);
  };
  absl::Status status = upload();
  if (status.ok()) return status;
  const absl::Status aborted =
      client_.Run({.method = "DELETE", .key = KeyOf(name), .query = {{"uploadId", upload_id}}})
          .status();
  if (!aborted.ok() && !absl::IsNotFound(aborted)) {
    LogWarn("an upload in parts cannot be aborted; the engine does it after a day",
            {{"object", AddressOf(name)}, {"error", aborted.message()}});
  }
  return status;
}

// An attempt may have succeeded though its answer was lost. A repetition would then find no upload,
// so the object is looked for first.
absl::Status S3Store::Complete(const std::string& name, const std::string& upload_id,
                               const std::string& body, int64_t size) {
  absl::Status status;
  for (int attempt = 0; attempt < kMaxCompletions; ++attempt) {
    if (attempt > 0) {
      const absl::StatusOr<ObjectInfo> made = Head(name);
      if (made.ok() && made->size_bytes == size) return absl::OkStatus();
      absl::SleepFor(absl::Milliseconds(100) * (int64_t{1} << attempt));
    }
    absl::StatusOr<S3Response> response = client_.Run({.method = "POST",
                                                       .key = KeyOf(name),
                                                       .query = {{"uploadId", upload_id}},
                                                       .headers = {"Content-Type: application/xml"},
                                                       .body = body,
                                                       .may_repeat = false});
    // The store may answer 200 before it knows, and then send an error as the body.
    if (response.ok() && XmlElement::Parse(response->body).name() == "Error") {
      response->status = 500;
      status = ReadFailure(*response, "POST", AddressOf(name)).status;
    } else {
      status = response.status();
    }
    if (!absl::IsUnavailable(status) && !absl::IsNotFound(status)) return status;
  }
  return status;
}

absl::StatusOr<std::string> S3Store::Get(const std::string& name, int64_t offset, int64_t size) {
  RETURN_IF_ERROR(CheckObjectName(name));
  if (size == 0) return std::string();
  ASSIGN_OR_RETURN(
      S3Response response,
      client_.Run({.method = "GET", .key = KeyOf(name), .headers = {RangeHeader(offset, size)}}));
  const bool is_whole = response.status == 200 && offset == 0;
  if ((response.status == 206 || is_whole) && static_cast<int64_t>(response.body.size()) == size) {
    return std::move(response.body);
  }
  return absl::DataLossError(
      absl::StrFormat("GET %s: the store sent %d bytes with status %d, expected %d from %d",
                      AddressOf(name), response.body.size(), response.status, size, offset));
}

absl::StatusOr<std::string> S3Store::GetText(const std::string& name, int64_t max_bytes) {
  RETURN_IF_ERROR(CheckObjectName(name));
  ASSIGN_OR_RETURN(S3Response response, client_.Run({.method = "GET", .key = KeyOf(name)}));
  if (static_cast<int64_t>(response.body.size()) <= max_bytes) return std::move(response.body);
  return absl::DataLossError(absl::StrFormat("%s has %d bytes, limit is %d", AddressOf(name),
                                             response.body.size(), max_bytes));
}

absl::Status S3Store::GetFile(const std::string& name, int64_t size, const fs::path& file) {
  ASSIGN_OR_RETURN(const ObjectInfo info, Head(name));
  if (info.size_bytes != size) {
    return absl::DataLossError(
        absl::StrFormat("%s has %d bytes, expected %d", AddressOf(name), info.size_bytes, size));
  }
  const Descriptor sink(file, O_WRONLY | O_CREAT | O_EXCL);
  if (sink.get() < 0) return LocalFileError(file, "create", errno);
  if (size == 0) return absl::OkStatus();
  // Reserving the room first finds a full disk before the transfer.
  if (const int error = posix_fallocate(sink.get(), 0, size); error == ENOSPC || error == EDQUOT) {
    return LocalFileError(file, "write", error);
  }
  const int64_t part_bytes = PartBytes(size);
  std::vector<S3Request> parts;
  for (int64_t offset = 0; offset < size; offset += part_bytes) {
    const int64_t num_bytes = std::min(part_bytes, size - offset);
    parts.push_back({.method = "GET",
                     .key = KeyOf(name),
                     .headers = {RangeHeader(offset, num_bytes)},
                     .download = FileSlice{
                         .descriptor = sink.get(), .offset = offset, .num_bytes = num_bytes}});
  }
  return client_.RunAll(parts).status();
}

absl::StatusOr<ObjectInfo> S3Store::Head(const std::string& name) {
  RETURN_IF_ERROR(CheckObjectName(name));
  const absl::StatusOr<S3Response> response = client_.Run({.method = "HEAD", .key = KeyOf(name)});
  if (absl::IsNotFound(response.status())) return ConfirmMissing(name);
  RETURN_IF_ERROR(response.status());
  ObjectInfo info{.name = name, .size_bytes = -1, .modified_at = absl::Now()};
  for (const auto& [header, value] : response->headers) {
    if (header == "content-length") static_cast<void>(absl::SimpleAtoi(value, &info.size_bytes));
    if (header == "last-modified") {
      info.modified_at = ParseTime(value, "%a, %d %b %Y %H:%M:%S GMT");
    }
  }
  if (info.size_bytes >= 0) return info;
  return absl::UnavailableError(
      absl::StrFormat("HEAD %s: the answer has no length", AddressOf(name)));
}

absl::Status S3Store::ConfirmMissing(const std::string& name) {
  const absl::Status status =
      client_.Run({.method = "GET", .key = KeyOf(name), .headers = {RangeHeader(0, 1)}}).status();
  if (absl::IsNotFound(status) || absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(absl::StrFormat("HEAD %s: the store answered 404, and %s to a GET",
                                                AddressOf(name),
                                                status.ok() ? "sent it" : status.ToString()));
}

absl::StatusOr<std::vector<ObjectInfo>> S3Store::List(const std::string& prefix) {
  std::vector<ObjectInfo> objects;
  std::string token;
  do {
    S3Request request{
        .method = "GET", .key = "", .query = {{"list-type", "2"}, {"prefix", KeyOf(prefix)}}};
    if (!token.empty()) request.query.emplace_back("continuation-token", token);
    ASSIGN_OR_RETURN(const S3Response response, client_.Run(request));
    const XmlElement page = XmlElement::Parse(response.body);
    if (page.name() != "ListBucketResult") {
      return absl::UnavailableError(absl::StrFormat("GET %s: no listing", AddressOf(prefix)));
    }
    for (const XmlElement& entry : page.Children("Contents")) {
      ObjectInfo info{.name = NameOf(entry.Text("Key")),
                      .modified_at = ParseTime(entry.Text("LastModified"), absl::RFC3339_full)};
      static_cast<void>(absl::SimpleAtoi(entry.Text("Size"), &info.size_bytes));
      // Other programs may keep objects whose names are not ours.
      if (CheckObjectName(info.name).ok()) objects.push_back(std::move(info));
    }
    token = page.Text("IsTruncated") == "true" ? page.Text("NextContinuationToken") : "";
  } while (!token.empty());
  return objects;
}

absl::StatusOr<std::vector<std::string>> S3Store::ListFolders(const std::string& prefix) {
  std::vector<std::string> folders;
  std::string token;
  do {
    S3Request request{.method = "GET",
                      .key = "",
                      .query = {{"list-type", "2"}, {"delimiter", "/"}, {"prefix", KeyOf(prefix)}}};
    if (!token.empty()) request.query.emplace_back("continuation-token", token);
    ASSIGN_OR_RETURN(const S3Response response, client_.Run(request));
    const XmlElement page = XmlElement::Parse(response.body);
    if (page.name() != "ListBucketResult") {
      return absl::UnavailableError(absl::StrFormat("GET %s: no listing", AddressOf(prefix)));
    }
    for (const XmlElement& entry : page.Children("CommonPrefixes")) {
      std::string folder = NameOf(entry.Text("Prefix"));
      if (folder.size() <= prefix.size() + 1) continue;
      folder = folder.substr(prefix.size(), folder.size() - prefix.size() - 1);
      if (CheckObjectName(folder).ok()) folders.push_back(std::move(folder));
    }
    token = page.Text("IsTruncated") == "true" ? page.Text("NextContinuationToken") : "";
  } while (!token.empty());
  return folders;
}

absl::Status S3Store::Copy(const std::string& from, const std::string& to, int64_t size) {
  RETURN_IF_ERROR(CheckObjectName(from));
  RETURN_IF_ERROR(CheckObjectName(to));
  const std::string source =
      absl::StrCat("x-amz-copy-source: /", client_.options().bucket, "/", KeyOf(from));
  if (size <= kMaxCopiedAtOnce) {
    ASSIGN_OR_RETURN(
        S3Response response,
        client_.Run({.method = "PUT", .key = KeyOf(to), .headers = {source}, .is_slow = true}));
    if (XmlElement::Parse(response.body).name() != "Error") return absl::OkStatus();
    response.status = 500;
    return ReadFailure(response, "PUT", AddressOf(to)).status;
  }
  return CopyThroughHere(from, to, size);
}

// The store can copy parts itself, but curl 7.88 signs that request wrongly: it sorts the header
// x-amz-copy-source-range before x-amz-copy-source.
absl::Status S3Store::CopyThroughHere(const std::string& from, const std::string& to,
                                      int64_t size) {
  // Containers may lack a writable /tmp, and one of enough room.
  const Descriptor piece(memfd_create("copied-part", MFD_CLOEXEC));
  if (piece.get() < 0) return LocalFileError("memory", "reserve", errno);
  const int64_t part_bytes = std::max(kCopiedPart, PartBytes(size));
  return PutParts(
      to, size, [&](const std::string& upload_id) -> absl::StatusOr<std::vector<S3Response>> {
        std::vector<S3Response> parts;
        for (int64_t offset = 0; offset < size; offset += part_bytes) {
          const FileSlice slice{.descriptor = piece.get(),
                                .num_bytes = std::min(part_bytes, size - offset)};
          RETURN_IF_ERROR(client_
                              .Run({.method = "GET",
                                    .key = KeyOf(from),
                                    .headers = {RangeHeader(offset, slice.num_bytes)},
                                    .download = slice})
                              .status());
          ASSIGN_OR_RETURN(parts.emplace_back(),
                           client_.Run({.method = "PUT",
                                        .key = KeyOf(to),
                                        .query = {{"partNumber", absl::StrCat(parts.size() + 1)},
                                                  {"uploadId", upload_id}},
                                        .upload = slice}));
        }
        return parts;
      });
}

absl::Status S3Store::Delete(const std::string& name) {
  RETURN_IF_ERROR(CheckObjectName(name));
  const absl::Status status = client_.Run({.method = "DELETE", .key = KeyOf(name)}).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<int64_t> S3Store::AbortUploads(const std::string& prefix, absl::Time before) {
  ASSIGN_OR_RETURN(
      const S3Response response,
      client_.Run(
          {.method = "GET", .key = "", .query = {{"uploads", ""}, {"prefix", KeyOf(prefix)}}}));
  int64_t num_aborted = 0;
  // A page has up to 1,000. What is beyond it comes in a later call.
  for (const XmlElement& upload : XmlElement::Parse(response.body).Children("Upload")) {
    if (ParseTime(upload.Text("Initiated"), absl::RFC3339_full) >= before) continue;
    const std::string key = upload.Text("Key");
    if (!absl::StartsWith(key, KeyOf(prefix)) || !CheckObjectName(key).ok()) continue;
    const absl::Status aborted =
        client_
            .Run({.method = "DELETE", .key = key, .query = {{"uploadId", upload.Text("UploadId")}}})
            .status();
    if (!aborted.ok() && !absl::IsNotFound(aborted)) return aborted;
    ++num_aborted;
  }
  return num_aborted;
}

}  // namespace lathe
