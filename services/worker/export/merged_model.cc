#include "services/worker/export/merged_model.h"

#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "libs/common/status_macros.h"
#include "services/worker/checkpoint/atomic_directory.h"
#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/formats/safetensors/durable_file.h"
#include "services/worker/formats/safetensors/safetensors.h"
#include "services/worker/formats/safetensors/safetensors_writer.h"
#include "services/worker/lora/adapter_layout.h"
#include "services/worker/models/hf_tensors.h"
#include "services/worker/models/load_model.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kConfig[] = "config.json";
constexpr char kWeight[] = ".weight";

// Returns true for files beside the weights that belong to the model.
bool IsCopied(const fs::path& path) {
  static const auto* extensions =
      new std::set<std::string>{".json", ".jinja", ".txt", ".model", ".tiktoken"};
  return extensions->count(path.extension().string()) > 0 && path.filename() != kConfig &&
         path.filename() != kWeightIndexFile;
}

absl::StatusOr<std::string> ReadText(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (file) return text.str();
  return absl::NotFoundError(absl::StrCat(path.string(), ": cannot read"));
}

absl::StatusOr<Json> ReadOrderedJson(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  return absl::InvalidArgumentError(absl::StrCat(path.string(), ": not a JSON object"));
}

absl::Status WriteJson(const fs::path& path, const Json& json) {
  return WriteDurably(path, json.dump(2) + "\n").status();
}

// Merges one adapter into its base model.
class Merger {
 public:
  explicit Merger(std::unique_ptr<Adapter> adapter) : adapter_(std::move(adapter)) {
    const DecoderSpec& spec = adapter_->model().whole;
    const LinearTable& linears = *spec.linears;
    const AdapterTensors tensors =
        ViewAdapter(adapter_->parameters(), adapter_->model(), adapter_->lora());
    for (size_t row = 0; row < linears.rows.size(); ++row) {
      if (!tensors.linears[row].defined()) continue;
      pairs_[linears.rows[row].source + kWeight] = tensors.linears[row];
    }
    embedding_ = linears.embedding.source + kWeight;
    unembedding_ = linears.rows[linears.lm_head].source + kWeight;
    unties_ = spec.tie_word_embeddings && pairs_.count(unembedding_) > 0;
  }

  bool unties() const { return unties_; }

  // Returns the merged tensors of one file, in its order.
  absl::StatusOr<std::vector<NamedTensor>> MergeFile(const SafetensorsFile& file) const {
    std::vector<NamedTensor> merged;
    for (const std::string& name : file.names()) {
      // If embeddings are tied, the embedding is used and any lm_head in the file is ignored.
      if (unties_ && name == unembedding_) continue;
      ASSIGN_OR_RETURN(at::Tensor tensor, file.Read(name));
      if (unties_ && name == embedding_) {
        merged.push_back({unembedding_, Merge(unembedding_, tensor)});
      }
      merged.push_back({name, Merge(name, tensor)});
    }
    return merged;
  }

 private:
  at::Tensor Merge(const std::string& name, const at::Tensor& weight) const {
    const auto it = pairs_.find(name);
    if (it == pairs_.end()) return weight;
    const LoraPair& pair = it->second;
    return at::addmm(weight.to(at::kFloat), pair.b(), pair.a, /*beta=*/1,
                     /*alpha=*/adapter_->scaling())
        .to(weight.scalar_type());
  }

  std::unique_ptr<Adapter> adapter_;
  std::map<std::string, LoraPair> pairs_;  // views, by the base's name
  std::string embedding_;                  // names of the base's tensors
  std::string unembedding_;
  bool unties_ = false;
};

absl::Status WriteConfig(const fs::path& base, const Merger& merger, const fs::path& out) {
  ASSIGN_OR_RETURN(Json config, ReadOrderedJson(base / kConfig));
  if (merger.unties()) config["tie_word_embeddings"] = false;
  return WriteJson(out / kConfig, config);
}

absl::Status CopySmallFiles(const fs::path& base, const fs::path& out) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(base, error)) {
    if (!entry.is_regular_file() || !IsCopied(entry.path())) continue;
    ASSIGN_OR_RETURN(const std::string text, ReadText(entry.path()));
    RETURN_IF_ERROR(WriteDurably(out / entry.path().filename(), text).status());
  }
  if (!error) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(base.string(), ": ", error.message()));
}

absl::Status WriteWeights(const fs::path& base, const Merger& merger, const fs::path& out) {
  ASSIGN_OR_RETURN(const std::vector<fs::path> files, WeightFiles(base));
  Json weight_map = Json::object();
  size_t total_bytes = 0;
  for (const fs::path& path : files) {
    ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
    ASSIGN_OR_RETURN(const std::vector<NamedTensor> tensors, merger.MergeFile(file));
    const std::string name = path.filename().string();
    RETURN_IF_ERROR(WriteSafetensors(out / name, tensors, file.metadata()).status());
    for (const NamedTensor& named : tensors) {
      weight_map[named.name] = name;
      total_bytes += named.tensor.nbytes();
    }
  }
  if (files.size() == 1 && files[0].filename() == kSingleWeightFile) return absl::OkStatus();
  return WriteJson(out / kWeightIndexFile,
                   {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}});
}

absl::Status CheckAbsent(const fs::path& folder) {
  if (!fs::exists(fs::symlink_status(folder))) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(folder.string(), " exists"));
}

// Removes the temporary folder on destruction, including leftovers of a killed run.
struct AttemptsFolder {
  fs::path path;
  ~AttemptsFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

absl::Status ExportMerged(const fs::path& base, const fs::path& checkpoint, const fs::path& out) {
  const fs::path folder = fs::absolute(out).lexically_normal();
  RETURN_IF_ERROR(CheckAbsent(folder));
  const fs::path source = fs::absolute(checkpoint).lexically_normal();
  ASSIGN_OR_RETURN(const ModelDescription model, DescribeModel(base));
  const CheckpointStore store(source.parent_path(), WholeModel(model.spec), base.string(),
                              model.content_hash);
  ASSIGN_OR_RETURN(LoadedAdapter adapter,
                   store.Load(source.string(), /*with_optimizer=*/false, at::kCPU));
  const Merger merger(std::move(adapter.adapter));

  const AttemptsFolder attempts{folder.parent_path() /
                                absl::StrCat(".", folder.filename().string(), ".partial")};
  ASSIGN_OR_RETURN(AtomicDirectory attempt, AtomicDirectory::Create(attempts.path));
  RETURN_IF_ERROR(CopySmallFiles(base, attempt.path()));
  RETURN_IF_ERROR(WriteConfig(base, merger, attempt.path()));
  RETURN_IF_ERROR(WriteWeights(base, merger, attempt.path()));
  // Checks again, because Commit would replace a folder created meanwhile.
  RETURN_IF_ERROR(CheckAbsent(folder));
  return attempt.Commit(folder);
}

}  // namespace lathe::worker
