// What makes two requests with one key the same request.
#pragma once

#include <string>

#include "protos/lathe/v1/checkpoints.pb.h"
#include "protos/lathe/v1/engine.pb.h"

namespace lathe::engine {

// SHA-256 (hex) over the fields in a fixed order, behind a version byte: hashes of another version
// are not compared. Named entries count sorted. Left out: the key itself, fields unknown to this
// version, and sampling_session_seq_id, which an outer retry changes.
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
