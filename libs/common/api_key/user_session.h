// The form of the secret of a browser's session, which a cookie carries.
#pragma once

#include <string>
#include <string_view>

namespace lathe {

// Name of the gRPC metadata with a session.
inline constexpr char kUserSessionHeader[] = "x-user-session";

// Returns the text of a new session with 256 random bits.
std::string MakeUserSession();

// Returns true for a text of that form. No API key and no token has it.
bool IsUserSession(std::string_view text);

}  // namespace lathe
