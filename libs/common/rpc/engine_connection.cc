#include "libs/common/rpc/engine_connection.h"

#include <utility>

namespace lathe {

void AddEngineConnection(OptionSet& set, const std::string& section, EngineConnection& connection) {
  set.Add(&connection.addresses, section + ".engine", {},
          "addresses of the engines' worker listeners, unix:PATH or HOST:PORT; default: the "
          "socket in the run directory");
  set.Add(&connection.tls.ca, section + ".engine_ca", "",
          "PEM file with CAs; an engine on another machine must present a certificate that one "
          "of them signed");
  set.Add(&connection.tls.cert, section + ".engine_cert", "",
          "PEM file with the client certificate for the engine");
  set.Add(&connection.tls.key, section + ".engine_key", "", "PEM file of its private key");
  set.Add(&connection.insecure_i_know, section + ".insecure_i_know", false,
          "allows an engine on another machine without TLS");
  set.Add(&connection.secret_file, section + ".secret_file", "",
          "file with the engine's secret; default: RUN_DIR/secret");
}

absl::Status Check(const EngineConnection& connection) {
  return CheckChannelTls(connection.tls, connection.addresses, connection.insecure_i_know);
}

std::vector<std::string> ToArguments(const EngineConnection& connection) {
  std::vector<std::string> arguments;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {flag, value});
  };
  for (const std::string& address : connection.addresses) add("--engine", address);
  add("--engine-ca", connection.tls.ca);
  add("--engine-cert", connection.tls.cert);
  add("--engine-key", connection.tls.key);
  add("--secret-file", connection.secret_file);
  if (connection.insecure_i_know) arguments.emplace_back("--insecure-i-know");
  return arguments;
}

}  // namespace lathe
