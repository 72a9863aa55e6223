// Collects the names of a server's services, for health checks by name.
#pragma once

#include <grpcpp/impl/server_builder_option.h>

#include <memory>
#include <string>
#include <vector>

namespace lathe::engine {

// Sets `names` to the full names of all services. `names` must outlive BuildAndStart.
class ServiceNamesOption final : public grpc::ServerBuilderOption {
 public:
  explicit ServiceNamesOption(std::vector<std::string>* names) : names_(names) {}

  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override;

 private:
  std::vector<std::string>* const names_;
};

}  // namespace lathe::engine
