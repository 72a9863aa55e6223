// Responses of client/config and client/dynamic_config; the only place of these settings.
#pragma once

#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/routes/route_table.h"

namespace lathe::gateway {

// Every flag is a promise of the server. Flags that are not listed keep the SDK's defaults.
inline Json ClientConfig(const RouteOptions& options) {
  return {
      // The SDK then sends its key only to exchange it for a token, and whoami works.
      {"pjwt_auth_enabled", options.jwt_auth},
      // The client sends each chunk after the previous one was answered. Arrival order is then
      // sequence order, a refused chunk cannot hang the client, and gaps are detected at
      // once.
      {"parallel_fwdbwd_chunks", false},
      // SDKs up to 0.36 then resume with one request, as 0.38 always does.
      {"create_model_via_load_weights", true},
      // httpx has timeouts per phase. The other transport has one timeout for the whole call,
      // including uploads and long polls.
      {"use_pyqwest_transport", false},
      // Token arrays compress to a third of their size or less, at little cost.
      {"proto_compress_fwdbwd", true},
      // A client waits for all its samples with one poll. It then has no bound of its own on their
      // number.
      {"sample_use_retrieve_futures", options.retrieve_futures},
      // Bounds the samples of a client without sample_use_retrieve_futures, which holds a socket
      // for each. The value is below the gateway's connection limit and not above the engine's
      // bound on queued samples.
      {"sample_max_concurrent_requests", 2000},
      // Copies of a sampling client ask the server for distinct numbers instead of drawing random
      // ones.
      {"sample_join_sampling_session", true},
      // A custom loss runs in the client's process, at the cost of one more forward pass.
      {"custom_loss_server_side", false},
  };
}

// Clients report a sample that they no longer await, which frees its slot for other samples.
inline Json DynamicClientConfig() {
  return {{"refresh_interval_sec", 300}, {"sample_cancel_enabled", true}};
}

}  // namespace lathe::gateway
