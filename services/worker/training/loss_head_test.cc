#include <catch2/catch.hpp>

#include <deque>
#include <string>
#include <vector>

#include "libs/common/losses/registry.h"
#include "services/worker/testing/test_diff.h"
#include "services/worker/training/loss_head.h"

namespace lathe::worker {
namespace {

constexpr int64_t kHidden = 8;
constexpr int64_t kVocab = 37;
constexpr int64_t kRank = 3;
constexpr double kScaling = 1.5;

double Dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Implements only what the head calls, row by row in plain loops. So differences between chunks
// come from the head.
class HeadModel : public Model {
 public:
  HeadModel()
      : part_(WholeModel({.hidden_size = kHidden, .vocab_size = kVocab})),
        w_(at::randn({kVocab, kHidden})) {}

  const ModelPart& part() const override { return part_; }
  const RankGroup& tp() const override { return alone_; }
  at::Device device() const override { return at::kCPU; }
  int64_t WeightBytes() const override { return 0; }
  MatmulArithmetic attention_arithmetic() const override { return MatmulArithmetic::kFp32; }
  at::Tensor FinalNorm(const at::Tensor& x) const override { return x * 2; }
  at::Tensor FinalNormBackward(const at::Tensor&, const at::Tensor& dy) const override {
    return dy * 2;
  }

  at::Tensor Logits(const at::Tensor& h, const std::vector<Segment>& segments) const override {
    at::Tensor logits = at::empty({h.size(0), kVocab});
    for (const Segment& segment : segments) {
      for (int64_t row = segment.begin; row < segment.end; ++row) {
        const at::Tensor s = Inner(h[row], *segment.adapter);
        const at::Tensor b = segment.adapter->tensors.linears[0].b().contiguous();
        for (int64_t v = 0; v < kVocab; ++v) {
          logits[row][v] = Dot(F(h[row]), F(w_[v]), kHidden) + kScaling * Dot(F(s), F(b[v]), kRank);
        }
      }
    }
    return logits;
  }

  at::Tensor LogitsBackward(const at::Tensor& h, const at::Tensor& dlogits,
                            const std::vector<Segment>& segments,
                            std::vector<AdapterGradients*>& gradients) const override {
    at::Tensor dh = at::empty_like(h);
    for (const Segment& segment : segments) {
      const LoraPair& pair = segment.adapter->tensors.linears[0];
      const LoraPair& gradient = gradients.at(segment.gradient_index)->tensors.linears[0];
      for (int64_t row = segment.begin; row < segment.end; ++row) {
        const at::Tensor s = Inner(h[row], *segment.adapter);
        const at::Tensor ds = at::empty({kRank});
        for (int64_t r = 0; r < kRank; ++r) {
          ds[r] = kScaling * Dot(F(dlogits[row]), F(pair.b_t[r]), kVocab);
        }
        const at::Tensor w = w_.t().contiguous();
        const at::Tensor a = pair.a.t().contiguous();
        for (int64_t i = 0; i < kHidden; ++i) {
          dh[row][i] = Dot(F(dlogits[row]), F(w[i]), kVocab) + Dot(F(ds), F(a[i]), kRank);
        }
        at::Tensor(gradient.b_t).add_(at::outer(s, dlogits[row]), kScaling);
        at::Tensor(gradient.a).add_(at::outer(ds, h[row]));
      }
    }
    return dh;
  }

  void BeginStep(const ModelStep&, const std::optional<ModelStep>&) const override {}
  void EndStep() const override {}
  at::Tensor Embed(const PackedRows&) const override { return {}; }
  std::unique_ptr<LayerSaved> LayerRecompute(int64_t, const at::Tensor&,
                                             const PackedRows&) const override {
    return nullptr;
  }
  at::Tensor LayerForward(int64_t, const at::Tensor&, const PackedRows&,
                          AttentionContext&) const override {
    return {};
  }
  at::Tensor LayerForwardSaving(int64_t, const at::Tensor&, const PackedRows&,
                                std::unique_ptr<LayerSaved>*) const override {
    return {};
  }
  at::Tensor LayerBackward(int64_t, const at::Tensor&, const PackedRows&,
                           std::unique_ptr<LayerSaved>,
                           std::vector<AdapterGradients*>&) const override {
    return {};
  }

  const at::Tensor& w() const { return w_; }

 private:
  static const float* F(const at::Tensor& x) { return x.const_data_ptr<float>(); }
  static at::Tensor Inner(const at::Tensor& h, const AdapterWeights& adapter) {
    at::Tensor s = at::empty({kRank});
    for (int64_t r = 0; r < kRank; ++r)
      s[r] = Dot(F(h), F(adapter.tensors.linears[0].a[r]), kHidden);
    return s;
  }

