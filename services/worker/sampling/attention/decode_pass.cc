#include "services/worker/sampling/attention/decode_pass.h"

#include <utility>
#include <vector>

#include "services/worker/layers/device_stream.h"
#include "services/worker/models/layer_steps.h"

namespace lathe::worker {
namespace {

template <typename T>
void Set(const at::Tensor& to, const std::vector<T>& from) {
  to.narrow(0, 0, static_cast<int64_t>(from.size())).copy_(at::tensor(from, to.scalar_type()));
}

}  // namespace

DecodeBuffers::DecodeBuffers(const Model& model, KvCache& cache, int64_t most_rows)
    : model_(model),
      cache_(cache),
      most_pages_(KvCache::BlocksFor(model.spec().max_position_embeddings)),
      lora_(model.part().local, most_rows, model.device()),
      tokens_and_positions_(OnDevice({2 * most_rows}, at::kLong)),
      numbers_(OnDevice({4 * most_rows + 2 + most_rows * most_pages_}, at::kInt)),
      logits_(OnDevice({most_rows, model.part().local.vocab_size}, at::kFloat)) {
  // Allocates before any recording, because memory allocated by a recording belongs to its pool.
  // The loader refuses models whose layers have other heads.
  const AttentionSpec& spec = model.part().local.layers[0].attention;
  cache_.Allocate(at::empty({0, spec.num_kv_heads, spec.head_dim},
                            at::TensorOptions(at::kFloat).device(model.device())));
}

at::Tensor DecodeBuffers::OnDevice(at::IntArrayRef sizes, at::ScalarType dtype) const {
  return at::zeros(sizes, at::TensorOptions(dtype).device(model_.device()));
}

int64_t DecodeBuffers::FillAdapters(std::span<const DecodeRow> rows) {
  std::vector<const AdapterWeights*> adapters;
  for (const DecodeRow& row : rows) adapters.push_back(row.adapter);
  return lora_.Fill(adapters);
}

// The offsets depend on the number of rows only.
DecodeBuffers::Pass DecodeBuffers::PassOf(int64_t num_rows, bool has_lora) const {
  const int64_t n = num_rows;
  return {.num_rows = n,
          .has_lora = has_lora,
          .tokens = tokens_and_positions_.narrow(0, 0, n),
          .positions = tokens_and_positions_.narrow(0, n, n),
          .inputs = {.row_starts = numbers_.narrow(0, 0, n + 1),
                     .page_starts = numbers_.narrow(0, n + 1, n + 1),
                     .pages = numbers_.narrow(0, 4 * n + 2, n * most_pages_),
                     .last_page_tokens = numbers_.narrow(0, 2 * n + 2, n),
                     .slots = numbers_.narrow(0, 3 * n + 2, n)},
          .rows = {},
          .passes = {}};
}

// Makes FlashInfer's plan for the lengths of the next run.
void DecodeBuffers::Plan(const PagedRows& rows, Pass::Planned& planned) const {
  PagedPass& pass = planned.pass;
  pass.plan = PlanPagedAttention(
      pass.shape, rows, /*is_graph=*/true, planned.sizes, pass.float_workspace.mutable_data_ptr(),
      pass.int_workspace.mutable_data_ptr(), CurrentStream(model_.device()));
}

// Returns the pass of layers like this one. The run before a recording makes it: a recording must
// neither plan nor allocate.
const PagedPass& DecodeBuffers::PassFor(const AttentionSpec& spec, Pass& of) const {
  const auto found = of.passes.find(spec.window);
  if (found != of.passes.end()) return found->second.pass;
  Pass::Planned planned;
  PagedPass& pass = planned.pass;
  pass.shape = PagedShapeOf(spec);
  pass.inputs = of.inputs;
  planned.sizes =
      PagedWorkspaceFor(pass.shape, of.rows, /*is_graph=*/true, CurrentStream(model_.device()));
  pass.float_workspace = OnDevice({static_cast<int64_t>(planned.sizes.float_bytes)}, at::kByte);
  pass.int_workspace = OnDevice({static_cast<int64_t>(planned.sizes.int_bytes)}, at::kByte);
  Plan(of.rows, planned);
  return of.passes.emplace(spec.window, std::move(planned)).first->second.pass;
}

void DecodeBuffers::SetInputs(std::span<const DecodeRow> rows, Pass& pass) const {
  std::vector<int64_t> tokens(2 * pass.num_rows, 0);
  PagedBatch batch;
  for (size_t row = 0; row < rows.size(); ++row) {
    tokens[row] = rows[row].token;
    tokens[pass.num_rows + row] = rows[row].kv->length - 1;
    batch.Add({.kv = rows[row].kv, .num_rows = 1});
  }
  for (auto row = static_cast<int64_t>(rows.size()); row < pass.num_rows; ++row) {
    batch.AddPadding(cache_.spare_page());
  }
  std::vector<int32_t> numbers;
  for (const auto* part : {&batch.rows.row_starts, &batch.rows.page_starts, &batch.last_page_tokens,
                           &batch.slots, &batch.pages}) {
    numbers.insert(numbers.end(), part->begin(), part->end());
  }
  Set(tokens_and_positions_, tokens);
  Set(numbers_, numbers);
  pass.rows = std::move(batch.rows);
  for (auto& [window, planned] : pass.passes) Plan(pass.rows, planned);
}

void DecodeBuffers::Forward(Pass& pass) const {
  const std::vector<Segment> segments = {
      {.begin = 0, .end = pass.num_rows, .slots = pass.has_lora ? &lora_ : nullptr}};
  const PackedRows rows = {
      .tokens = pass.tokens, .positions = pass.positions, .segments = segments};
  PagedDeviceAttention attention(
      cache_, [&](const AttentionSpec& spec) -> const PagedPass& { return PassFor(spec, pass); });
  const at::Tensor x = RunLayers(model_, rows, attention);
  logits_.narrow(0, 0, pass.num_rows).copy_(model_.Logits(model_.FinalNorm(x), segments));
}

}  // namespace lathe::worker
