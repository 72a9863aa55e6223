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

BaseModelRow Dense() {
  return {.name = "tiny", .max_lora_rank = 512, .lora_modules = DenseLoraModules()};
}

// A base model without most of the usual modules, and with one that no dense decoder has.
BaseModelRow Odd() {
  return {.name = "odd",
          .lora_modules = {{"router", LoraFamily::kMlp},
                           {"v_proj", LoraFamily::kAttention},
                           {"q_proj", LoraFamily::kAttention}}};
}

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
                                    const LoraDefaults& defaults = {},
                                    const BaseModelRow& base = Dense()) {
  return ValidateLora(proto, metadata, defaults, base);
}

std::string MessageOf(const absl::StatusOr<LoraConfig>& lora) {
  return std::string(lora.status().message());
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
       "has 'k', base model 'tiny' has q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
       "down_proj, lm_head"},
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
       "user_metadata.lathe_target_modules", "has '', base model 'tiny' has q_proj"},
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

TEST_CASE("lora_config: a base model's own modules count, in its order", "[validate]") {
  const absl::StatusOr<LoraConfig> all = Validate(Everything(), {}, {}, Odd());
  REQUIRE(all.ok());
  CHECK(all->target_modules == Names{"router", "v_proj", "q_proj"});
  CHECK(all->train_unembed);  // as asked
  v1::LoraConfig proto;
  proto.set_rank(4);
  proto.set_train_mlp(true);
  CHECK(Validate(proto, {}, {}, Odd())->target_modules == Names{"router"});
  const Metadata metadata = {{"lathe_target_modules", "q_proj,v_proj,router"}};
  proto.clear_train_mlp();
  const absl::StatusOr<LoraConfig> named = Validate(proto, metadata, {}, Odd());
  REQUIRE(named.ok());
  CHECK(named->target_modules == Names{"router", "v_proj", "q_proj"});
  CHECK((named->train_mlp && named->train_attn && !named->train_unembed));
  proto.set_train_mlp(false);
  CHECK_THAT(MessageOf(Validate(proto, metadata, {}, Odd())),
             Catch::Contains("has router, but lora_config.train_mlp is false"));
}

TEST_CASE("lora_config: a module that the base model lacks is refused by name", "[validate]") {
  v1::LoraConfig proto;
  proto.set_rank(4);
  proto.add_target_modules("q_proj");
  proto.add_target_modules("k_proj");
  const absl::StatusOr<LoraConfig> by_field = Validate(proto, {}, {}, Odd());
  CHECK(ErrorField(by_field.status()) == "lora_config.target_modules");
  CHECK(MessageOf(by_field) ==
        "lora_config.target_modules has 'k_proj', base model 'odd' has router, v_proj, q_proj");
  proto.clear_target_modules();
  CHECK(MessageOf(Validate(proto, {{"lathe_target_modules", "lm_head"}}, {}, Odd())) ==
        "user_metadata.lathe_target_modules has 'lm_head', base model 'odd' has router, v_proj, "
        "q_proj");
  proto.add_target_modules("router");
  CHECK_THAT(MessageOf(Validate(proto)),
             Catch::Contains("has 'router', base model 'tiny' has q_proj"));
}

TEST_CASE("lora_config: families without a module of the base model train nothing", "[validate]") {
  v1::LoraConfig proto;
  proto.set_rank(8);
  proto.set_train_unembed(true);
  CHECK(MessageOf(Validate(proto, {}, {}, Odd())) ==
        "lora_config trains nothing: it asks for train_unembed, base model 'odd' has router, "
        "v_proj, q_proj");
  CHECK_THAT(MessageOf(Validate(proto, {}, {}, {.name = "bare"})),
             Catch::Contains("base model 'bare' has none"));
  proto.set_train_mlp(true);
  const LoraDefaults defaults = *MakeLoraDefaults(32, {"up_proj", "q_proj"});
  CHECK_THAT(MessageOf(Validate(proto, {}, defaults, Odd())),
             Catch::Contains("asks for router, this server's lora.target_modules are q_proj, "
                             "up_proj; name others in target_modules"));
  proto.set_train_attn(true);
  CHECK(Validate(proto, {}, defaults, Odd())->target_modules == Names{"q_proj"});
}

TEST_CASE("lora options: all stands for the modules of each base model", "[validate]") {
  const LoraDefaults defaults = *MakeLoraDefaults(32, {"all"});
  CHECK(Validate(Everything(), {}, defaults)->target_modules ==
        LoraModuleNames(DenseLoraModules()));
  CHECK(Validate(Everything(), {}, defaults, Odd())->target_modules ==
        Names{"router", "v_proj", "q_proj"});
}

TEST_CASE("lora options: bad ones are refused by name", "[validate]") {
  CHECK_THAT(std::string(MakeLoraDefaults(0, {"q_proj"}).status().message()),
             Catch::Contains("lora.alpha is 0"));
  CHECK_THAT(std::string(MakeLoraDefaults(32, {}).status().message()),
             Catch::Contains("lora.target_modules is empty"));
  CHECK_THAT(std::string(MakeLoraDefaults(32, {"attn"}).status().message()),
             Catch::Contains("lora.target_modules has 'attn', known are q_proj"));
  CHECK_THAT(std::string(MakeLoraDefaults(32, {"q_proj", "all"}).status().message()),
             Catch::Contains("lora.target_modules has 'all'"));
}

}  // namespace
}  // namespace lathe::engine
