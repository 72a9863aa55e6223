// Engine messages for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/worker/rpc/tensor_conversion.h"

namespace lathe::worker {

inline void AddTrain(lathe::v1::EngineMessage* message, const std::string& request_id) {
  lathe::v1::TrainItem* item = message->mutable_train_batch()->add_items();
  item->set_request_id(request_id);
  item->mutable_request()->set_model_id("m");
  item->mutable_request()->mutable_loss()->set_name("cross_entropy");
  lathe::v1::Datum* datum = item->mutable_request()->add_data();
  datum->add_model_input()->set_tokens(WritePacked(std::vector<int32_t>{1}));
  lathe::v1::NamedTensor* targets = datum->add_loss_fn_inputs();
  targets->set_name("target_tokens");
  targets->mutable_tensor()->set_dtype(lathe::v1::DTYPE_INT64);
  targets->mutable_tensor()->set_dense(WritePacked(std::vector<int64_t>{2}));
}

inline lathe::v1::EngineMessage Form(int64_t epoch, int64_t term) {
  lathe::v1::EngineMessage message;
  message.mutable_form()->set_epoch(epoch);
  message.mutable_form()->set_term(term);
  return message;
}

inline lathe::v1::EngineMessage Adopt(int64_t epoch, int64_t term) {
  lathe::v1::EngineMessage message;
  message.mutable_adopt()->set_epoch(epoch);
  message.mutable_adopt()->set_term(term);
  return message;
}

}  // namespace lathe::worker
