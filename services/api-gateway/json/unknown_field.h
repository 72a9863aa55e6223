// What becomes of fields that a reader does not know.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lathe::gateway {

// Newer clients may send more than this server knows, so the request goes on without the field; the
// log gets one warning for each name, with the nearest of `known`; none for a request's own `type`.
// `pointer` is that of the object.
// Names beyond the first few hundred are dropped: clients can make up any number. Whether it was
// logged; any thread.
bool NoteUnknownField(std::string_view pointer, std::string_view name,
                      const std::vector<std::string_view>& known);

}  // namespace lathe::gateway
