#include "tools/lathe/commands/tenants_command.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/admin_client.h"
#include "tools/lathe/data_dir_options.h"

namespace lathe::cli {
namespace {

std::string LimitText(int64_t limit) { return limit == 0 ? "none" : absl::StrCat(limit); }

absl::Status ListTenants(int argc, const char* const* argv) {
  DataDirOptions data;
  OptionSet options("lathe tenants list",
                    "Lists the tenants, what they may use and what they hold.");
  AddDataDirOptions(options, data);
  RETURN_IF_ERROR(options.Parse(argc, argv));
  ASSIGN_OR_RETURN(const v1::ListTenantsResponse list,
                   AdminClient(OpenDataDir(data)).ListTenants());
  std::printf("%-16s %14s %14s %14s %14s %14s %9s %9s\n", "TENANT", "REQUESTS/MIN", "TOKENS/MIN",
              "QUEUED BYTES", "STORED BYTES", "OF", "ADAPTERS", "OF");
  for (const v1::TenantInfo& tenant : list.tenants()) {
    const v1::Quota& quota = tenant.quota();
    std::printf(
        "%-16s %14s %14s %14s %14s %14s %9s %9s\n", tenant.name().c_str(),
        LimitText(quota.requests_per_minute()).c_str(),
        LimitText(quota.tokens_per_minute()).c_str(), LimitText(quota.queued_bytes()).c_str(),
        absl::StrCat(tenant.stored_bytes()).c_str(), LimitText(quota.stored_bytes()).c_str(),
        absl::StrCat(tenant.adapters()).c_str(), LimitText(quota.adapters()).c_str());
  }
  return absl::OkStatus();
}

absl::Status SetQuota(int argc, const char* const* argv) {
  // Value of an option that is not given.
  constexpr int64_t kUnset = -1;
  DataDirOptions data;
  std::string tenant;
  int64_t requests = kUnset, tokens = kUnset, queued = kUnset, stored = kUnset, adapters = kUnset;
  OptionSet options("lathe tenants set-quota",
                    "Limits what a tenant may use; limits that are not given stay, 0 lifts one.");
  AddDataDirOptions(options, data);
  options.Add(&requests, "tenants.requests_per_minute", kUnset,
              "limit of requests that become futures, per minute; 0: no limit");
  options.Add(&tokens, "tenants.tokens_per_minute", kUnset,
              "limit of tokens in these requests, per minute; 0: no limit");
  options.Add(&queued, "tenants.queued_bytes", kUnset,
              "limit of bytes in bodies of unfinished requests; 0: no limit");
  options.Add(&stored, "tenants.stored_bytes", kUnset,
              "limit of bytes in checkpoints; 0: no limit");
  options.Add(&adapters, "tenants.adapters", kUnset, "limit of live models; 0: no limit");
  options.AddPositional(&tenant, "TENANT", "as `lathe tenants list` shows it");
  RETURN_IF_ERROR(options.Parse(argc, argv));

  v1::SetQuotaRequest request;
  request.set_tenant(tenant);
  v1::Quota* const quota = request.mutable_quota();
  if (requests != kUnset) quota->set_requests_per_minute(requests);
  if (tokens != kUnset) quota->set_tokens_per_minute(tokens);
  if (queued != kUnset) quota->set_queued_bytes(queued);
  if (stored != kUnset) quota->set_stored_bytes(stored);
  if (adapters != kUnset) quota->set_adapters(adapters);
  return AdminClient(OpenDataDir(data)).SetQuota(request).status();
}

}  // namespace

absl::Status TenantsCommand(int argc, const char* const* argv) {
  const std::string_view action = argc > 1 ? argv[1] : "";
  if (action == "list") return ListTenants(argc - 1, argv + 1);
  if (action == "set-quota") return SetQuota(argc - 1, argv + 1);
  return WithDetail(absl::InvalidArgumentError("lathe tenants needs one of list, set-quota TENANT"),
                    "usage");
}

}  // namespace lathe::cli
