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
  std::printf("%-16s %14s %14s %14s %14s %14s %9s %9s %9s %9s %9s %9s %9s %9s %14s %14s\n",
              "TENANT", "REQUESTS/MIN", "TOKENS/MIN", "QUEUED BYTES", "STORED BYTES", "OF",
              "ADAPTERS", "OF", "SESSIONS", "OF", "SAMPLERS", "OF", "UNFETCHED", "OF",
              "THEIR BYTES", "OF");
  for (const v1::TenantInfo& tenant : list.tenants()) {
    const v1::Quota& quota = tenant.quota();
    std::printf(
        "%-16s %14s %14s %14s %14s %14s %9s %9s %9s %9s %9s %9s %9s %9s %14s %14s\n",
        tenant.name().c_str(), LimitText(quota.requests_per_minute()).c_str(),
        LimitText(quota.tokens_per_minute()).c_str(), LimitText(quota.queued_bytes()).c_str(),
        absl::StrCat(tenant.stored_bytes()).c_str(), LimitText(quota.stored_bytes()).c_str(),
        absl::StrCat(tenant.adapters()).c_str(), LimitText(quota.adapters()).c_str(),
        absl::StrCat(tenant.sessions()).c_str(), LimitText(quota.sessions()).c_str(),
        absl::StrCat(tenant.samplers()).c_str(), LimitText(quota.samplers()).c_str(),
        absl::StrCat(tenant.unfetched_results()).c_str(),
        LimitText(quota.unfetched_results()).c_str(),
        absl::StrCat(tenant.unfetched_bytes()).c_str(), LimitText(quota.unfetched_bytes()).c_str());
  }
  return absl::OkStatus();
}

absl::Status SetQuota(int argc, const char* const* argv) {
  // Value of an option that is not given.
  constexpr int64_t kUnset = -1;
  DataDirOptions data;
  std::string tenant;
  int64_t requests = kUnset, tokens = kUnset, queued = kUnset, stored = kUnset, adapters = kUnset;
  int64_t sessions = kUnset, samplers = kUnset, unfetched = kUnset, unfetched_bytes = kUnset;
  OptionSet options("lathe tenants set-quota",
                    "Limits what a tenant may use; limits that are not given stay, 0 lifts one.");
  AddDataDirOptions(options, data);
  options.Add(&requests, "tenants.requests_per_minute", kUnset,
              "limit of requests that become futures and of new sessions, per minute; 0: no limit");
  options.Add(&tokens, "tenants.tokens_per_minute", kUnset,
              "limit of tokens in these requests, per minute; 0: no limit");
  options.Add(&queued, "tenants.queued_bytes", kUnset,
              "limit of bytes in bodies of unfinished requests; 0: no limit");
  options.Add(&stored, "tenants.stored_bytes", kUnset,
              "limit of bytes in checkpoints; 0: no limit");
  options.Add(&adapters, "tenants.adapters", kUnset, "limit of live models; 0: no limit");
  options.Add(&sessions, "tenants.sessions", kUnset,
              "limit of sessions that have not ended; 0: no limit");
  options.Add(&samplers, "tenants.samplers", kUnset, "limit of live samplers; 0: no limit");
  options.Add(&unfetched, "tenants.unfetched_results", kUnset,
              "limit of finished results that nobody has fetched; above it the oldest are removed; "
              "0: no limit");
  options.Add(&unfetched_bytes, "tenants.unfetched_bytes", kUnset,
              "limit of their total size in bytes; 0: no limit");
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
  if (sessions != kUnset) quota->set_sessions(sessions);
  if (samplers != kUnset) quota->set_samplers(samplers);
  if (unfetched != kUnset) quota->set_unfetched_results(unfetched);
  if (unfetched_bytes != kUnset) quota->set_unfetched_bytes(unfetched_bytes);
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
