// A terminal that is drawn as a whole, by ncurses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lathe::cli {

enum class Mood { kPlain, kTitle, kMuted, kGood, kWarning, kBad };

// A line of one mood. `text` is made by SafeText.
struct ScreenLine {
  std::string text;
  Mood mood = Mood::kPlain;
};

enum class Key {
  kNone,  // the time is over, or the size has changed
  kText,  // `text` has the character
  kEnter,
  kEscape,
  kBackspace,
  kClosed,  // there is no terminal any more
};

struct KeyPress {
  Key key = Key::kNone;
  std::string text;
};

// Size of the terminal at `fd`; zeros if it is none.
struct TerminalSize {
  int rows = 0;
  int columns = 0;
};
TerminalSize SizeOf(int fd);

// True unless NO_COLOR (https://no-color.org) is set.
bool MayUseColor();

// One at a time, on one thread.
class Screen {
 public:
  // Takes over the terminal of standard input and output, after UseLocale. A deadly signal, such as
  // that of Ctrl-\, or an exception that nobody catches gives it back before it ends the process.
  // Messages of libraries to standard error are dropped meanwhile where it is a terminal: they
  // would spoil the picture. Null if there is none, or one that cannot move its cursor, such as
  // TERM=dumb.
  static std::unique_ptr<Screen> Open(bool has_color);
  // Gives the terminal back as it was.
  ~Screen();
  Screen(const Screen&) = delete;

  // Size as of now.
  TerminalSize size();
  // Shows the lines from the first row on, cut to the size.
  void Show(const std::vector<ScreenLine>& lines);
  // Waits for a key, at most `timeout`.
  KeyPress Read(absl::Duration timeout);

 private:
  explicit Screen(bool has_color);

  int Attributes(Mood mood) const;

  const bool has_color_;
  // Size of the last picture.
  TerminalSize shown_;
  // Standard error as it was; negative: it is left alone.
  int standard_error_ = -1;
};

}  // namespace lathe::cli