  ModelPart part_;
  RankGroup alone_;
  at::Tensor w_;
};

const HeadModel& SharedModel() {
  static const HeadModel* model = [] {
    at::manual_seed(5);
    return new HeadModel;
  }();
  return *model;
}

// A job, its adapter's unembedding pair and the final hidden states of its tokens.
struct Part {
  TrainJob job;
  AdapterWeights weights;
  std::vector<at::Tensor> x;  // per datum [N, H]
};

TrainDatum RandomDatum(int64_t num_tokens, int64_t num_targets) {
  TrainDatum datum;
  datum.num_targets = num_targets;
  for (int64_t i = 0; i < num_tokens; ++i) {
    const bool is_prompt = i < num_tokens / 3 || i % 5 == 4;
    datum.tokens.push_back(0);
    datum.logprobs.push_back(is_prompt ? 0.0f : -4.0f);
    datum.advantages.push_back(is_prompt ? 0.0f : at::randn({1}).item<float>());
    datum.mask.push_back(is_prompt ? 0.0f : 1.0f);
    for (int64_t k = 0; k < num_targets; ++k) {
      datum.targets.push_back(at::randint(kVocab, {1}).item<int64_t>());
      datum.weights.push_back(is_prompt ? 0.0f : at::randn({1}).item<float>());
    }
  }
  return datum;
}

Part MakePart(const std::string& loss, std::vector<int64_t> lengths, uint64_t seed,
              int64_t num_targets = 1) {
  at::manual_seed(seed);
  Part part;
  part.job.request.loss = DefaultLoss(loss);
  part.job.request.loss.clip_low = 0.0;
  part.job.request.loss.clip_high = 10.0;
  for (const int64_t length : lengths) {
    TrainDatum datum = RandomDatum(length, num_targets);
    (loss == "cross_entropy" ? datum.advantages : datum.weights).clear();
    part.job.request.data.push_back(std::move(datum));
    part.x.push_back(at::randn({length, kHidden}));
  }
  part.weights.tensors.linears = {
      {.a = at::randn({kRank, kHidden}), .b_t = at::randn({kRank, kVocab})}};
  return part;
}

struct Packed {
  PackedBatch batch;
  at::Tensor x;  // [T, H]
};

Packed Pack(std::vector<Part*> parts) {
  Packed packed;
  std::vector<at::Tensor> x;
  int64_t num_rows = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    const int64_t begin = num_rows;
    for (size_t d = 0; d < parts[p]->x.size(); ++d) {
      const TrainDatum& datum = parts[p]->job.request.data[d];
      PackedBatch& batch = packed.batch;
      const int64_t first = batch.num_entries();
      for (size_t i = 0; i < datum.tokens.size(); ++i) {
        batch.row_entries.push_back(first + static_cast<int64_t>(i) * datum.num_targets);
      }
      batch.entry_targets.insert(batch.entry_targets.end(), datum.targets.begin(),
                                 datum.targets.end());
      batch.datums.push_back({{&parts[p]->job, d}, first, batch.num_entries()});
      x.push_back(parts[p]->x[d]);
      num_rows += parts[p]->x[d].size(0);
    }
    packed.batch.rows.segments.push_back(
        {begin, num_rows, &parts[p]->weights, static_cast<int64_t>(p)});
  }
  packed.batch.row_entries.push_back(packed.batch.num_entries());
  packed.x = at::cat(x);
  return packed;
}

struct HeadResult {
  at::Tensor logprobs;
  at::Tensor losses;
  at::Tensor dx;
  std::deque<AdapterGradients> gradients;  // per part
  int num_steps = 0;
};

HeadResult RunHead(const Packed& packed, int64_t chunk_rows) {
  HeadResult result;
  std::vector<AdapterGradients*> gradients;
  for (size_t i = 0; i < packed.batch.rows.segments.size(); ++i) {
    AdapterGradients& one = result.gradients.emplace_back();
    one.tensors.linears = {{.a = at::zeros({kRank, kHidden}), .b_t = at::zeros({kRank, kVocab})}};
    gradients.push_back(&one);
  }
  LossHead head(SharedModel(), packed.batch, chunk_rows * kVocab);
  result.dx = at::full_like(packed.x, 7.0);
  ++result.num_steps;
  while (head.RunHalfChunk(packed.x, result.dx, gradients)) ++result.num_steps;
  result.logprobs = head.logprobs();
  result.losses = head.losses();
  return result;
}

bool SameGradients(const AdapterGradients& a, const AdapterGradients& b) {
  return at::equal(a.tensors.linears[0].a, b.tensors.linears[0].a) &&
         at::equal(a.tensors.linears[0].b_t, b.tensors.linears[0].b_t);
}

}  // namespace

