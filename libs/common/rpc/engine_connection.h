// How ranks and their parents reach the engine: the options, for every program that has them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "libs/common/config/option_set.h"
#include "libs/common/rpc/channel.h"

namespace lathe {

struct EngineConnection {
  // Of the worker listeners, unix:PATH or HOST:PORT, tried in turn until one leads; empty: the
  // socket in the run directory.
  std::vector<std::string> addresses;
  ChannelTls tls;
  std::string secret_file;  // empty: RUN_DIR/secret
  bool insecure_i_know = false;
};

// Adds SECTION.engine, engine_ca, engine_cert, engine_key, secret_file and insecure_i_know.
void AddEngineConnection(OptionSet& set, const std::string& section, EngineConnection& connection);

// As CheckChannelTls.
absl::Status Check(const EngineConnection& connection);

// The flags that say the same to another program.
std::vector<std::string> ToArguments(const EngineConnection& connection);

}  // namespace lathe
