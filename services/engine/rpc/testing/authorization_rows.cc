#include "services/engine/rpc/testing/authorization_rows.h"

namespace lathe::engine::authorization {

const std::vector<Row>& Matrix() {
  static const std::vector<Row> rows = {
      {"Authenticate", kAllScopes, ""},
      // First, because the log also records refused attempts with the names in them.
      {"ListAudit", kAdmin, ""},
      {"ListTenantKeys", kAdmin, ""},
      {"CreateTenantKey", kAdmin, "name: 'made'"},
      {"RotateTenantKey", kAdmin, "key_id: '$K' overlap_seconds: 60"},
      {"ListTenants", kAdmin, ""},
      {"SetTenantQuota", kOperator, "tenant: 'default' quota { adapters: 1000 }"},
      {"GetCapabilities", kAllScopes, ""},
      {"CreateSession", {"train", "sample", "read"}, ""},
      {"Heartbeat", kAllScopes, "session_id: '$S'"},
      {"ListSessions", kRead, ""},
      {"GetSession", kRead, "session_id: '$S'"},
      {"CreateModel", kTrain,
       "session_id: '$S' model_seq_id: 5 base_model: 'tiny' lora_config { rank: 8 train_mlp: true "
       "}"},
      {"ForwardBackward", kTrain,
       "model_id: '$M' seq_id: 12 loss { name: 'cross_entropy' } malformed: 'damaged'"},
      {"OptimStep", kTrain, "model_id: '$M' seq_id: 13 adam_params { learning_rate: 1 eps: 1 }"},
      {"SaveWeights", kTrain, "model_id: '$M' seq_id: 14 name: 'again'"},
      {"SaveWeightsForSampler", kTrain, "model_id: '$M' seq_id: 15 name: 'again'"},
      {"LoadWeights", kTrain, "model_id: '$M' seq_id: 16 path: '$P'"},
      {"LoadWeights", kTrain, "session_id: '$S' model_seq_id: 6 path: '$P'"},
      {"LoadWeights", kTrain, "session_id: '$OWN' model_seq_id: 7 path: '$P'"},
      {"GetModel", kAllScopes, "model_id: '$M'"},
      {"CreateSamplingSession", kSample,
       "session_id: '$S' sampling_session_seq_id: 5 base_model: 'tiny'"},
      {"CreateSamplingSession", kSample,
       "session_id: '$OWN' sampling_session_seq_id: 6 model_path: '$P'"},
      {"JoinSamplingSession", kSample, "sampling_session_id: '$A'"},
      {"GetSampler", kAllScopes, "sampling_session_id: '$A'"},
      {"Sample", kSample,
       "sampling_session_id: '$A' num_samples: 1 prompt { tokens: '\\1\\0\\0\\0' } "
       "params { max_tokens: 1 top_p: 1 top_k: -1 }"},
      {"SampleStream", kSample,
       "sampling_session_id: '$A' seq_id: 1 num_samples: 1 prompt { tokens: '\\1\\0\\0\\0' } "
       "params { max_tokens: 1 top_p: 1 top_k: -1 }"},
      {"CancelSample", kSample, "request_id: '$R'"},
      {"GetResult", kAllScopes, "request_id: '$R'"},
      {"AwaitSamples", kAllScopes, "sampling_session_id: '$A' retrieved_request_ids: '$R'"},
      {"Watch", kAllScopes, "subscribe { request_id: '$R' api_key: '$KEY' }"},
      {"ListRuns", kRead, ""},
      {"GetRun", kRead, "training_run_id: '$M'"},
      {"ListCheckpoints", kRead, ""},
      {"ListCheckpoints", kRead, "training_run_id: '$M'"},
      {"GetWeightsInfo", kAllScopes, "tinker_path: '$P'"},
      {"SetCheckpointTtl", kWrite, "tinker_path: '$P' ttl_seconds: 4000"},
      {"SaveWeightsExternal", kTrain, "model_id: '$M' seq_id: 17 name: 'again'"},
      {"DescribeExternalWeights", kRead, "tinker_path: '$X'"},
      {"CopyWeights", kWrite, "source_path: '$P' idempotency_key: 'k'"},
      {"AssignSessionProject", {"train", "sample"}, "session_id: '$S' project_id: 'p'"},
      {"ListProjectRuns", kRead, "project_id: 'p'"},
      {"SearchSessions", kRead, "owner: 'accessible'"},
      {"ListUsage", kRead, "starting_on { seconds: 0 } ending_before { seconds: 3600 }"},
      {"GetCheckpointStorage", kRead, ""},
      {"GetServiceStatus", kRead, ""},
      {"GetOwnKey", kAllScopes, ""},
      {"ExchangeToken", kAllScopes, ""},
      {"GetOwnSession", kAllScopes, ""},
      {"EndOwnSession", kAllScopes, ""},
      {"ListUsers", kAdmin, ""},
      {"EndUserSession", kAdmin, "user_id: '$U' session_id: '$B'"},
      // Ends all sessions of the user.
      {"UpdateUser", kAdmin, "user_id: '$U' role: 'viewer'"},
      {"ListUserSessions", kAdmin, "user_id: '$U'"},
      {"DescribeArchive", kRead, "tinker_path: '$P'"},
      // The token is the credential.
      {"OpenArchive", {}, "token: '$T'"},
      {"DescribeTrace", kRead, "session_id: '$S'"},
      {"OpenTrace", {}, "token: '$V'"},
      {"ListRunRequests", kRead, "training_run_id: '$M' limit: 10"},
      {"Append", kTrain, "training_run_id: '$M' points: {name: 'a' value: 1 step: 2}"},
      {"Query", kRead, "training_run_id: '$M'"},
      {"ListGroupModels", kOperator, "group: 'g0'"},
      {"DrainGroup", kOperator, "group: 'g0'"},
      {"ResumeGroup", kOperator, "group: 'g0'"},
      {"RemoveGroup", kOperator, "group: 'g0'"},
      {"MoveModel", kOperator, "model_id: '$M' group: 'g0'"},
      {"QueryMachine", kRead, "own_tenant: true"},
      {"Stream", kRead, "subscribe { subscription_id: 1 training_run_id: '$M' api_key: '$KEY' }"},
      {"PublishCheckpoint", kWrite, "tinker_path: '$P' public: false"},
      // These end the owner's objects, so they come last.
      {"DeleteCheckpoint", kWrite, "tinker_path: '$P'"},
      {"UnloadModel", kTrain, "model_id: '$M'"},
      {"FinishSession", kAllScopes, "session_id: '$S' reason: 'success'"},
      {"RevokeTenantKey", kAdmin, "key_id: '$K'"},
      {"RevokeOwnKey", kAllScopes, ""},
  };
  return rows;
}

const std::vector<Row>& TokenMatrix() {
  static const std::vector<Row> rows = {
      {"LoadWeights", kTrain,
       "session_id: '$OWN' model_seq_id: $N path: '$P' weights_access_token: '$W'"},
      {"CopyWeights", kRead, "source_path: '$P' weights_access_token: '$W'"},
  };
  return rows;
}

}  // namespace lathe::engine::authorization
