#include "tools/lathe/terminal/screen.h"

#define NCURSES_NOMACROS
#include <curses.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "tools/lathe/terminal/text.h"

// term.h names the fields of its tables by macros.
#undef columns
#undef lines

namespace lathe::cli {
namespace {

constexpr int kEscapeDelayMs = 25;
constexpr wint_t kEscapeCode = 27;
constexpr wint_t kDelete = 127;

// Encodes a character that the keyboard gave.
std::string Utf8Of(wint_t character) {
  const auto low = [character](int shift) {
    return static_cast<char>(0x80 | ((character >> shift) & 0x3f));
  };
  if (character < 0x80) return {static_cast<char>(character)};
  if (character < 0x800) return {static_cast<char>(0xc0 | character >> 6), low(0)};
  if (character < 0x10000) return {static_cast<char>(0xe0 | character >> 12), low(6), low(0)};
  return {static_cast<char>(0xf0 | character >> 18), low(12), low(6), low(0)};
}

KeyPress PressOf(int kind, wint_t code) {
  if (kind == KEY_CODE_YES) {
    if (code == KEY_ENTER) return {Key::kEnter};
    return {code == KEY_BACKSPACE ? Key::kBackspace : Key::kNone};
  }
  if (code == '\n' || code == '\r') return {Key::kEnter};
  if (code == '\b' || code == kDelete) return {Key::kBackspace};
  if (code == kEscapeCode) return {Key::kEscape};
  if (code < ' ') return {};
  return {Key::kText, Utf8Of(code)};
}

void StartColors() {
  start_color();
  use_default_colors();
  constexpr short kOwnBackground = -1;
  init_pair(static_cast<short>(Mood::kGood), COLOR_GREEN, kOwnBackground);
  init_pair(static_cast<short>(Mood::kWarning), COLOR_YELLOW, kOwnBackground);
  init_pair(static_cast<short>(Mood::kBad), COLOR_RED, kOwnBackground);
}

// Gives the terminal back when the process dies, without ncurses: a signal may have come within it.
struct Rescue {
  termios modes = {};
  // Standard error as it was; negative: it was left alone.
  int standard_error = -1;
  std::array<char, 256> text = {};
  std::size_t size = 0;
  std::terminate_handler terminate = nullptr;
  std::atomic<bool> is_needed = false;
};
Rescue rescue;

constexpr int kDeadlySignals[] = {SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

int AppendToRescue(int character) {
  if (rescue.size < rescue.text.size()) {
    rescue.text[rescue.size++] = static_cast<char>(character);
  }
  return character;
}

// Calls only functions that a signal handler may call.
void GiveBack() {
  if (!rescue.is_needed.exchange(false)) return;
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, rescue.text.data(), rescue.size);
  tcsetattr(STDIN_FILENO, TCSANOW, &rescue.modes);
  if (rescue.standard_error >= 0) dup2(rescue.standard_error, STDERR_FILENO);
}

void DieOf(int signal) {
  GiveBack();
  // SA_RESETHAND has restored the default, which ends the process when the handler returns.
  raise(signal);
}

// `modes` are those before ncurses.
void PrepareRescue(const termios& modes, int standard_error) {
  rescue.modes = modes;
  rescue.standard_error = standard_error;
  rescue.size = 0;
  // Attributes, keypad, cursor and the alternate screen.
  for (const char* const name : {"sgr0", "rmkx", "cnorm", "rmcup"}) {
    const char* const text = tigetstr(name);
    // tigetstr returns -1 for a name that is no string.
    if (text != nullptr && reinterpret_cast<intptr_t>(text) != -1) tputs(text, 1, AppendToRescue);
  }
  rescue.is_needed = true;
  // Standard error tells of an exception that nobody catches, so it must be back before.
  rescue.terminate = std::set_terminate([] {
    GiveBack();
    rescue.terminate();
  });
  struct sigaction action = {};
  action.sa_handler = DieOf;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : kDeadlySignals) sigaction(signal, &action, nullptr);
}

void EndRescue() {
  rescue.is_needed = false;
  std::set_terminate(rescue.terminate);
  for (const int signal : kDeadlySignals) std::signal(signal, SIG_DFL);
}

}  // namespace

