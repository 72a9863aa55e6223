// Text of others, such as names of runs and errors of a server, made fit for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace lathe::cli {

// True if the locale of the environment (LC_ALL, LC_CTYPE, LANG) uses UTF-8. Other terminals may
// take bytes of UTF-8 for control characters.
bool IsUtf8Locale();

// Makes the C library, and with it ncurses, read and write what IsUtf8Locale says, also if the
// locale of the environment is not installed here. Changes the environment to ASCII if there is no
// UTF-8 at all. Call it before any other thread exists.
void UseLocale();

// Returns `text` without anything that a terminal obeys instead of showing it. Control characters,
// line ends, marks that change the direction of writing, invisible characters and bytes that are
// not UTF-8 become escapes such as \x1b and \u202e. Without `is_utf8`, all that is not ASCII does.
std::string SafeText(std::string_view text, bool is_utf8 = IsUtf8Locale());

// Number of columns of the result of SafeText.
int TextWidth(std::string_view safe);

// Returns the beginning of the result of SafeText that fits `width` columns. It ends with '~' if
// something was cut.
std::string CutText(const std::string& safe, int width);

// Returns CutText, filled with spaces to `width` columns: at its left if `is_right`.
std::string PadText(const std::string& safe, int width, bool is_right = false);

}  // namespace lathe::cli
