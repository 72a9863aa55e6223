// Tests the gateway over real sockets, in front of a fake engine.
#include <stdlib.h>

#include <boost/asio/co_spawn.hpp>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "services/api-gateway/http/error_response.h"
#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/routes/archive_files.h"
#include "services/api-gateway/routes/rpc_route.h"
#include "services/api-gateway/testing/checks.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {
namespace {

// Returns a path that matches `pattern`, with "x" for each parameter.
std::string ExampleOf(const std::string& pattern) {
  std::string path;
  bool is_parameter = false;
  for (const char c : pattern) {
    if (c == '{') path += "x";
    is_parameter = c == '{' || (is_parameter && c != '}');
    if (!is_parameter && c != '}') path += c;
  }
  return path;
}

TEST_CASE("Every route but the listed few wants a key", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  const std::set<std::string> open = {"/api/v1/healthz",
                                      "/livez",
                                      "/readyz",
                                      "/archive/{token}",
                                      "/traces/{token}",
                                      "/docs",
                                      "/docs/page.js",
                                      "/docs/page.css",
                                      "/docs/openapi.json",
                                      "/ui",
                                      "/ui/{page}",
                                      "/ui/runs/{run_id}",
                                      "/ui/assets/{file}",
                                      "/",
                                      "/ui/auth/methods",
                                      "/ui/auth/key",
                                      "/ui/auth/login",
                                      "/ui/auth/callback"};
  for (const Route& route : gateway.gateway().router().routes()) {
    HttpClient client(gateway.port());
    const std::string path = ExampleOf(route.pattern);
    INFO(route.method << " " << path);
    const auto none = client.Exchange(route.method, path, "", {{"x-api-key", ""}});
    CHECK((none.status == 401) == (open.count(route.pattern) == 0));
    const auto wrong = client.Exchange(route.method, path, "", {{"x-api-key", "tml-wrong"}});
    CHECK((wrong.status == 401) == (open.count(route.pattern) == 0));
    if (none.status == 401) CHECK(none.headers.count("www-authenticate") == 1);
    if (none.status == 401) CHECK(none.body == wrong.body);
  }
}

TEST_CASE("Notices come with what a program asks when it starts, not with every answer",
          "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine,
                         {.notices = {.notice = "down at 6 pm", .min_sdk_version = "0.26.0"}});
  HttpClient client(gateway.port());
  const auto notices = [&client](const std::string& method, const std::string& path) {
    const HttpAnswer answer = client.Exchange(
        method, path, method == "POST" ? "{}" : "",
        {{"content-type", "application/json"}, {"x-stainless-package-version", "0.25.0"}});
    const auto note = answer.headers.find("x-deprecation-note");
    if (note == answer.headers.end()) return std::string();
    CHECK(answer.headers.at("x-deprecation-level") == "error");
    return note->second;
  };
  CHECK(notices("POST", "/api/v1/client/config").find("down at 6 pm | tinker 0.25.0") == 0);
  CHECK(notices("POST", "/api/v1/client/dynamic_config") != "");
  CHECK(notices("POST", "/api/v1/create_session") != "");
  CHECK(notices("GET", "/api/v1/get_server_capabilities").empty());
  CHECK(notices("POST", "/api/v1/telemetry").empty());
}

TEST_CASE("The gateway is ready while it reaches the engine, and live in any case", "[gateway]") {
  FakeEngine engine;
  GatewayOptions options;
  options.outage_grace = absl::ZeroDuration();
  RunningGateway gateway(engine, options);
  HttpClient client(gateway.port());
  // A poll waits until the stream to the engine is up.
  engine.Settle("r1", {});
  client.Post("/api/v1/retrieve_future", R"({"request_id":"r1"})");
  CHECK(client.Exchange("GET", "/readyz").status == 200);
  CHECK(gateway.gateway().CheckReady().ok());
  engine.StopServing();
  while (gateway.gateway().CheckReady().ok()) std::this_thread::yield();
  const HttpAnswer away = client.Exchange("GET", "/readyz");
  CHECK(away.status == 503);
  CHECK(Json::parse(away.body)["error"]["code"] == "not_ready");
  CHECK(client.Exchange("GET", "/livez").body == R"({"status":"ok"})");
  CHECK(gateway.gateway().CheckLive().ok());
}

