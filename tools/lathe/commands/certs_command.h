// lathe certs init|renew: a private CA and the certificates of gateways, engines and workers.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

absl::Status CertsCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
