// Lets EngineClient call the services beside lathe.v1.Engine.
#pragma once

#include "protos/lathe/v1/accounts.grpc.pb.h"
#include "protos/lathe/v1/checkpoints.grpc.pb.h"
#include "protos/lathe/v1/groups.grpc.pb.h"
#include "protos/lathe/v1/metrics.grpc.pb.h"
#include "protos/lathe/v1/sign_in.grpc.pb.h"
#include "protos/lathe/v1/tenants.grpc.pb.h"
#include "protos/lathe/v1/traces.grpc.pb.h"
#include "protos/lathe/v1/users.grpc.pb.h"
#include "services/api-gateway/engine_client/engine_client.h"

namespace lathe::gateway {

using AccountsStub = v1::Accounts::StubInterface::async_interface;

template <>
struct ServiceOf<AccountsStub> {
  using type = v1::Accounts;
};

template <>
struct ServiceOf<v1::Checkpoints::StubInterface::async_interface> {
  using type = v1::Checkpoints;
};

using TenantsStub = v1::Tenants::StubInterface::async_interface;

template <>
struct ServiceOf<TenantsStub> {
  using type = v1::Tenants;
};

using MetricsStub = v1::Metrics::StubInterface::async_interface;

template <>
struct ServiceOf<MetricsStub> {
  using type = v1::Metrics;
};

using SignInStub = v1::SignIn::StubInterface::async_interface;

template <>
struct ServiceOf<SignInStub> {
  using type = v1::SignIn;
};

using UsersStub = v1::Users::StubInterface::async_interface;

template <>
struct ServiceOf<UsersStub> {
  using type = v1::Users;
};

using GroupsStub = v1::Groups::StubInterface::async_interface;

template <>
struct ServiceOf<GroupsStub> {
  using type = v1::Groups;
};

using TracesStub = v1::Traces::StubInterface::async_interface;

template <>
struct ServiceOf<TracesStub> {
  using type = v1::Traces;
};

}  // namespace lathe::gateway