TEST_CASE("A short outage of the engine leaves a gateway ready", "[gateway]") {
  FakeEngine engine;
  GatewayOptions options;
  options.routes.poll_hold = absl::Milliseconds(20);
  options.outage_grace = absl::Hours(1);
  RunningGateway gateway(engine, options);
  HttpClient client(gateway.port());
  engine.Settle("r1", {});
  while (absl::StrContains(client.Post("/api/v1/retrieve_future", R"({"request_id":"r1"})").body,
                           "try_again")) {
  }
  engine.StopServing();
  // A poll tells when the gateway has noticed.
  while (!absl::StrContains(client.Post("/api/v1/retrieve_future", R"({"request_id":"r2"})").body,
                            "not reachable")) {
  }
  CHECK(client.Exchange("GET", "/readyz").status == 200);
  CHECK(gateway.gateway().CheckReady().ok());
}

TEST_CASE("The start of an SDK program is answered over one connection", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  const Json config =
      Json::parse(client.Post("/api/v1/client/config", R"({"sdk_version":"0"})").body);
  CHECK(config["parallel_fwdbwd_chunks"] == false);
  CHECK(config["create_model_via_load_weights"] == true);
  CHECK(config["proto_compress_fwdbwd"] == true);
  CHECK(config["sample_use_retrieve_futures"] == true);
  CHECK(client.Post("/api/v1/client/dynamic_config", "{}").status == 200);
  const HttpAnswer session = client.Exchange(
      "POST", "/api/v1/create_session",
      R"({"tags":[],"user_metadata":{"a":"b"},"sdk_version":"0.38.0"})",
      {{"content-type", "application/json"}, {"x-stainless-package-version", "0.38.0"}});
  CHECK(Json::parse(session.body)["session_id"] == "CreateSession-1");
  CHECK(engine.last_create_session().ordering() == v1::SESSION_ORDERING_SERIAL);
  client.Post("/api/v1/create_session", "{}");
  CHECK(engine.last_create_session().ordering() == v1::SESSION_ORDERING_CONCURRENT);
  CHECK(client.Post("/api/v1/telemetry", "not even JSON").body == R"({"status":"accepted"})");
  CHECK(client.Exchange("GET", "/api/v1/healthz").body == R"({"status":"ok"})");
  const HttpAnswer models = client.Exchange("GET", "/api/v1/get_server_capabilities");
  CHECK(Json::parse(models.body)["supported_models"][0]["model_name"] == "tiny");
}

TEST_CASE("A heartbeat of a finished session is answered 410", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  CHECK(client.Post("/api/v1/session_heartbeat", R"({"session_id":"s"})").status == 200);
  CHECK(client.Post("/api/v1/session_heartbeat", R"({"session_id":"finished"})").status == 410);
}

TEST_CASE("A key is asked about once in its lifetime", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  for (int i = 0; i < 5; ++i) client.Post("/api/v1/client/config", "{}");
  CHECK(engine.num_calls("Authenticate") == 1);
  gateway.clock().Advance(absl::Seconds(6));
  client.Post("/api/v1/client/config", "{}");
  CHECK(engine.num_calls("Authenticate") == 2);
}

TEST_CASE("An engine error keeps its code, field and message", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  const HttpAnswer answer =
      HttpClient(gateway.port())
          .Post("/api/v1/optim_step",
                R"({"adam_params":{"learning_rate":-1},"model_id":"m","seq_id":1})");
  CHECK(answer.status == 400);
  const Json error = Json::parse(answer.body)["error"];
  CHECK(error["code"] == "bad_optimizer");
  CHECK(error["param"] == "adam_params.learning_rate");
  CHECK(error["message"] == "learning_rate is -1, allowed is 0 or more");
}

