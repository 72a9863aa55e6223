// What client/config and client/dynamic_config answer: the one place of these settings.
#pragma once

#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/routes/route_table.h"

namespace lathe::gateway {

// Every flag is a promise (tinker-api 6.1); what is not listed keeps the SDK's default.
inline Json ClientConfig(const RouteOptions& options) {
  return {
      // The key then travels only to be exchanged, and whoami works (6.3).
      {"pjwt_auth_enabled", options.jwt_auth},
      // Chunks arrive in order, each after the previous was answered: arrival order is sequence
      // order, a refused chunk cannot hang the client, and gaps are known at once (18.3).
      {"parallel_fwdbwd_chunks", false},
      // SDKs until 0.36 then resume as 0.38 always does, with one request (9.2).
      {"create_model_via_load_weights", true},
      // httpx has timeouts per phase; the other transport has one for the whole call, uploads and
      // held polls included (4.1).
      {"use_pyqwest_transport", false},
      // Token arrays compress to a third or less, at little cost.
      {"proto_compress_fwdbwd", true},
      // One poll for all samples of a client, which then has no bound of its own on them (11.6).
      {"sample_use_retrieve_futures", options.retrieve_futures},
      // Without it: one socket each while they wait; below our connection limit, and the engine's
      // bound on queued samples is at least this.
      {"sample_max_concurrent_requests", 2000},
      // Copies of a sampling client get numbers of their own instead of drawing them (10.4).
      {"sample_join_sampling_session", true},
      // A custom loss runs in its program, at the price of one forward pass more (8.3).
      {"custom_loss_server_side", false},
  };
}

// A sample that nobody awaits any more is told to us, and its place goes to others (11.5).
inline Json DynamicClientConfig() {
  return {{"refresh_interval_sec", 300}, {"sample_cancel_enabled", true}};
}

}  // namespace lathe::gateway
