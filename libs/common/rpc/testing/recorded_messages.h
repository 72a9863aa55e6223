// The recorded messages of the release before (tools/record_protocol.py), for tests that replay
// them.
#pragma once

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace lathe {

// Returns the messages of one type in `path`, with the fields that this release still knows.
template <typename Message>
std::vector<Message> RecordedMessages(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream content;
  content << file.rdbuf();
  google::protobuf::TextFormat::Parser parser;
  parser.AllowUnknownField(true);
  std::vector<Message> messages;
  const std::vector<std::string> blocks = absl::StrSplit(content.str(), "# message ");
  for (absl::string_view text : blocks) {
    if (!absl::ConsumePrefix(&text, Message::descriptor()->full_name() + "\n")) continue;
    INFO(text);
    REQUIRE(parser.ParseFromString(std::string(text), &messages.emplace_back()));
  }
  return messages;
}

}  // namespace lathe