TEST_CASE("A training request without seq_id is named by its idempotency key", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  const auto key_of = [&](const std::string& seq) {
    const std::string body =
        R"({"forward_backward_input":{"data":[],"loss_fn":"x"},)" + seq + R"("model_id":"m"})";
    CHECK(client
              .Exchange("POST", "/api/v1/forward_backward", body,
                        {{"Content-Type", "application/json"}, {"X-Idempotency-Key", "once"}})
              .status == 200);
    return engine.last_forward_backward().idempotency_key();
  };
  CHECK(key_of("") == "once");
  CHECK(key_of(R"("seq_id":7,)").empty());
}

TEST_CASE("forward_backward is taken as protobuf and as JSON", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  const std::string protobuf = "\x0a\x01m\x10\x07";
  CHECK(client
            .Exchange("POST", "/api/v1/forward_backward", protobuf,
                      {{"Content-Type", "application/x-protobuf"}})
            .body == R"({"request_id":"ForwardBackward-1"})");
  CHECK(engine.last_forward_backward().seq_id() == 7);
  CHECK(client
            .Post("/api/v1/forward",
                  R"({"forward_input":{"data":[],"loss_fn":"x"},"model_id":"m","seq_id":8})")
            .status == 200);
  CHECK(engine.last_forward_backward().forward_only());
  CHECK(client.Exchange("POST", "/api/v1/forward_backward", protobuf, {{"Content-Type", "a/b"}})
            .status == 415);
}

TEST_CASE("A malformed forward_backward is refused, and recorded under its seq_id", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  const std::string damaged = "\x0a\x01m\x10\x07\x1a\x64xx";
  const HttpAnswer answer = client.Exchange("POST", "/api/v1/forward_backward", damaged,
                                            {{"Content-Type", "application/x-protobuf"}});
  CHECK(answer.status == 400);
  CHECK(CodeOf(answer) == "bad_proto");
  CHECK(engine.last_forward_backward().model_id() == "m");
  CHECK(engine.last_forward_backward().seq_id() == 7);
  CHECK(engine.last_forward_backward().malformed() ==
        Json::parse(answer.body)["error"]["message"].get<std::string>());
}

TEST_CASE("asample answers one sequence id per sample", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  const HttpAnswer answer =
      HttpClient(gateway.port())
          .Post("/api/v1/asample",
                R"({"num_samples":2,"prompt":{"chunks":[{"tokens":[1],"type":"encoded_text"}]},
                    "sampling_params":{"stop":[]},"sampling_session_id":"s","seq_id":4})");
  CHECK(Json::parse(answer.body)["sample_sequence_ids"].dump() == R"(["s:4:0","s:4:1"])");
  CHECK(engine.last_sample().params().has_stop_strings());
}

TEST_CASE("A run's checkpoints are listed without pages, the user's with", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  const Json of_run =
      Json::parse(client.Exchange("GET", "/api/v1/training_runs/s:train:0/checkpoints").body);
  CHECK(of_run["checkpoints"].size() == 1500);
  const Json page =
      Json::parse(client.Exchange("GET", "/api/v1/checkpoints?limit=1000&offset=1400").body);
  CHECK(page["checkpoints"].size() == 100);
  CHECK(page["cursor"].dump() == R"({"limit":1000,"offset":1400,"total_count":1500})");
  CHECK(client.Exchange("GET", "/api/v1/checkpoints?limit=x").status == 400);
}

TEST_CASE("publish and unpublish need no body and answer 204", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  const std::string path = "/api/v1/training_runs/s:train:0/checkpoints/weights/0001/publish";
  const std::vector<Header> json = {{"Content-Type", "application/json"}};
  CHECK(client.Exchange("POST", path, "", json).status == 204);
  CHECK(engine.last_publish().tinker_path() == "tinker://s:train:0/weights/0001");
  CHECK(engine.last_publish().public_());
  CHECK(client.Exchange("DELETE", path, "", json).status == 204);
  CHECK_FALSE(engine.last_publish().public_());
}

