// Lets EngineClient call lathe.v1.Checkpoints.
#pragma once

#include "protos/lathe/v1/checkpoints.grpc.pb.h"
#include "services/api-gateway/engine_client/engine_client.h"

namespace lathe::gateway {

template <>
struct ServiceOf<v1::Checkpoints::StubInterface::async_interface> {
  using type = v1::Checkpoints;
};

}  // namespace lathe::gateway
