#include "services/api-gateway/json/listing_json.h"

#include "services/api-gateway/json/metadata_json.h"
#include "services/api-gateway/json/session_json.h"

namespace lathe::gateway {

Json CheckpointToJson(const v1::Checkpoint& checkpoint) {
  return {{"checkpoint_id", checkpoint.checkpoint_id()},
          {"checkpoint_type", checkpoint.checkpoint_type()},
          {"time", TimestampText(checkpoint.time())},
          {"tinker_path", checkpoint.tinker_path()},
          {"size_bytes", checkpoint.size_bytes()},
          {"public", checkpoint.public_()},
          {"missing", checkpoint.missing()},
          {"user_metadata", MetadataToJson(checkpoint.user_metadata())},
          {"expires_at", checkpoint.has_expires_at() ? Json(TimestampText(checkpoint.expires_at()))
                                                     : Json(nullptr)}};
}

Json RunToJson(const v1::Run& run) {
  Json json = {{"training_run_id", run.training_run_id()},
               {"base_model", run.base_model()},
               {"model_owner", run.model_owner()},
               {"is_lora", run.is_lora()},
               {"lora_rank", run.lora_rank()},
               {"last_request_time", TimestampText(run.last_request_time())},
               {"corrupted", run.corrupted()},
               {"last_checkpoint", nullptr},
               {"last_sampler_checkpoint", nullptr},
               {"user_metadata", MetadataToJson(run.user_metadata())}};
  if (run.has_last_checkpoint()) json["last_checkpoint"] = CheckpointToJson(run.last_checkpoint());
  if (run.has_last_sampler_checkpoint()) {
    json["last_sampler_checkpoint"] = CheckpointToJson(run.last_sampler_checkpoint());
  }
  return json;
}

Json ListRunsToJson(const v1::ListRunsResponse& response, int64_t limit, int64_t offset) {
  Json runs = Json::array();
  for (const v1::Run& run : response.runs()) runs.push_back(RunToJson(run));
  return {{"training_runs", std::move(runs)},
          {"cursor", CursorToJson(limit, offset, response.total_count())}};
}

Json ListCheckpointsToJson(const v1::ListCheckpointsResponse& response, int64_t limit,
                           int64_t offset) {
  Json checkpoints = Json::array();
  for (const v1::Checkpoint& checkpoint : response.checkpoints()) {
    checkpoints.push_back(CheckpointToJson(checkpoint));
  }
  return {{"checkpoints", std::move(checkpoints)},
          {"cursor", CursorToJson(limit, offset, response.total_count())}};
}

}  // namespace lathe::gateway