TerminalSize SizeOf(int fd) {
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_row, size.ws_col};
}

bool MayUseColor() {
  const char* const no_color = std::getenv("NO_COLOR");
  return no_color == nullptr || *no_color == '\0';
}

std::unique_ptr<Screen> Screen::Open(bool has_color) {
  const char* const type = std::getenv("TERM");
  if (type == nullptr || isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) return nullptr;
  termios modes = {};
  if (tcgetattr(STDIN_FILENO, &modes) != 0) return nullptr;
  // The size is that of the terminal, whatever LINES and COLUMNS say: they do not change with it.
  use_env(FALSE);
  use_tioctl(TRUE);
  // initscr would end the process for a terminal that it does not know.
  int is_known = 0;
  if (setupterm(type, STDOUT_FILENO, &is_known) != OK) return nullptr;
  if (tigetstr("cup") == nullptr || newterm(type, stdout, stdin) == nullptr) return nullptr;
  std::unique_ptr<Screen> screen(new Screen(has_color && has_colors()));
  if (screen->has_color_) StartColors();
  cbreak();
  noecho();
  nonl();
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  set_escdelay(kEscapeDelayMs);
  curs_set(0);
  PrepareRescue(modes, screen->standard_error_);
  return screen;
}

Screen::Screen(bool has_color) : has_color_(has_color) {
  if (isatty(STDERR_FILENO) == 0) return;
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  standard_error_ = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (standard_error_ >= 0) dup2(nowhere, STDERR_FILENO);
  close(nowhere);
}

Screen::~Screen() {
  EndRescue();
  endwin();
  if (standard_error_ < 0) return;
  dup2(standard_error_, STDERR_FILENO);
  close(standard_error_);
}

TerminalSize Screen::size() {
  // A parent may have made the process ignore SIGWINCH, by which ncurses hears of a new size.
  const TerminalSize real = SizeOf(STDOUT_FILENO);
  if (real.rows > 0 && real.columns > 0 && is_term_resized(real.rows, real.columns)) {
    resizeterm(real.rows, real.columns);
  }
  return {getmaxy(stdscr), getmaxx(stdscr)};
}

int Screen::Attributes(Mood mood) const {
  switch (mood) {
    case Mood::kPlain:
      return 0;
    case Mood::kTitle:
      return static_cast<int>(A_BOLD);
    case Mood::kMuted:
      return static_cast<int>(A_DIM);
    case Mood::kGood:
    case Mood::kWarning:
      return has_color_ ? COLOR_PAIR(static_cast<int>(mood)) : 0;
    case Mood::kBad:
      return has_color_ ? COLOR_PAIR(static_cast<int>(mood)) : static_cast<int>(A_BOLD);
  }
  return 0;
}

void Screen::Show(const std::vector<ScreenLine>& lines) {
  const TerminalSize now = size();
  // Output for the old size that was still on its way may have spoiled the screen.
  if (now.rows != shown_.rows || now.columns != shown_.columns) clearok(stdscr, TRUE);
  shown_ = now;
  werase(stdscr);
  for (int row = 0; row < now.rows && row < static_cast<int>(lines.size()); ++row) {
    const ScreenLine& line = lines[static_cast<std::size_t>(row)];
    const std::string text = CutText(line.text, now.columns);
    wattrset(stdscr, Attributes(line.mood));
    mvwaddnstr(stdscr, row, 0, text.c_str(), static_cast<int>(text.size()));
  }
  wattrset(stdscr, 0);
  wrefresh(stdscr);
}

KeyPress Screen::Read(absl::Duration timeout) {
  // ncurses may hold keys that the kernel has already given it.
  wint_t code = 0;
  if (const int kind = wget_wch(stdscr, &code); kind != ERR) return PressOf(kind, code);
  pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  // A signal, such as that of a new size, ends the wait.
  poll(&input, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  if (const int kind = wget_wch(stdscr, &code); kind != ERR) return PressOf(kind, code);
  const bool is_closed = (input.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
  return {is_closed ? Key::kClosed : Key::kNone};
}

}  // namespace lathe::cli