TEST_CASE("An archive link is absolute, signed, and needs no key", "[gateway]") {
  FakeEngine engine;
  v1::OpenArchiveResponse archive;
  archive.set_dir("/proc/self");
  archive.set_file_name("a\r\nb.tar");
  engine.SetArchive(archive);
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  const HttpAnswer link = client.Exchange(
      "GET", "/api/v1/training_runs/s:train:0/checkpoints/sampler_weights/a/archive", "",
      {{"Accept", "application/json"}, {"accept", "application/json"}});
  CHECK(link.status == 302);
  CHECK(link.headers.at("location") == "http://gateway.test:80/archive/t0ken-_");
  CHECK(link.headers.at("expires") == "Thu, 01 Jan 2026 00:00:00 GMT");
  const HttpAnswer tar = client.Exchange("GET", "/archive/t0ken-_", "", {{"x-api-key", ""}});
  CHECK(tar.status == 200);
  CHECK(tar.headers.at("content-disposition") == "attachment; filename=\"ab.tar\"");
  CHECK(tar.body.size() == 1536);
  CHECK(tar.body.substr(0, 19) == "checkpoint_complete");
  CHECK(client.Exchange("GET", "/archive/other", "", {{"x-api-key", ""}}).status == 404);
}

// Fixture with a download of "0123456789".
struct PlainDownload {
  FakeEngine engine;
  std::string dir = "/tmp/lathe-gateway-XXXXXX";
  v1::OpenArchiveResponse archive;

  PlainDownload() {
    REQUIRE(mkdtemp(dir.data()) != nullptr);
    std::ofstream(dir + "/digits") << "0123456789";
    archive.set_dir(dir);
    archive.set_file_name("digits");
    archive.set_is_plain(true);
    archive.add_files()->set_name("digits");
    archive.mutable_files(0)->set_size_bytes(10);
    engine.SetArchive(archive);
  }
  ~PlainDownload() { std::filesystem::remove_all(dir); }
};

TEST_CASE("A gateway reads checkpoints where it mounts the data directory", "[gateway]") {
  PlainDownload download;
  const std::filesystem::path folder = download.dir;
  std::filesystem::create_directories(folder / "checkpoints" / "c1");
  std::filesystem::rename(folder / "digits", folder / "checkpoints" / "c1" / "digits");
  download.archive.set_dir("c1");
  download.engine.SetArchive(download.archive);
  GatewayOptions options;
  options.data_dir = folder;
  RunningGateway gateway(download.engine, options);
  HttpClient client(gateway.port());
  CHECK(client.Exchange("GET", "/archive/t0ken-_", "", {}).body == "0123456789");
}

TEST_CASE("A gateway without a data directory says that it serves no downloads", "[gateway]") {
  asio::io_context io;
  ArchiveFiles files("");
  absl::Status status;
  asio::co_spawn(io, files.Open("c1", {}, false),
                 [&](std::exception_ptr, const auto& opened) { status = opened.status(); });
  io.run();
  CHECK(ErrorCode(status) == "downloads_not_served");
  CHECK(HttpStatus(status) == 501);
}

TEST_CASE("A download is given in ranges", "[gateway]") {
  PlainDownload download;
  RunningGateway gateway(download.engine);
  HttpClient client(gateway.port());
  const auto get = [&](std::vector<Header> headers) {
    return client.Exchange("GET", "/archive/t0ken-_", "", headers);
  };
  const HttpAnswer whole = get({});
  CHECK(whole.status == 200);
  CHECK(whole.body == "0123456789");
  CHECK(whole.headers.at("accept-ranges") == "bytes");
  CHECK(whole.headers.at("content-type") == "application/octet-stream");
  const HttpAnswer part = get({{"Range", "bytes=2-4"}});
  CHECK(part.status == 206);
  CHECK(part.body == "234");
  CHECK(part.headers.at("content-range") == "bytes 2-4/10");
  const std::string tag = whole.headers.at("etag");
  CHECK(get({{"Range", "bytes=-1"}, {"If-Range", tag}}).body == "9");
  CHECK(get({{"Range", "bytes=-1"}, {"If-Range", "\"other\""}}).body == "0123456789");
  const HttpAnswer none = get({{"Range", "bytes=10-"}});
  CHECK(none.status == 416);
  CHECK(none.headers.at("content-range") == "bytes */10");
  CHECK(none.body.empty());
}

