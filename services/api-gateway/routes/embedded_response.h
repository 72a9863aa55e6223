// Answers with files that are built into the gateway.
#pragma once

#include <string>
#include <vector>

#include "services/api-gateway/assets/embedded_file.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

enum class Caching {
  // The client asks each time and gets 304 if the file is the same.
  kRevalidate,
  // For names with a hash of the content: the client never asks again.
  kImmutable,
};

// Returns the file with a validator, compressed if the client accepts gzip, or a 304 if
// If-None-Match names it. `headers` are added to either.
Response FileResponse(const Request& request, const EmbeddedFile& file, Caching caching,
                      std::vector<Header> headers);

// True if Accept-Encoding allows gzip, by its name or by "*".
bool AcceptsGzip(std::string_view accept_encoding);
// True if If-None-Match names `etag`, by the weak comparison, or is "*".
bool MatchesEtag(std::string_view if_none_match, std::string_view etag);

}  // namespace lathe::gateway
