// Lets EngineClient call lathe.v1.Traces.
#pragma once

#include "protos/lathe/v1/traces.grpc.pb.h"
#include "services/api-gateway/engine_client/engine_client.h"

namespace lathe::gateway {

using TracesStub = v1::Traces::StubInterface::async_interface;

template <>
struct ServiceOf<TracesStub> {
  using type = v1::Traces;
};

}  // namespace lathe::gateway
