#include "services/worker/checkpoint/sha256_each.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/checkpoint/sha256.h"

namespace lathe::worker {
namespace {

std::string Digest(const std::string& text) {
  Sha256 hash;
  hash.Update(text);
  return hash.HexDigest();
}

std::vector<std::string> Each(const std::vector<std::string>& texts) {
  std::vector<Message> messages;
  for (const std::string& text : texts) messages.push_back({text.data(), text.size()});
  return Sha256Each(messages);
}

TEST_CASE("SHA-256: the standard's examples", "[sha256]") {
  // FIPS 180-2, appendix B.
  CHECK(
      Each({"abc", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", ""}) ==
      std::vector<std::string>{"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
                               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
                               "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"});
  CHECK(Sha256Each({}).empty());
}

TEST_CASE("SHA-256: messages of every length side by side are as alone", "[sha256]") {
  const unsigned seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::string> texts;
  for (size_t length = 0; length < 300; ++length) {
    std::string text(length, '\0');
    for (char& c : text) c = static_cast<char>(random());
    texts.push_back(std::move(text));
  }
  std::shuffle(texts.begin(), texts.end(), random);
  const std::vector<std::string> digests = Each(texts);
  REQUIRE(digests.size() == texts.size());
  for (size_t i = 0; i < texts.size(); ++i) CHECK(digests[i] == Digest(texts[i]));
}

}  // namespace
}  // namespace lathe::worker
