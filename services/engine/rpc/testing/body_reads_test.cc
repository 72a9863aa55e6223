// Bodies that are no longer in memory when their requests are sent to a worker.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {
namespace {

// A request's body whose read blocks. A FIFO takes the place of the file.
class BlockedBody {
 public:
  explicit BlockedBody(std::filesystem::path path) : path_(std::move(path)) {
    std::ostringstream bytes;
    bytes << std::ifstream(path_, std::ios::binary).rdbuf();
    bytes_ = std::move(bytes).str();
    std::filesystem::remove(path_);
    REQUIRE(mkfifo(path_.c_str(), 0600) == 0);
  }
  // Ends the read, also after a failed test.
  ~BlockedBody() {
    std::filesystem::remove(path_);
    if (writer_ >= 0) close(writer_);
  }

  void WaitForReader() {
    while (writer_ < 0) {
      writer_ = open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
      std::this_thread::yield();
    }
  }
  // Lets the read succeed.
  void Release() {
    WaitForReader();
    REQUIRE(fcntl(writer_, F_SETFL, 0) == 0);
    REQUIRE(write(writer_, bytes_.data(), bytes_.size()) == static_cast<ssize_t>(bytes_.size()));
    close(std::exchange(writer_, -1));
  }
  // Lets later reads succeed; the one that has begun stays blocked.
  void RestoreFile() {
    std::filesystem::remove(path_);
    std::ofstream(path_, std::ios::binary) << bytes_;
  }
  // Ends the read that has begun, with an empty body.
  void Cut() { close(std::exchange(writer_, -1)); }

 private:
  const std::filesystem::path path_;
  std::string bytes_;
  int writer_ = -1;
};

constexpr int kNumData = 100;

// A client of "tiny" with a model, whose worker is detached.
struct BodyFixture {
  BodyFixture() {
    client.MakeModel();
    worker.Detach();
  }

  // Submits a request whose body is stored as a file, and returns its id.
  std::string TrainLarge(int64_t seq) {
    v1::ForwardBackwardRequest request = client.TrainRequest(seq, 60);
    const v1::Datum datum = request.data(0);
    while (request.data_size() < kNumData) *request.add_data() = datum;
    return client.Accept(&v1::Engine::Stub::ForwardBackward, request);
  }
  std::filesystem::path BodyFile() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(engine.bodies_dir())) {
      files.push_back(entry.path());
    }
    REQUIRE(files.size() == 1);
    return files[0];
  }
  void Attach() { worker.Attach(engine.WorkerOptions().address); }
  // Returns the training items that the worker received.
  std::vector<v1::TrainItem> Items() {
    std::vector<v1::TrainItem> items;
    for (const v1::EngineMessage& message : worker.received()) {
      for (const v1::TrainItem& item : message.train_batch().items()) items.push_back(item);
    }
    return items;
  }
  bool IsPending(const std::string& id) {
    v1::GetResultResponse response;
    REQUIRE(client.GetResult(id, &response, /*wait_ms=*/0).ok());
    return !response.has_result();
  }

  TestEngine engine;
  FakeWorker worker{engine.WorkerOptions()};
  Client client{(engine.WaitForBaseModel("tiny"), engine), engine.MakeKey("default")};
};

TEST_CASE("Bodies: a blocked read delays neither the core nor another group", "[dispatcher]") {
  BodyFixture f;
  const std::string slow = f.TrainLarge(1);
  f.engine.Stop();
  BlockedBody body(f.BodyFile());
  f.engine.Start();
  f.Attach();
  body.WaitForReader();

  FakeWorker::Options options = f.engine.WorkerOptions();
  options.group = "g1";
  options.base_model = "other";
  FakeWorker other(options);
  f.engine.WaitForBaseModel("other");
  Client quick(f.engine, f.engine.MakeKey("quick"));  // creates a session
  v1::CreateModelRequest create;
  create.set_session_id(quick.session_id());
  create.set_base_model("other");
  create.mutable_lora_config()->set_rank(8);
  create.mutable_lora_config()->set_train_attn(true);
  CHECK(quick.Result(quick.Accept(&v1::Engine::Stub::CreateModel, create)).has_create_model());
  CHECK(quick.Result(quick.Train(1)).has_forward_backward());
  CHECK(f.IsPending(slow));

  body.Release();
  CHECK(f.client.Result(slow).has_forward_backward());
}

TEST_CASE("Bodies: commands behind a blocked read keep their order", "[dispatcher]") {
  BodyFixture f;
  std::vector<std::string> ids = {f.TrainLarge(1)};
  f.engine.Stop();
  BlockedBody body(f.BodyFile());
  f.engine.Start();
  f.Attach();
  body.WaitForReader();
  for (int64_t seq = 2; seq <= 5; ++seq) ids.push_back(f.client.Train(seq));
  body.Release();
  for (const std::string& id : ids) CHECK(f.client.Result(id).has_forward_backward());
  std::vector<std::string> received;
  for (const v1::TrainItem& item : f.Items()) received.push_back(item.request_id());
  CHECK(received == ids);
}

TEST_CASE("Bodies: a worker that attaches again during a read gets the request once",
          "[dispatcher]") {
  BodyFixture f;
  const std::string id = f.TrainLarge(1);
  f.engine.Stop();
  BlockedBody body(f.BodyFile());
  f.engine.Start();
  f.Attach();
  body.WaitForReader();
  f.worker.Detach();
  body.RestoreFile();
  f.Attach();
  CHECK(f.client.Result(id).has_forward_backward());
  body.Cut();
  // The next command follows whatever the first read has led to.
  CHECK(f.client.Result(f.client.Train(2)).has_forward_backward());
  const std::vector<v1::TrainItem> items = f.Items();
  REQUIRE(items.size() == 2);
  CHECK(items[0].request_id() == id);
  CHECK(items[0].request().data_size() == kNumData);
}

TEST_CASE("Bodies: a lost body fails its own request only", "[dispatcher]") {
  BodyFixture f;
  const std::string lost = f.TrainLarge(1);
  const std::string kept = f.client.Train(2);
  f.engine.Stop();
  std::filesystem::remove(f.BodyFile());
  f.engine.Start();
  f.Attach();
  CHECK(f.client.Result(lost).error().code() == "body_lost");
  CHECK(f.client.Result(kept).has_forward_backward());
}

TEST_CASE("Bodies: a request whose body cannot be read yet is sent later", "[dispatcher]") {
  BodyFixture f;
  const std::string late = f.TrainLarge(1);
  const std::string other = f.client.Train(2);
  f.engine.Stop();
  const std::filesystem::path file = f.BodyFile();
  const std::filesystem::path aside = f.engine.checkpoints_dir().parent_path() / "aside";
  std::filesystem::rename(file, aside);
  std::filesystem::create_directory(file);  // a read of it fails
  f.engine.Start();
  f.Attach();
  CHECK(f.client.Result(other).has_forward_backward());
  CHECK(f.IsPending(late));
  std::filesystem::remove(file);
  std::filesystem::rename(aside, file);
  CHECK(f.client.Result(late).has_forward_backward());
}

}  // namespace
}  // namespace lathe::engine