TEST_CASE("LossHead: results and gradients equal autograd's in fp64", "[loss_head]") {
  const int64_t num_targets = GENERATE(1, 3);
  const int64_t chunk_rows = GENERATE(1, 7, 1000);
  Part part = MakePart("cross_entropy", {9, 1, 14}, 3, num_targets);
  const Packed packed = Pack({&part});
  const HeadResult result = RunHead(packed, chunk_rows);

  const auto leaf = [](const at::Tensor& x) { return x.to(at::kDouble).requires_grad_(true); };
  const at::Tensor x = leaf(packed.x);
  const at::Tensor a = leaf(part.weights.tensors.linears[0].a);
  const at::Tensor b = leaf(part.weights.tensors.linears[0].b());
  const at::Tensor h = x * 2;
  const at::Tensor logits = at::matmul(h, SharedModel().w().to(at::kDouble).t()) +
                            kScaling * at::matmul(at::matmul(h, a.t()), b.t());
  const at::Tensor targets =
      at::tensor(packed.batch.entry_targets, at::kLong).view({-1, num_targets});
  const at::Tensor p = at::log_softmax(logits, 1).gather(1, targets).flatten();
  std::vector<float> weights;
  for (const TrainDatum& datum : part.job.request.data) {
    weights.insert(weights.end(), datum.weights.begin(), datum.weights.end());
  }
  const at::Tensor losses = -p * at::tensor(weights, at::kDouble);
  losses.sum().backward();

  CHECK(RelativeDiff(result.logprobs, p) < 1e-6);
  CHECK(RelativeDiff(result.losses, losses) < 1e-6);
  CHECK(RelativeDiff(result.dx, x.grad()) < 1e-6);
  CHECK(RelativeDiff(result.gradients[0].tensors.linears[0].a, a.grad()) < 1e-6);
  CHECK(RelativeDiff(result.gradients[0].tensors.linears[0].b(), b.grad()) < 1e-6);
}

TEST_CASE("LossHead: the size of chunks changes no bit", "[loss_head]") {
  Part one = MakePart("gspo", {9, 14, 1, 5}, 3);
  Part two = MakePart("ppo", {4, 20}, 4);
  Part silent = MakePart("importance_sampling", {6, 3}, 5);
  silent.job.request.forward_only = true;
  const Packed packed = Pack({&one, &silent, &two});
  const HeadResult whole = RunHead(packed, 1000);
  const HeadResult cut = RunHead(packed, GENERATE(1, 2, 5, 7, 11));
  CHECK(at::equal(cut.logprobs, whole.logprobs));
  CHECK(at::equal(cut.losses, whole.losses));
  CHECK(at::equal(cut.dx, whole.dx));
  for (size_t i = 0; i < 3; ++i) CHECK(SameGradients(cut.gradients[i], whole.gradients[i]));
}

TEST_CASE("LossHead: neighbours change no bit", "[loss_head]") {
  const std::string loss = GENERATE("cross_entropy", "ppo", "gspo");
  Part one = MakePart(loss, {9, 14}, 3);
  Part before = MakePart("gspo", {4, 17}, 4);
  Part after = MakePart("cross_entropy", {3, 8}, 5, /*num_targets=*/2);
  const HeadResult alone = RunHead(Pack({&one}), 1000);
  const HeadResult together = RunHead(Pack({&before, &one, &after}), GENERATE(6, 1000));
  CHECK(at::equal(together.logprobs.narrow(0, 21, 23), alone.logprobs));
  CHECK(at::equal(together.losses.narrow(0, 21, 23), alone.losses));
  CHECK(at::equal(together.dx.narrow(0, 21, 23), alone.dx));
  CHECK(SameGradients(together.gradients[1], alone.gradients[0]));
}

TEST_CASE("LossHead: rows without gradient get zero, and a loss all the same", "[loss_head]") {
  Part part = MakePart("importance_sampling", {9}, 3);
  part.job.request.forward_only = GENERATE(false, true);
  const HeadResult result = RunHead(Pack({&part}), 4);
  CHECK(result.dx.narrow(0, 0, 3).abs().max().item<double>() == 0);  // the prompt
  const double largest = result.dx.abs().max().item<double>();
  CHECK((largest > 0) == !part.job.request.forward_only);
  CHECK(result.losses.narrow(0, 3, 1).item<double>() != 0);
}

TEST_CASE("LossHead: a datum of a coupling loss is computed twice only if no chunk holds it",
          "[loss_head]") {
  // 30 tokens: 10 prompt tokens and 4 others without gradient, 16 with one.
  Part part = MakePart("gspo", {30, 30}, 3);
  const Packed packed = Pack({&part});
  CHECK(RunHead(packed, 28).num_steps ==
        1 + 2 * 2);  // 28 forward; 32 both ways, cut between the datums
  CHECK(RunHead(packed, 16).num_steps == 2 + 2 * 2);
  CHECK(RunHead(packed, 15).num_steps == 4 + 2 * 3);  // all 60 forward, then the 32
}

}  // namespace lathe::worker
