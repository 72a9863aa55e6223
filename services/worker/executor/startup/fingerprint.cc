#include "services/worker/executor/startup/fingerprint.h"

#include <bit>
#include <variant>

namespace lathe::worker {

void Fingerprint::Add(const std::vector<ReportEvent>& reports) {
  for (const ReportEvent& event : reports) {
    const auto* done = std::get_if<SampleDone>(&event.report);
    if (done == nullptr) continue;
    Text(done->request_id);
    for (const SampledSequence& sequence : done->output.sequences) {
      Number(static_cast<int64_t>(sequence.tokens.size()));
      for (const int32_t token : sequence.tokens) Number(token);
    }
  }
}

void Fingerprint::Add(const ExecutorCounters& counters) {
  for (const CounterRow& row : kCounters) {
    const auto* const number = std::get_if<int64_t ExecutorCounters::*>(&row.field);
    if (number != nullptr && row.kind == CounterKind::kSum) Number(counters.*(*number));
  }
}

void Fingerprint::Add(const std::vector<ModelState>& models,
                      const std::vector<HeldVersion>& versions) {
  Number(static_cast<int64_t>(models.size()));
  for (const ModelState& model : models) {
    Text(model.model_id);
    Number(model.applied_seq);
    Number(static_cast<int64_t>(model.window.size()));
    for (const int64_t seq_id : model.window) Number(seq_id);
  }
  for (const HeldVersion& version : versions) {
    Text(version.version_id);
    Number(version.seq_id);
  }
}

void Fingerprint::Number(int64_t number) {
  for (int shift = 0; shift < 64; shift += 8) {
    value_ = (value_ ^ ((std::bit_cast<uint64_t>(number) >> shift) & 0xff)) * 0x100000001b3;
  }
}

void Fingerprint::Text(std::string_view text) {
  Number(static_cast<int64_t>(text.size()));
  for (const char letter : text) {
    value_ = (value_ ^ static_cast<uint8_t>(letter)) * 0x100000001b3;
  }
}

}  // namespace lathe::worker
