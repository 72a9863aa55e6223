// The page on which a process of this machine answers probes.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "libs/common/config/option_set.h"
#include "tools/lathe/launch/listen_address.h"

namespace lathe::cli {

// Options of the other programs that say where their pages are. Empty: not set.
struct PageOptions {
  std::string gateway_page;
  std::string engine_page;
  std::string worker_page;
  std::string up_page;
  std::string ranks_page;
  // Addresses of the API, which has the probes too.
  std::string gateway_api;
  std::string gateway_cert;
  std::string up_api;
  std::string up_cert;
};

// Reads `options` from the same file and environment as the programs do. `options` must outlive
// `set`.
void AddPageOptions(OptionSet& set, PageOptions& options);

// Returns the page of `program` (gateway, engine, worker, up or ranks; empty: the only one that has
// a page, or else the API at its default address). Error usage if the page is not known.
absl::StatusOr<ListenAddress> FindPage(const PageOptions& options, const std::string& program);

struct ProbeTarget {
  ListenAddress address;
  // Path with query; empty: the URL has none.
  std::string path;
};

// Splits http://HOST:PORT[/PATH]. HOST is an address or localhost. Error usage otherwise.
absl::StatusOr<ProbeTarget> ParseProbeUrl(const std::string& url);

}  // namespace lathe::cli
