#include "core/printable.hpp"

#include <gtest/gtest.h>

namespace convoy {
namespace {

TEST(Printable, KeepsTextAndReplacesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("conv1 grün 層"), "conv1 grün 層");
  EXPECT_EQ(printable("c\x1b[31m\n\t\x7f"), "c?[31m???");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(printable("c\xff\xc0\xaf"), "c???");  // no UTF-8; overlong
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "??31m");  // C1: an escape of one character
  EXPECT_EQ(printable("\xed\xa0\x80|\xf4\x90\x80\x80"), "???|????");  // surrogate; too high
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a???b");                              // right to left
  EXPECT_EQ(printable("cut \xe5\xb1"), "cut ??");  // cut in mid-character
}

TEST(Printable, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(printable(std::string(900'000, 'x')), std::string(160, 'x') + "...");
  EXPECT_EQ(printable("層層", 4), "層...");
  EXPECT_EQ(printable("abcd", 4), "abcd");
}

TEST(Printable, LinesAndPaths) {
  EXPECT_EQ(printable_lines("one\n\ttwo\r\x1b"), "one\n\ttwo??");
  EXPECT_EQ(printable_lines(std::string(9000, 'x')).size(), 8003U);
  EXPECT_EQ(printable_path(std::string(400, 'x')), std::string(400, 'x'));
  EXPECT_EQ(printable_path("a\nb"), "a?b");
}

TEST(Printable, TellsWhetherAnythingWouldBeReplaced) {
  EXPECT_TRUE(is_printable("conv1.weight 層"));
  EXPECT_TRUE(is_printable(""));
  EXPECT_FALSE(is_printable("a\nb"));
  EXPECT_FALSE(is_printable("a\xff"));
}

}  // namespace
}  // namespace convoy
