// Rows of the authorization matrix: a call of every public rpc, and the scopes that allow it.
#pragma once

#include <string>
#include <vector>

namespace lathe::engine::authorization {

inline const std::vector<std::string> kAllScopes = {"train", "sample", "read", "checkpoints:write"};
inline const std::vector<std::string> kAdmin = {"admin"};
inline const std::vector<std::string> kEveryScope = {"train", "sample", "read", "checkpoints:write",
                                                     "admin"};
inline const std::vector<std::string> kOperator = {"operator"};
inline const std::vector<std::string> kTrain = {"train"};
inline const std::vector<std::string> kSample = {"sample"};
inline const std::vector<std::string> kRead = {"read"};
inline const std::vector<std::string> kWrite = {"checkpoints:write"};

struct Row {
  std::string method;
  // Sufficient scopes; a key needs one of them. Empty: needs no key.
  std::vector<std::string> scopes;
  // Request in text format. $S session, $M model, $R request, $A sampler, $P checkpoint, $X
  // external checkpoint, $U user, $B browser's session, $T archive token, $V trace token, $K id of
  // a key, $OWN a session of the caller, $KEY the caller's key.
  std::string request;
};

// Rows of all public rpcs, in the order in which the test calls them.
const std::vector<Row>& Matrix();

// Calls with a second credential, `weights_access_token`, and the scopes that it needs. $W is the
// credential, $N a new number.
const std::vector<Row>& TokenMatrix();

}  // namespace lathe::engine::authorization
