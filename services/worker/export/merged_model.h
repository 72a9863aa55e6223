// A base model with an adapter merged into its weights, as a folder that Transformers loads.
#pragma once

#include <filesystem>

#include <absl/status/status.h>

namespace lathe::worker {

// Writes folder `out` with W + (alpha / rank) B·A for each adapted matrix, summed in fp32 and
// rounded to the base model's dtype. All other tensors, the split into files, config and tokenizer
// are the base's. An adapter of the unembedding unties tied embeddings: lm_head.weight is written
// and config.json says so. `checkpoint` is a directory of training or sampler kind; its checksums
// are verified. `out` appears whole or not at all. Memory: one file of the base and twice its
// largest matrix in fp32.
// Errors: AlreadyExists if `out` exists, NotFound for a missing file, FailedPrecondition for a
// checkpoint of another base model, DataLoss for a damaged one.
absl::Status ExportMerged(const std::filesystem::path& base,
                          const std::filesystem::path& checkpoint,
                          const std::filesystem::path& out);

}  // namespace lathe::worker
