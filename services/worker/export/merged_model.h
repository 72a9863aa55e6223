// A base model with an adapter added into its weights, as a folder that Transformers loads.
#pragma once

#include <filesystem>

#include <absl/status/status.h>

namespace lathe::worker {

// Writes folder `out`: W + (alpha / rank) B·A for each adapted matrix, summed in fp32 and rounded
// to the dtype the base has it in; all other tensors, the split into files, config and tokenizer
// as in the base. An adapter of the unembedding unties tied embeddings: lm_head.weight is written
// and config.json says so. `checkpoint` is a directory of the training or sampler kind, whose
// checksums are verified. `out` appears whole or not at all; memory: one file of the base and twice
// its largest matrix in fp32.
// Errors: AlreadyExists when `out` is there, NotFound for a missing file, FailedPrecondition for a
// checkpoint of another base, DataLoss for a damaged one.
absl::Status ExportMerged(const std::filesystem::path& base,
                          const std::filesystem::path& checkpoint,
                          const std::filesystem::path& out);

}  // namespace lathe::worker
