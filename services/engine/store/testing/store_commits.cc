// Commits numbered requests to a store. Prints the number of the last request of each commit once
// the commit is durable. Fault tests kill this program or take its database away. It continues
// after the last request in the store. tests/fault/store_commits.py checks the contents afterwards.
//   store_commits STORE DATA_DIR COUNT SEED
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <list>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/store/open_store.h"
#include "services/engine/store/testing/store_rows.h"

namespace lathe::engine {
namespace {

// A request with its body, its result and an entry of the audit log. Nothing replaces an audit
// entry, so a group that is written twice has two.
struct Group {
  std::vector<Write> writes;
  std::vector<Blob> blobs;
  std::list<std::string> bytes;  // contents of the blobs

  void Add(int64_t number) {
    const std::string id = absl::StrCat("r", number);
    RequestRow row = TestRequest(id, number);
    row.body_id = absl::StrCat("b", number);
    bytes.push_back(std::string(number % 3000, 'b'));
    row.body_bytes = static_cast<int64_t>(bytes.back().size());
    blobs.push_back({row.body_id, bytes.back()});
    writes.push_back(InsertRequest{row});
    bytes.push_back(id);
    blobs.push_back({id, bytes.back()});
    writes.push_back(CompleteRequest{id, RequestState::kDone, id, number + 1});
    AuditRow entry = TestAudit(number);
    entry.object = id;
    writes.push_back(AppendAudit{entry});
  }
};

int Fail(const absl::Status& status) {
  fprintf(stderr, "store_commits: %s\n", status.ToString().c_str());
  return 1;
}

int Run(const std::string& setting, const std::string& data_dir, int64_t count, uint64_t seed) {
  auto store = OpenStore(setting, data_dir);
  if (!store.ok()) return Fail(store.status());
  const absl::StatusOr<StoredState> state = (*store)->TakeLeadership();
  if (!state.ok()) return Fail(state.status());
  const auto newest = (*store)->ListAudit("t1", "", 0, std::numeric_limits<int64_t>::max(), 1);
  if (!newest.ok()) return Fail(newest.status());
  std::mt19937_64 random(seed);
  int64_t next = newest->empty() ? 0 : newest->front().at + 1;
  while (next < count) {
    Group group;
    const int64_t end = std::min<int64_t>(count, next + 1 + static_cast<int64_t>(random() % 4));
    for (; next < end; ++next) group.Add(next);
    const absl::Status status = (*store)->Commit(state->term, group.writes, group.blobs);
    if (!status.ok()) return Fail(status);
    printf("%lld\n", static_cast<long long>(next - 1));
    fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace lathe::engine

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: store_commits STORE DATA_DIR COUNT SEED\n");
    return 2;
  }
  return lathe::engine::Run(argv[1], argv[2], std::atoll(argv[3]),
                            std::strtoull(argv[4], nullptr, 10));
}
