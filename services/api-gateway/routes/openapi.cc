#include "services/api-gateway/routes/route_table.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/api-gateway/assets/embedded_file.h"
#include "services/api-gateway/json/accounts_json.h"
#include "services/api-gateway/json/metrics_json.h"
#include "services/api-gateway/json/model_json.h"
#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/json/result_json.h"
#include "services/api-gateway/json/sampling_json.h"
#include "services/api-gateway/json/session_json.h"
#include "services/api-gateway/json/tenants_json.h"
#include "services/api-gateway/json/users_json.h"
#include "services/api-gateway/json/weights_json.h"

namespace lathe::gateway {
namespace {

constexpr char kJsonType[] = "application/json";

OrderedJson Reference(const std::string& kind, const std::string& name) {
  return {{"$ref", absl::StrCat("#/components/", kind, "/", name)}};
}

OrderedJson SchemaContent(const std::string& schema) {
  return {{kJsonType, {{"schema", Reference("schemas", schema)}}}};
}

OrderedJson BytesContent(const std::string& type) {
  OrderedJson schema = {{"type", "string"}};
  if (type.starts_with("application/")) schema["format"] = "binary";
  // The document names the type without its character set.
  return {{type.substr(0, type.find(';')), {{"schema", std::move(schema)}}}};
}

OrderedJson ParametersOf(const Route& route) {
  OrderedJson parameters = OrderedJson::array();
  for (const absl::string_view segment : absl::StrSplit(route.pattern, '/')) {
    if (segment.empty() || segment[0] != '{') continue;
    parameters.push_back(
        Reference("parameters", std::string(segment.substr(1, segment.size() - 2))));
  }
  for (const std::string& name : route.query) {
    parameters.push_back(Reference("parameters", name));
  }
  return parameters;
}

OrderedJson ResponsesOf(const Route& route) {
  OrderedJson responses = OrderedJson::object();
  if (route.answer.empty() && route.answer_type.empty()) {
    responses["204"] = {{"description", "Done."}};
  } else {
    responses[std::to_string(route.status)] = {
        {"description", "The answer."},
        {"content",
         route.answer.empty() ? BytesContent(route.answer_type) : SchemaContent(route.answer)}};
  }
  for (const auto& [status, meaning] : route.errors) {
    responses[std::to_string(status)] = {{"description", meaning}};
  }
  responses["default"] = Reference("responses", "Error");
  return responses;
}

OrderedJson OperationOf(const Route& route) {
  OrderedJson operation = {{"tags", OrderedJson::array({route.tag})}, {"summary", route.summary}};
  if (!route.description.empty()) operation["description"] = route.description;
  if (OrderedJson parameters = ParametersOf(route); !parameters.empty()) {
    operation["parameters"] = std::move(parameters);
  }
  if (route.access == Access::kPublic) operation["security"] = OrderedJson::array();
  if (route.access == Access::kSession) {
    operation["security"] = OrderedJson::array({{{"Session", OrderedJson::array()}}});
  }
  if (!route.request.empty()) {
    OrderedJson content = SchemaContent(route.request);
    if (route.takes_protobuf) content.update(BytesContent("application/x-protobuf"));
    operation["requestBody"] = {{"required", true}, {"content", std::move(content)}};
  }
  operation["responses"] = ResponsesOf(route);
  return operation;
}

// Adds the schemas of bodies that are read by tables of fields.
template <typename... T>
void AddSchemas(OrderedJson* schemas, const BodyFields<T>&... bodies) {
  (AddSchema(bodies, *T::descriptor(), schemas), ...);
}

}  // namespace

std::string OpenApiDocument(const std::vector<Route>& routes) {
  OrderedJson document = OrderedJson::parse(FindFile(DocsFiles(), "openapi.json")->bytes);
  AddSchemas(&document["components"]["schemas"], kCreateSession, kHeartbeat, kFinishSession,
             kAssignProject, kSearchSessions, kCreateModel, kUnloadModel, kGetInfo, kOptimStep,
             kSaveWeights, kSaveWeightsForSampler, kSaveWeightsExternal, kCopyWeights, kLoadWeights,
             kWeightsInfo, kSetTtl, kCreateSamplingSession, kJoinSamplingSession, kSample,
             kCancelFuture, kRetrieveFuture, kAwaitSamples, kAppendMetrics, kCreateKey, kRotateKey,
             kQuota, kUpdateUser);
  for (const Route& route : routes) {
    document["paths"][route.pattern][absl::AsciiStrToLower(route.method)] = OperationOf(route);
  }
  return document.dump(1);
}

}  // namespace lathe::gateway
