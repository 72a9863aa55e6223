#include "services/api-gateway/http/tls_contexts.h"

#include <openssl/ssl.h>

#include <utility>

#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"

namespace lathe::gateway {
namespace {

// Selects HTTP/1.1 in ALPN, because Beast supports no other protocol. Rejects the handshake of a
// client that offers only others.
int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* chosen_length,
                   const unsigned char* offered, unsigned int offered_length, void*) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* selected = nullptr;
  const int result = SSL_select_next_proto(&selected, chosen_length, kHttp11, sizeof(kHttp11) - 1,
                                           offered, offered_length);
  *chosen = selected;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

absl::Status TlsContexts::Load() {
  absl::MutexLock lock(&mu_);
  return LoadLocked();
}

absl::Status TlsContexts::LoadLocked() {
  checked_at_ = SteadyNow();
  stamp_ = StampOf(files_);
  ASSIGN_OR_RETURN(SslContextPtr loaded, LoadServerContext(files_));
  SSL_CTX_set_alpn_select_cb(loaded.get(), ChooseProtocol, nullptr);
  context_ = std::make_shared<boost::asio::ssl::context>(loaded.release());
  return absl::OkStatus();
}

std::shared_ptr<boost::asio::ssl::context> TlsContexts::Current() {
  absl::MutexLock lock(&mu_);
  if (SteadyNow() - checked_at_ >= kMaxAge) {
    checked_at_ = SteadyNow();
    if (StampOf(files_) != stamp_) {
      const absl::Status status = LoadLocked();
      if (status.ok()) {
        LogInfo("tls certificate loaded", {{"tls_cert", files_.cert}});
      } else {
        LogWarn("tls files cannot be used, the last ones stay in use",
                {{"error", status.message()}});
      }
    }
  }
  return context_;
}

}  // namespace lathe::gateway
