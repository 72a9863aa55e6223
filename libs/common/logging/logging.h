// Logs one line per event on stderr: text on a terminal, JSON otherwise.
//
//   LogInfo("worker attached", {{"group", group}, {"epoch", 3}});
//
// Messages are constants in lower case; variable data goes into fields. Keys are the same
// everywhere: request_id, model_id, seq_id, rank, epoch, error. Never log prompts, tokens, weights
// or keys.
#pragma once

#include <initializer_list>
#include <string_view>

#include "libs/common/logging/log_field.h"

namespace lathe {

// Call once, first in main. `service` is in every line. `level` is debug, info, warn or error;
// another word counts as info. Without this call, lines have no service and debug is off.
void InitLogging(std::string_view service, std::string_view level = "info");

// Log one line. Any thread.
void LogDebug(std::string_view message, std::initializer_list<LogField> fields = {});
void LogInfo(std::string_view message, std::initializer_list<LogField> fields = {});
void LogWarn(std::string_view message, std::initializer_list<LogField> fields = {});
void LogError(std::string_view message, std::initializer_list<LogField> fields = {});

}  // namespace lathe