TEST_CASE("HEAD gives the length and no body", "[gateway]") {
  PlainDownload download;
  RunningGateway gateway(download.engine);
  HttpClient client(gateway.port());
  client.SendRaw(
      "HEAD /archive/t0ken-_ HTTP/1.1\r\nHost: x\r\n\r\n"
      "HEAD /archive/unknown HTTP/1.1\r\nHost: x\r\n\r\n"
      "GET /archive/t0ken-_ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string all = client.ReceiveAll();
  CHECK(all.find("Content-Length: 10\r\n") < all.find("404"));
  // Answers to HEAD have no body, so the next answer directly follows their heads.
  CHECK(all.find("keep-alive\r\n\r\nHTTP/1.1 404") != std::string::npos);
  CHECK(all.find("keep-alive\r\n\r\nHTTP/1.1 200") != std::string::npos);
  CHECK(all.substr(all.size() - 14) == "\r\n\r\n0123456789");
}

TEST_CASE("While the engine is away submissions get 503 and start-up still works", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  REQUIRE(client.Post("/api/v1/client/config", "{}").status == 200);
  engine.StopServing();
  const HttpAnswer answer = client.Post(
      "/api/v1/optim_step", R"({"adam_params":{"learning_rate":0},"model_id":"m","seq_id":1})");
  CHECK(answer.status == 503);
  CHECK(answer.headers.count("retry-after") == 1);
  gateway.clock().Advance(absl::Seconds(6));  // expires the cached key
  CHECK(client.Post("/api/v1/client/config", "{}").status == 200);
  CHECK(client.Post("/api/v1/telemetry", "{}").status == 200);
  CHECK(client.Post("/api/v1/create_session", "{}").status == 503);
}

TEST_CASE("A request without number and name is not said to be repeatable", "[gateway]") {
  v1::OptimStepRequest step;
  CHECK_FALSE(MayRepeat(step));
  step.set_seq_id(1);
  CHECK(MayRepeat(step));
  v1::LoadWeightsRequest load;
  CHECK_FALSE(MayRepeat(load));
  load.set_model_seq_id(0);
  CHECK(MayRepeat(load));
  v1::SaveWeightsRequest save;
  save.set_idempotency_key("once");
  CHECK(MayRepeat(save));
  CHECK(MayRepeat(v1::SampleRequest()));

  const auto word = [](const absl::Status& status) { return ErrorCode(OfUnrepeatable(status)); };
  CHECK(word(absl::UnavailableError("Socket closed")) == "outcome_unknown");
  CHECK(word(absl::DeadlineExceededError("Deadline Exceeded")) == "outcome_unknown");
  CHECK(word(absl::UnavailableError("failed to connect to all addresses")) == "unavailable");
  CHECK(word(WithDetail(absl::UnavailableError("draining"), "draining")) == "draining");
  CHECK(HttpStatus(OfUnrepeatable(absl::CancelledError("x"))) == 504);
}

TEST_CASE("A drain serves on for its delay, unready, and ends connections with their answers",
          "[gateway]") {
  FakeEngine engine;
  GatewayOptions options;
  options.drain_delay = absl::Hours(1);
  RunningGateway gateway(engine, options);
  HttpClient open(gateway.port());
  CHECK(open.Post("/api/v1/client/config", "{}").status == 200);
  gateway.gateway().Drain();
  const absl::Status unready = gateway.gateway().CheckReady();
  CHECK(unready.message() == "the gateway is stopping");
  CHECK(open.Post("/api/v1/client/config", "{}").status == 200);
  CHECK(open.IsClosedByServer());
  HttpClient late(gateway.port());
  const HttpAnswer probe = late.Exchange("GET", "/readyz");
  CHECK(probe.status == 503);
  CHECK(Json::parse(probe.body)["error"]["code"] == "not_ready");
  HttpClient idle(gateway.port());
  // The second call ends the delay.
  gateway.Stop();
  CHECK(idle.IsClosedByServer());
}

TEST_CASE("A drain finishes the request in progress and closes idle connections", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient idle(gateway.port());
  idle.Post("/api/v1/client/config", "{}");
  gateway.Stop();
  CHECK(idle.IsClosedByServer());
}

}  // namespace
}  // namespace lathe::gateway
