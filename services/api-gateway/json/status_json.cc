#include "services/api-gateway/json/status_json.h"

#include <string>
#include <utility>

#include "services/api-gateway/json/metadata_json.h"

namespace lathe::gateway {
namespace {

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

// Members that v1::QueuedModel and v1::ModelStatus have in common.
template <typename Model>
Json ModelToJson(const Model& model) {
  return {{"training_run_id", model.model_id()}, {"state", model.state()},
          {"applied_seq", model.applied_seq()},  {"pending", model.pending_requests()},
          {"group", TextOrNull(model.group())},  {"move_to", TextOrNull(model.move_to())},
          {"reason", TextOrNull(model.reason())}};
}

Json MemoryToJson(const v1::MemoryUse& memory) {
  Json shares = Json::array();
  for (const v1::MemoryShare& share : memory.shares()) {
    shares.push_back({{"owner", share.owner()},
                      {"used_bytes", share.used_bytes()},
                      {"limit_bytes", share.limit_bytes()}});
  }
  return {{"used_bytes", memory.used_bytes()},
          {"limit_bytes", memory.limit_bytes()},
          {"shares", std::move(shares)}};
}

Json RankToJson(const v1::RankState& rank) {
  return {{"rank", rank.rank()},
          {"device", rank.device()},
          {"memory", rank.has_memory() ? MemoryToJson(rank.memory()) : Json(nullptr)}};
}

}  // namespace

Json QueuesToJson(const google::protobuf::RepeatedPtrField<v1::OperationQueue>& queues) {
  Json list = Json::array();
  for (const v1::OperationQueue& queue : queues) {
    list.push_back({{"operation", queue.operation()},
                    {"waiting", queue.waiting()},
                    {"running", queue.running()}});
  }
  return list;
}

Json GroupToJson(const v1::GroupState& group) {
  Json json = {{"group", group.group()},
               {"state", group.state()},
               {"base_model", group.base_model()},
               {"epoch", group.epoch()},
               {"progress", TextOrNull(group.progress())},
               {"reason", TextOrNull(group.reason())},
               {"role", TextOrNull(group.role())},
               {"drain", TextOrNull(group.drain())},
               {"num_ranks", group.num_ranks()}};
  if (group.ranks().empty()) return json;
  json["ranks"] = Json::array();
  for (const v1::RankState& rank : group.ranks()) json["ranks"].push_back(RankToJson(rank));
  return json;
}

Json GroupModelsToJson(const v1::ListGroupModelsResponse& response) {
  Json models = Json::array();
  for (const v1::ModelStatus& model : response.models()) {
    Json json = ModelToJson(model);
    json["tenant"] = model.tenant();
    json["unsaved"] = model.unsaved();
    models.push_back(std::move(json));
  }
  return {{"num_models", response.num_models()},
          {"pending", response.pending_requests()},
          {"drain_left", TextOrNull(response.drain_left())},
          {"models", std::move(models)}};
}

Json ServiceStatusToJson(const v1::GetServiceStatusResponse& response) {
  Json models = Json::array();
  for (const v1::QueuedModel& model : response.models()) models.push_back(ModelToJson(model));
  Json groups = Json::array();
  for (const v1::GroupState& group : response.groups()) groups.push_back(GroupToJson(group));
  return {{"read_at", TimestampText(response.read_at())},
          {"version", response.version()},
          {"term", response.term()},
          {"refusal", TextOrNull(response.refusal())},
          {"queues",
           {{"all", QueuesToJson(response.all_queues())},
            {"own", QueuesToJson(response.own_queues())}}},
          {"num_models", response.num_models()},
          {"models", std::move(models)},
          {"groups", std::move(groups)}};
}

}  // namespace lathe::gateway
