#include <algorithm>
#include <utility>
#include <vector>

#include "services/worker/kernels/cpu/lora/lora_kernel.h"
#include "services/worker/layers/cpu_rows.h"
#include "services/worker/lora/lora_plan.h"

namespace lathe::worker {
namespace {

// Columns of dA and dB per task.
constexpr int64_t kGradientColumns = 512;

// Spans that add to one gradient buffer, in row order. They use one adapter, so they have the same
// pairs.
struct Owner {
  std::vector<const LoraSpan*> spans;
  std::vector<float*> a;  // rows of dA of all pairs
  std::vector<float*> b;  // columns of dB of all pairs
};

struct Task {
  const Owner* owner;
  int64_t pair;   // pair of the dB; -1: dA of all pairs
  int64_t begin;  // columns
  int64_t end;
};

std::vector<Owner> FindOwners(const LoraPlan& plan, const std::vector<LoraPart>& parts,
                              const std::vector<AdapterGradients*>& gradients) {
  std::vector<Owner> by_index(gradients.size());
  for (const LoraSpan& span : plan.spans) by_index[span.gradient_index].spans.push_back(&span);
  std::vector<Owner> owners;
  for (size_t index = 0; index < by_index.size(); ++index) {
    Owner& owner = by_index[index];
    if (owner.spans.empty()) continue;
    for (const LoraPlanPair& pair : owner.spans.front()->pairs) {
      const LoraPair& gradient = parts[pair.part].Of(gradients[index]->tensors);
      auto* a = gradient.a.mutable_data_ptr<float>();
      auto* b = gradient.b_t.mutable_data_ptr<float>();
      for (int64_t j = 0; j < pair.rank; ++j) {
        owner.a.push_back(a + j * plan.x.width);
        owner.b.push_back(b + j * plan.y[pair.part].width);
      }
    }
    owners.push_back(std::move(owner));
  }
  return owners;
}

std::vector<Task> MakeTasks(const LoraPlan& plan, const std::vector<Owner>& owners) {
  std::vector<Task> tasks;
  const auto add = [&](const Owner& owner, int64_t pair, int64_t width) {
    for (int64_t n = 0; n < width; n += kGradientColumns) {
      tasks.push_back({&owner, pair, n, std::min(n + kGradientColumns, width)});
    }
  };
  for (const Owner& owner : owners) {
    add(owner, -1, plan.x.width);
    const std::vector<LoraPlanPair>& pairs = owner.spans.front()->pairs;
    for (size_t p = 0; p < pairs.size(); ++p) {
      add(owner, static_cast<int64_t>(p), plan.y[pairs[p].part].width);
    }
  }
  return tasks;
}

void AddA(const LoraPlan& plan, const Task& task, const float* dproducts) {
  for (const LoraSpan* span : task.owner->spans) {
    AddLoraGradient({.c = dproducts + span->offset,
                     .c_stride = span->num_factors(),
                     .v = plan.x.Row(span->begin),
                     .v_stride = plan.x.stride,
                     .num_rows = span->end - span->begin,
                     .gradients = task.owner->a.data(),
                     .num_factors = span->num_factors()},
                    task.begin, task.end);
  }
}

void AddB(const LoraPlan& plan, const Task& task, const float* products) {
  const LoraPlanPair& pair = task.owner->spans.front()->pairs[task.pair];
  const RowView& dy = plan.y[pair.part];
  for (const LoraSpan* span : task.owner->spans) {
    AddLoraGradient({.c = products + span->offset + pair.first,
                     .c_stride = span->num_factors(),
                     .v = dy.Row(span->begin),
                     .v_stride = dy.stride,
                     .num_rows = span->end - span->begin,
                     .gradients = task.owner->b.data() + pair.first,
                     .num_factors = pair.rank},
                    task.begin, task.end);
  }
}

}  // namespace

void AddLoraGradients(const LoraPlan& plan, const std::vector<LoraPart>& parts,
                      const std::vector<AdapterGradients*>& gradients, const float* products,
                      const float* dproducts) {
  const std::vector<Owner> owners = FindOwners(plan, parts, gradients);
  const std::vector<Task> tasks = MakeTasks(plan, owners);
  ForTasks(static_cast<int64_t>(tasks.size()), 2 * plan.cost, [&](int64_t i) {
    if (tasks[i].pair < 0) {
      AddA(plan, tasks[i], dproducts);
    } else {
      AddB(plan, tasks[i], products);
    }
  });
}

}  // namespace lathe::worker
