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

TEST_CASE("ContentHash: what a sample asks for counts, all of it", "[rpc]") {
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

TEST_CASE("ContentHash: unset and empty stops differ", "[rpc]") {
  v1::SampleRequest unset;
  v1::SampleRequest empty;
  empty.mutable_params()->mutable_stop_strings();
  CHECK(ContentHash(unset) != ContentHash(empty));
}

}  // namespace
}  // namespace lathe::engine
