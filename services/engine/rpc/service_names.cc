#include "services/engine/rpc/service_names.h"

#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/impl/server_initializer.h>

namespace lathe::engine {
namespace {

class NamesPlugin final : public grpc::ServerBuilderPlugin {
 public:
  explicit NamesPlugin(std::vector<std::string>* names) : names_(names) {}

  std::string name() override { return "service_names"; }
  void InitServer(grpc::ServerInitializer*) override {}
  void Finish(grpc::ServerInitializer* server) override { *names_ = *server->GetServiceList(); }
  void ChangeArguments(const std::string&, void*) override {}

 private:
  std::vector<std::string>* const names_;
};

}  // namespace

void ServiceNamesOption::UpdatePlugins(
    std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) {
  plugins->push_back(std::make_unique<NamesPlugin>(names_));
}

}  // namespace lathe::engine
