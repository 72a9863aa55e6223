// The names of the services a server is built with: health answers by name.
#pragma once

#include <grpcpp/impl/server_builder_option.h>

#include <memory>
#include <string>
#include <vector>

namespace lathe::engine {

// Fills `names`, which must outlive BuildAndStart, with the full name of every service.
class ServiceNamesOption final : public grpc::ServerBuilderOption {
 public:
  explicit ServiceNamesOption(std::vector<std::string>* names) : names_(names) {}

  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override;

 private:
  std::vector<std::string>* const names_;
};

}  // namespace lathe::engine
