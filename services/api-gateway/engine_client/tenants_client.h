// Lets EngineClient call lathe.v1.Tenants.
#pragma once

#include "protos/lathe/v1/tenants.grpc.pb.h"
#include "services/api-gateway/engine_client/engine_client.h"

namespace lathe::gateway {

using TenantsStub = v1::Tenants::StubInterface::async_interface;

template <>
struct ServiceOf<TenantsStub> {
  using type = v1::Tenants;
};

}  // namespace lathe::gateway
