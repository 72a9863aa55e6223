// The options with which ranks and their parent processes reach the engine.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "libs/common/config/option_set.h"
#include "libs/common/rpc/channel.h"

namespace lathe {

struct EngineConnection {
  // Addresses of the worker listeners, unix:PATH or HOST:PORT. The client tries them in turn until
  // it finds the leader. Empty: the socket in the run directory.
  std::vector<std::string> addresses;
  ChannelTls tls;
  std::string secret_file;  // empty: RUN_DIR/secret
  bool insecure_i_know = false;
};

// Adds SECTION.engine, engine_ca, engine_cert, engine_key, secret_file and insecure_i_know.
void AddEngineConnection(OptionSet& set, const std::string& section, EngineConnection& connection);

// Returns the result of CheckChannelTls for these options.
absl::Status Check(const EngineConnection& connection);

// Returns the flags that give another program the same options.
std::vector<std::string> ToArguments(const EngineConnection& connection);

}  // namespace lathe
