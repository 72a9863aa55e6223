// Shape of a decoder, layer by layer. Free of torch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "services/worker/spec/activation.h"
#include "services/worker/spec/attention_spec.h"
#include "services/worker/spec/linear_table.h"
#include "services/worker/spec/rope_spec.h"

namespace lathe::worker {

// One layer: attention and a gated MLP, each after a norm and each added to its input.
struct LayerSpec {
  AttentionSpec attention;  // `rope` is an index into DecoderSpec::ropes
  int64_t intermediate_size = 0;
  Activation activation = Activation::kSilu;

  // Indices into LinearTable::stacks.
  int64_t qkv = 0;      // queries, keys, values
  int64_t o = 0;        // output of attention
  int64_t gate_up = 0;  // gate, up
  int64_t down = 0;

  // Rows of the table of vectors. kNoRow: the layer has no such norm.
  int64_t attention_norm = kNoRow;
  int64_t q_norm = kNoRow;
  int64_t k_norm = kNoRow;
  int64_t attention_output_norm = kNoRow;
  int64_t mlp_norm = kNoRow;
  int64_t mlp_output_norm = kNoRow;
};

struct DecoderSpec {
  std::string family;  // model_type of config.json
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double norm_offset = 0;      // norms multiply by weight + norm_offset
  double embedding_scale = 1;  // factor of the embedding's rows; not of a tied head
  bool tie_word_embeddings = false;
  std::vector<int64_t> eos_token_ids;  // generation_config.json, else config.json
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;
  // Tables of the whole model; a rank's spec has the same.
  std::shared_ptr<const LinearTable> linears;
  std::shared_ptr<const VectorTable> vectors;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
};

// Returns the config's part of the content hash. Two specs have the same text only if the same
// tensors give the same numbers. The text of a spec never changes, since checkpoints keep hashes.
std::string CanonicalText(const DecoderSpec& spec);

}  // namespace lathe::worker
