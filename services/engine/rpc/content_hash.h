// Content hashes, which decide if two requests with one key are the same request.
#pragma once

#include <string>

#include "protos/lathe/v1/checkpoints.pb.h"
#include "protos/lathe/v1/engine.pb.h"

namespace lathe::engine {

// Returns "1:" and the hex SHA-256 of the fields in a fixed order. Requests with different hashes
// are different requests. Rows keep the hash while engines of later versions run, so the hash of a
// request must never change. A field that is added later therefore counts only if it is set. Named
// entries are hashed in sorted order. The hash leaves out the key itself, unknown fields, and
// sampling_session_seq_id, which an outer retry changes.
std::string ContentHash(const v1::CreateModelRequest& request);
std::string ContentHash(const v1::UnloadModelRequest& request);
std::string ContentHash(const v1::ForwardBackwardRequest& request);
std::string ContentHash(const v1::OptimStepRequest& request);
std::string ContentHash(const v1::SaveWeightsRequest& request);
std::string ContentHash(const v1::SaveWeightsForSamplerRequest& request);
std::string ContentHash(const v1::SaveWeightsExternalRequest& request);
std::string ContentHash(const v1::LoadWeightsRequest& request);
std::string ContentHash(const v1::SampleRequest& request);

}  // namespace lathe::engine
