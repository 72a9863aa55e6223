#include "services/engine/rpc/validate_lora.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "libs/common/errors.h"

namespace lathe::engine {
namespace {

using Names = std::vector<std::string>;

constexpr ModelLimits kLoraLimits{
    .max_context_length = 16, .vocab_size = 100, .max_lora_rank = 512};

// Returns the configuration that the SDK sends by default.
v1::LoraConfig Everything() {
  v1::LoraConfig proto;
  proto.set_rank(8);
  proto.set_train_attn(true);
  proto.set_train_mlp(true);
  proto.set_train_unembed(true);
  return proto;
}

absl::StatusOr<LoraConfig> Validate(const v1::LoraConfig& proto, const Metadata& metadata = {},
                                    const LoraDefaults& defaults = {}) {
  return ValidateLora(proto, metadata, defaults, kLoraLimits);
}

TEST_CASE("lora_config: any rank in bounds passes, alpha defaults to 32", "[validate]") {
  const int64_t rank = GENERATE(1, 3, 512);
  v1::LoraConfig proto;
  proto.set_rank(rank);
  proto.set_train_unembed(true);
  const absl::StatusOr<LoraConfig> lora = Validate(proto);
  REQUIRE(lora.ok());
  CHECK(lora->rank == rank);
  CHECK(lora->alpha == 32);
  CHECK_FALSE(lora->train_attn);
  CHECK(lora->target_modules == Names{"lm_head"});
}

TEST_CASE("lora_config: fields and metadata say alpha and modules alike", "[validate]") {
  v1::LoraConfig by_field = Everything();
  by_field.set_alpha(16.5);
  by_field.add_target_modules("v_proj");
  by_field.add_target_modules("q_proj");
  const Metadata metadata = {{"lathe_lora_alpha", "16.5"},
                             {"lathe_target_modules", "v_proj,q_proj"}};
  for (const auto& lora : {Validate(by_field), Validate(Everything(), metadata)}) {
    REQUIRE(lora.ok());
    CHECK(lora->alpha == 16.5);
    CHECK(lora->target_modules == Names{"q_proj", "v_proj"});
    CHECK(lora->train_mlp);  // as asked
  }
}

TEST_CASE("lora_config: named modules alone turn their families on", "[validate]") {
  v1::LoraConfig proto;
  proto.set_rank(4);
  proto.add_target_modules("down_proj");
  const absl::StatusOr<LoraConfig> lora = Validate(proto);
  REQUIRE(lora.ok());
  CHECK((lora->train_mlp && !lora->train_attn && !lora->train_unembed));
}

TEST_CASE("lora_config: the server's defaults fill in and do not bind", "[validate]") {
  const LoraDefaults defaults = *MakeLoraDefaults(64, {"lm_head", "q_proj"});
  CHECK(defaults.target_modules == Names{"q_proj", "lm_head"});
  absl::StatusOr<LoraConfig> lora = Validate(Everything(), {}, defaults);
  REQUIRE(lora.ok());
  CHECK(lora->alpha == 64);
  CHECK(lora->target_modules == Names{"q_proj", "lm_head"});
  v1::LoraConfig proto = Everything();
  proto.set_alpha(8);
  lora = Validate(proto, {{"lathe_target_modules", "up_proj"}}, defaults);
  REQUIRE(lora.ok());
  CHECK(lora->alpha == 8);
  CHECK(lora->target_modules == Names{"up_proj"});
}

TEST_CASE("lora_config: every bad shape is refused by name", "[validate]") {
  struct Row {
    std::function<void(v1::LoraConfig&, Metadata&)> spoil;
    const char* field;
    const char* message;
  };
  using Proto = v1::LoraConfig;
  const std::vector<Row> rows = {
      {[](Proto& p, Metadata&) { p.set_rank(0); }, "lora_config.rank", "rank is 0, expected 1"},
      {[](Proto& p, Metadata&) { p.set_rank(-1); }, "lora_config.rank", "rank is -1"},
      {[](Proto& p, Metadata&) { p.set_rank(513); }, "lora_config.rank", "expected 1 to 512"},
      {[](Proto& p, Metadata&) { p.set_alpha(0); }, "lora_config.alpha", "alpha is 0, expected"},
      {[](Proto& p, Metadata&) { p.set_alpha(-3); }, "lora_config.alpha", "alpha is -3"},
      {[](Proto& p, Metadata&) { p.set_alpha(NAN); }, "lora_config.alpha", "alpha is nan"},
      {[](Proto& p, Metadata&) { p.set_alpha(1e300); }, "lora_config.alpha", "alpha is 1e+300"},
      {[](Proto& p, Metadata&) { p.set_alpha(1e-300); }, "lora_config.alpha", "alpha is 1e-300"},
      {[](Proto& p, Metadata&) {
         p = Proto();
         p.set_rank(8);
       },
       "lora_config", "trains nothing"},
      {[](Proto& p, Metadata&) { p.add_target_modules("k"); }, "lora_config.target_modules",
       "has 'k', known are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, "
       "lm_head"},
      {[](Proto& p, Metadata&) {
         p.add_target_modules("q_proj");
         p.add_target_modules("q_proj");
       },
       "lora_config.target_modules", "has q_proj twice"},
      {[](Proto& p, Metadata&) {
         p.set_train_attn(false);
         p.add_target_modules("q_proj");
       },
       "lora_config.target_modules", "has q_proj, but lora_config.train_attn is false"},
      {[](Proto& p, Metadata& m) {
         p.set_train_mlp(false);
         m = {{"lathe_target_modules", "q_proj,up_proj"}};
       },
       "user_metadata.lathe_target_modules", "has up_proj, but lora_config.train_mlp is false"},
      {[](Proto&, Metadata& m) {
         m = {{"lathe_lora_alpha", "big"}};
       },
       "user_metadata.lathe_lora_alpha", "lathe_lora_alpha is 'big', expected a finite number"},
      {[](Proto&, Metadata& m) {
         m = {{"lathe_lora_alpha", "inf"}};
       },
       "user_metadata.lathe_lora_alpha", "is 'inf'"},
      {[](Proto&, Metadata& m) {
         m = {{"lathe_lora_alpha", "-1"}};
       },
       "user_metadata.lathe_lora_alpha", "is '-1'"},
      {[](Proto&, Metadata& m) {
         m = {{"lathe_target_modules", ""}};
       },
       "user_metadata.lathe_target_modules", "has '', known are"},
      {[](Proto&, Metadata& m) {
         m = {{"lathe_target_modules", "q_proj, v_proj"}};
       },
       "user_metadata.lathe_target_modules", "has ' v_proj'"},
      {[](Proto& p, Metadata& m) {
         p.set_alpha(8);
         m = {{"lathe_lora_alpha", "8"}};
       },
       "lora_config.alpha", "both given, expected one"},
      {[](Proto& p, Metadata& m) {
         p.add_target_modules("q_proj");
         m = {{"lathe_target_modules", "q_proj"}};
       },
       "lora_config.target_modules", "both given, expected one"},
  };
  for (const Row& row : rows) {
    v1::LoraConfig proto = Everything();
    Metadata metadata;
    row.spoil(proto, metadata);
    const absl::Status status = Validate(proto, metadata).status();
    INFO(row.message);
    INFO(status);
    CHECK(ErrorCode(status) == "bad_lora");
    CHECK(ErrorField(status) == row.field);
    CHECK_THAT(std::string(status.message()), Catch::Contains(row.message));
  }
}

TEST_CASE("lora_config: families outside the server's modules train nothing", "[validate]") {
  v1::LoraConfig proto;
  proto.set_rank(8);
  proto.set_train_unembed(true);
  const absl::Status status = Validate(proto, {}, *MakeLoraDefaults(32, {"q_proj"})).status();
  CHECK_THAT(std::string(status.message()),
             Catch::Contains("asks for lm_head, this server's lora.target_modules are q_proj"));
}

TEST_CASE("lora options: bad ones are refused by name", "[validate]") {
  CHECK_THAT(std::string(MakeLoraDefaults(0, {"q_proj"}).status().message()),
             Catch::Contains("lora.alpha is 0"));
  CHECK_THAT(std::string(MakeLoraDefaults(32, {}).status().message()),
             Catch::Contains("lora.target_modules is empty"));
  CHECK_THAT(std::string(MakeLoraDefaults(32, {"attn"}).status().message()),
             Catch::Contains("lora.target_modules has 'attn', known are q_proj"));
}

}  // namespace
}  // namespace lathe::engine
