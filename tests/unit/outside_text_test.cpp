// What comes from outside as text: marks, NULs, names, and how much of it a message shows.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "convoy/error.hpp"
#include "convoy/network.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"

namespace convoy {
namespace {

const std::string mark = "\xef\xbb\xbf";
const std::string tiny = "input u8:h4w4c1\nc1 k2r3\nflatten\nfc k3\n";

std::string refusal(const std::string& text, const std::string& name = "network.txt") {
  try {
    parse_network(text, name);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(OutsideText, MessagesAreCleanAndCut) {
  EXPECT_STREQ(Error("one\n\ttwo \x1b[31m \xff").what(), "one\n\ttwo ?[31m ?");
  const std::string grown(900'000, 'x');
  EXPECT_EQ(std::string(Error(grown).what()).size(), 8003U);
  EXPECT_LT(refusal(tiny + "fc2 " + grown + "\n").size(), 500U);
  EXPECT_LT(refusal(tiny + grown + "\n").size(), 500U);
  EXPECT_LT(refusal(tiny + "fc2 k3 " + grown + "\n").size(), 500U);
  EXPECT_LT(refusal("input u8:h4w4c1 mean(" + grown + ")\n").size(), 500U);
}

TEST(OutsideText, NetworksHaveNamesThatCanBeShown) {
  EXPECT_EQ(parse_network(tiny, "n").layers.size(), 3U);
  EXPECT_EQ(parse_network("input u8:h4w4c1\nSchicht-größer k2r3\n", "n").layers[0].name,
            "Schicht-größer");
  for (const char* bad : {"c\x1b[31m", "c\xff", "c\xc2\x9b", "c\x7f"}) {
    const std::string layer = "input u8:h4w4c1\n" + std::string(bad) + " k2r3\n";
    EXPECT_NE(refusal(layer).find("network.txt:2: \"" + printable(bad)), std::string::npos)
        << refusal(layer);
    const std::string norm = "input u8:h4w4c1\nc1 k2r3 batchnorm(" + std::string(bad) + ")\n";
    EXPECT_NE(refusal(norm).find("network.txt:2: \"" + printable(bad)), std::string::npos)
        << refusal(norm);
  }
  for (const std::string& name : {std::string("layer1/conv:0"), std::string(1000, 'x')})
    EXPECT_EQ(parse_network(tiny + name + " k3\n", "n").layers.back().name, name);
  std::string nul = tiny;
  nul.insert(nul.find("fc") + 1, 1, '\0');
  EXPECT_NE(refusal(nul).find("network.txt:4: found a NUL"), std::string::npos) << refusal(nul);
  EXPECT_EQ(refusal("", "a\x1b.txt").find("a?.txt"), 0U);
}

TEST(OutsideText, AMarkBeforeTheTextIsPassedOver) {
  EXPECT_EQ(without_mark(mark + "x"), "x");
  EXPECT_EQ(without_mark("\xef\xbbx"), "\xef\xbbx");
  EXPECT_EQ(parse_network(mark + tiny, "n").layers.size(), 3U);
  const auto path = std::filesystem::path(testing::TempDir()) /
                    ("convoy-list-" + std::to_string(getpid()) + ".txt");
  std::ofstream(path, std::ios::binary) << mark << "n1h8c8k8r3\r\n# two\n\nn1h8c8k8r5";
  EXPECT_EQ(read_shape_list(path).size(), 2U);
  std::ofstream(path, std::ios::binary) << "n1h8c8k8r3\nn1h8\x1b[2J";
  try {
    read_shape_list(path);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(".txt:2: stage \"n1h8?[2J\""), std::string::npos)
        << error.what();
  }
  std::filesystem::remove(path);
}

TEST(OutsideText, JsonTakesEveryName) {
  EXPECT_EQ(json_text(nlohmann::json("a\xff\x1b\x7f\xc2\x9b")), R"("a\ufffd\u001b\u007f\u009b")");
}

}  // namespace
}  // namespace convoy
