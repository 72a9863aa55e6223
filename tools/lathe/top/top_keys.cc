#include "tools/lathe/top/top_keys.h"

#include <string>

namespace lathe::cli {
namespace {

constexpr std::size_t kMaxFilterBytes = 100;

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

void DropLastCharacter(std::string& text) {
  while (!text.empty() && IsContinuation(text.back())) text.pop_back();
  if (!text.empty()) text.pop_back();
}

void TypeFilter(const KeyPress& press, TopView& view) {
  switch (press.key) {
    case Key::kText:
      if (view.filter.size() + press.text.size() <= kMaxFilterBytes) view.filter += press.text;
      break;
    case Key::kBackspace:
      DropLastCharacter(view.filter);
      break;
    case Key::kEscape:
      view.filter.clear();
      view.is_typing = false;
      break;
    case Key::kEnter:
      view.is_typing = false;
      break;
    default:
      break;
  }
}

}  // namespace

bool ApplyKey(const KeyPress& press, TopView& view) {
  if (press.key == Key::kClosed) return false;
  if (view.is_typing) {
    TypeFilter(press, view);
    return true;
  }
  if (press.key == Key::kEscape) {
    view.filter.clear();
    view.is_help = false;
  }
  if (press.text == "q") return false;
  if (press.text == "s") view.order = NextOrder(view.order);
  if (press.text == "p") view.is_paused = !view.is_paused;
  if (press.text == "?") view.is_help = !view.is_help;
  if (press.text == "/") {
    view.is_typing = true;
    view.is_help = false;
    view.filter.clear();
  }
  return true;
}

}  // namespace lathe::cli
