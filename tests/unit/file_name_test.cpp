// Names of layers as parts of file names.
#include "core/file_name.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace convoy {
namespace {

TEST(FileName, KeepsWhatAFileCanBeCalled) {
  for (const std::string& name :
       {std::string("conv1.weight"), std::string("layer:0"), std::string("Schicht-größer"),
        std::string("100%"), std::string("a%b"), std::string("50%x"), std::string(".."),
        std::string(220, 'x')})
    EXPECT_EQ(file_name_of(name), name);
}

TEST(FileName, EscapesTheRest) {
  EXPECT_EQ(file_name_of("layer1/conv:0"), "layer1%2Fconv:0");
  EXPECT_EQ(file_name_of("../../etc/x"), "..%2F..%2Fetc%2Fx");
  EXPECT_EQ(file_name_of(std::string("a\0b\n\x7f", 5)), "a%00b%0A%7F");
  EXPECT_EQ(file_name_of("a%2Fb"), "a%252Fb");
  EXPECT_EQ(file_name_of("%~0"), "%25~0");
  EXPECT_EQ(file_name_of("%/"), "%%2F");
}

TEST(FileName, CutsLongNamesAndKeepsThemApart) {
  const std::string slashes(100, '/'), wide = [] {
    std::string text;
    for (int i = 0; i < 150; ++i) text += "\xc3\xa9";
    return text;
  }();
  EXPECT_EQ(file_name_of(std::string(221, 'x')).substr(0, 204), std::string(202, 'x') + "%~");
  // Neither an escape nor a character is cut; python/convoy/model_folder.py gives this text too.
  EXPECT_EQ(file_name_of(slashes).substr(198, 5), "%2F%~");
  EXPECT_EQ(file_name_of(wide), wide.substr(0, 202) + "%~68f95dee7a64a70d");
  std::set<std::string> all;
  for (const char last : {'a', 'b', 'c', '/', '%'}) {
    const std::string name = file_name_of(std::string(300, 'x') + last);
    EXPECT_LE(name.size(), 220U);
    all.insert(name);
  }
  EXPECT_EQ(all.size(), 5U);
}

// Every text of up to five of these characters has a file's name of its own.
TEST(FileName, TellsNamesApart) {
  constexpr std::string_view characters = "%/2F~%";
  std::set<std::string> names{""}, files;
  for (int round = 0; round < 5; ++round) {
    std::set<std::string> longer = names;
    for (const std::string& name : names)
      for (const char c : characters) longer.insert(name + c);
    names = longer;
  }
  for (const std::string& name : names) files.insert(file_name_of(name));
  EXPECT_EQ(files.size(), names.size());
}

}  // namespace
}  // namespace convoy
