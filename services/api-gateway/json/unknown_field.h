// Logs request fields that a reader does not know.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lathe::gateway {

// Logs a warning about member `name` of the object at JSON pointer `pointer`, with the nearest of
// `known`. A request proceeds without such a field, because newer clients may send more than this
// server knows. Each name is logged once. A request's own `type` is not logged, nor are names
// beyond the first few hundred, because clients can invent any number of names. Returns true if the
// name was logged. Any thread.
bool RecordUnknownField(std::string_view pointer, std::string_view name,
                        const std::vector<std::string_view>& known);

}  // namespace lathe::gateway
