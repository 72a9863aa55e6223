#include "tools/lathe/top/top_keys.h"

#include <catch2/catch.hpp>
#include <string>

namespace lathe::cli {
namespace {

bool Type(TopView& view, const std::string& text) {
  bool goes_on = true;
  for (const char c : text) goes_on = goes_on && ApplyKey({Key::kText, std::string(1, c)}, view);
  return goes_on;
}

TEST_CASE("q and the end of the terminal end it, other keys do not", "[top]") {
  TopView view;
  CHECK(Type(view, "sp?x"));
  CHECK_FALSE(Type(view, "q"));
  CHECK_FALSE(ApplyKey({Key::kClosed}, view));
}

TEST_CASE("s goes round the orders, p and ? go on and off", "[top]") {
  TopView view;
  Type(view, "ss");
  CHECK(view.order == TopOrder::kName);
  Type(view, "s");
  CHECK(view.order == TopOrder::kWaiting);
  Type(view, "p?");
  CHECK((view.is_paused && view.is_help));
  Type(view, "p?");
  CHECK_FALSE((view.is_paused || view.is_help));
}

TEST_CASE("A filter is typed, mended, kept by Enter and cleared by Escape", "[top]") {
  TopView view;
  CHECK(Type(view, "/quick"));
  ApplyKey({Key::kText, "ä"}, view);
  ApplyKey({Key::kBackspace}, view);
  ApplyKey({Key::kEnter}, view);
  CHECK(view.filter == "quick");
  CHECK_FALSE(view.is_typing);
  ApplyKey({Key::kEscape}, view);
  CHECK(view.filter.empty());
}

TEST_CASE("A filter has a bound", "[top]") {
  TopView view;
  Type(view, "/" + std::string(1000, 'x'));
  CHECK(view.filter.size() == 100);
  for (int press = 0; press < 200; ++press) ApplyKey({Key::kBackspace}, view);
  CHECK(view.filter.empty());
}

}  // namespace
}  // namespace lathe::cli
