#include "services/engine/rpc/content_hash.h"

#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace lathe::engine {
namespace {

v1::ForwardBackwardRequest Request() {
  v1::ForwardBackwardRequest request;
  request.set_model_id("m");
  request.set_seq_id(1);
  request.mutable_loss()->set_name("cross_entropy");
  v1::Datum* datum = request.add_data();
  datum->add_model_input()->set_tokens("1234");
  for (const char* name : {"target_tokens", "weights"}) {
    v1::NamedTensor* input = datum->add_loss_fn_inputs();
    input->set_name(name);
    input->mutable_tensor()->set_dense(name);
  }
  return request;
}

TEST_CASE("ContentHash: order of named entries and the key do not count", "[rpc]") {
  const v1::ForwardBackwardRequest request = Request();
  v1::ForwardBackwardRequest other = Request();
  other.mutable_data(0)->mutable_loss_fn_inputs()->SwapElements(0, 1);
  other.set_seq_id(2);
  CHECK(ContentHash(other) == ContentHash(request));
  CHECK(ContentHash(request).substr(0, 2) == "1:");
}

TEST_CASE("ContentHash: every part of the content counts", "[rpc]") {
  const std::string hash = ContentHash(Request());
  v1::ForwardBackwardRequest changed = Request();
  changed.mutable_data(0)->mutable_model_input(0)->set_tokens("1235");
  CHECK(ContentHash(changed) != hash);
  changed = Request();
  changed.mutable_data(0)->mutable_loss_fn_inputs(1)->mutable_tensor()->add_shape(1);
  CHECK(ContentHash(changed) != hash);
  changed = Request();
  changed.set_forward_only(true);
  CHECK(ContentHash(changed) != hash);
  changed = Request();
  *changed.add_data() = changed.data(0);
  CHECK(ContentHash(changed) != hash);
  changed = Request();
  v1::Datum* datum = changed.mutable_data(0);
  datum->mutable_model_input(0)->set_tokens("12");
  datum->add_model_input()->set_tokens("34");
  CHECK(ContentHash(changed) != hash);
  changed = Request();
  changed.set_malformed("cut short");
  CHECK(ContentHash(changed) != hash);
  changed = Request();
  changed.mutable_data(0)->add_model_input_spans()->set_length(1);
  const std::string with_span = ContentHash(changed);
  CHECK(with_span != hash);
  changed.mutable_data(0)->mutable_model_input_spans(0)->set_sampled(true);
  CHECK(ContentHash(changed) != with_span);
}

TEST_CASE("ContentHash: a sampling session's number of an outer retry does not count", "[rpc]") {
  v1::SaveWeightsForSamplerRequest a;
  a.set_sampling_session_seq_id(1);
  v1::SaveWeightsForSamplerRequest b;
  b.set_sampling_session_seq_id(2);
  CHECK(ContentHash(a) == ContentHash(b));
  b.set_kind("snapshot");
  CHECK(ContentHash(a) == ContentHash(b));
  b.set_kind("inflight");
  CHECK(ContentHash(a) != ContentHash(b));
  b.set_kind("");
  b.set_name("x");
  CHECK(ContentHash(a) != ContentHash(b));
}

TEST_CASE("ContentHash: an adapter's alpha and modules count", "[rpc]") {
  v1::CreateModelRequest request;
  const std::string hash = ContentHash(request);
  request.mutable_lora_config()->set_alpha(16);
  const std::string with_alpha = ContentHash(request);
  CHECK(with_alpha != hash);
  request.mutable_lora_config()->add_target_modules("q_proj");
  const std::string with_module = ContentHash(request);
  CHECK(with_module != with_alpha);
  request.mutable_lora_config()->add_target_modules("v_proj");
  CHECK(ContentHash(request) != with_module);
}

TEST_CASE("ContentHash: every field of a sample counts", "[rpc]") {
  using Sample = v1::SampleRequest;
  const std::vector<std::function<void(Sample&)>> changes = {
      [](Sample& r) { r.mutable_params()->set_min_p(0.5); },
      [](Sample& r) { r.set_topk_sample_logprobs(1); },
      [](Sample& r) { r.set_prompt_alt_tokens_k(1); },
      [](Sample& r) { r.set_prompt_logprobs_last_n(1); },
      [](Sample& r) { r.mutable_target_prompt_logprobs(); },
      [](Sample& r) { r.mutable_target_prompt_logprobs()->set_dense("12345678"); },
  };
  std::set<std::string> hashes = {ContentHash(Sample())};
  for (const auto& change : changes) {
    Sample request;
    change(request);
    hashes.insert(ContentHash(request));
  }
  CHECK(hashes.size() == changes.size() + 1);
}

// The expected values were computed by another program from the fields in their order.
TEST_CASE("ContentHash: hashes of stored requests stay", "[rpc]") {
  v1::OptimStepRequest step;
  step.set_other_optimizer_type("dimuon");
  CHECK(ContentHash(step) == "1:5ed594a3f71661da3d258ddfcdf67f79685f0e50ff9ff7d08bd255618b038939");
  step.clear_other_optimizer_type();
  v1::AdamParams& adam = *step.mutable_adam_params();
  adam.set_learning_rate(1e-4);
  adam.set_beta1(0.9);
  adam.set_beta2(0.95);
  adam.set_eps(1e-12);
  adam.set_weight_decay(0.1);
  adam.set_grad_clip_norm(2);
  CHECK(ContentHash(step) == "1:cab0f25e2e774d00b4a7f7b0332728a7cc19a10dd49dd8816c2590a03c985b33");

  v1::CreateModelRequest create;
  create.set_base_model("base");
  create.set_optimizer_type("adamw");
  v1::LoraConfig& lora = *create.mutable_lora_config();
  lora.set_rank(8);
  lora.set_seed(7);
  lora.set_train_attn(true);
  lora.set_train_mlp(false);
  lora.set_train_unembed(true);
  lora.set_alpha(16);
  for (const char* module : {"q_proj", "lm_head"}) lora.add_target_modules(module);
  v1::NamedString& entry = *create.add_user_metadata();
  entry.set_name("k");
  entry.set_value("v");
  CHECK(ContentHash(create) ==
        "1:0fea1d1dc749256c68685f1d365185d53c656fdff35ad669f90d10f2c33ac790");
}

TEST_CASE("ContentHash: every number of a step counts", "[rpc]") {
  std::set<std::string> hashes = {ContentHash(v1::OptimStepRequest())};
  const google::protobuf::Descriptor& type = *v1::AdamParams::descriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    v1::OptimStepRequest request;
    v1::AdamParams& adam = *request.mutable_adam_params();
    adam.GetReflection()->SetDouble(&adam, type.field(i), 0.5);
    hashes.insert(ContentHash(request));
  }
  CHECK(static_cast<int>(hashes.size()) == type.field_count() + 1);
}

TEST_CASE("ContentHash: unset and empty stops differ", "[rpc]") {
  v1::SampleRequest unset;
  v1::SampleRequest empty;
  empty.mutable_params()->mutable_stop_strings();
  CHECK(ContentHash(unset) != ContentHash(empty));
}

}  // namespace
}  // namespace lathe::engine
