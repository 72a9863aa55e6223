// Lets EngineClient call lathe.v1.Accounts.
#pragma once

#include "protos/lathe/v1/accounts.grpc.pb.h"
#include "services/api-gateway/engine_client/engine_client.h"

namespace lathe::gateway {

using AccountsStub = v1::Accounts::StubInterface::async_interface;

template <>
struct ServiceOf<AccountsStub> {
  using type = v1::Accounts;
};

}  // namespace lathe::gateway
