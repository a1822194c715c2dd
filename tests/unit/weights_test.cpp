// Weight files: text, .npy and .safetensors give the same numbers; everything broken is refused.
#include "io/weights.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "convoy/error.hpp"
#include "io/safetensors.hpp"

namespace convoy::io {
namespace {

std::string refusal(std::string_view text, Index count = 3) {
  try {
    parse_weights(text, "w.txt", count, "k3");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Weights, ReadsWhatNumpyWrites) {
  const auto values = parse_weights(
      "1.000000000000000000e+00\n-2.5e-01 +3\r\n\t4e-45\n1e-400\n.5\n-0", "w", 7, "k7");
  EXPECT_EQ(values, (std::vector<float>{1, -0.25F, 3, 4.2e-45F, 0, 0.5F, 0}));
  EXPECT_TRUE(std::signbit(values[6]));
  EXPECT_EQ(parse_weights("3.40282347e+38", "w", 1, "k1")[0], std::numeric_limits<float>::max());
}

TEST(Weights, NineDigitsComeBackBitForBit) {
  std::string text;
  std::vector<float> values;
  std::uint32_t state = 12345;
  while (values.size() < 20000) {
    state = state * 1664525 + 1013904223;
    float value;
    std::memcpy(&value, &state, 4);
    if (!std::isfinite(value)) continue;
    char word[32];
    std::snprintf(word, sizeof word, "%.9g\n", static_cast<double>(value));
    text += word;
    values.push_back(value);
  }
  const auto read = parse_weights(text, "w", 20000, "k20000");
  EXPECT_EQ(std::memcmp(read.data(), values.data(), values.size() * 4), 0);
}

TEST(Weights, SaysWhatIsWrong) {
  EXPECT_EQ(refusal("1 2"), "w.txt: 2 values, expected 3 (k3). Was the file cut short?");
  EXPECT_EQ(refusal(""), "w.txt: 0 values, expected 3 (k3). Was the file cut short?");
  EXPECT_NE(refusal("1 2 3 4").find("4 values, expected 3"), std::string::npos);
  EXPECT_NE(refusal("1\n2\nthree\n").find("line 3: \"three\""), std::string::npos);
  EXPECT_NE(refusal("1 2 0.5x").find("0.5x"), std::string::npos);
  EXPECT_NE(refusal("1 2 0x10").find("0x10"), std::string::npos);
  EXPECT_NE(refusal("1,2,3").find("1,2,3"), std::string::npos);
  for (const char* bad : {"1 2 nan", "1 2 inf", "1 2 -Infinity", "1 2 1e39"})
    EXPECT_NE(refusal(bad).find("finite"), std::string::npos) << bad;
  EXPECT_NE(refusal("1 2 1e400").find("1e400"), std::string::npos);
  EXPECT_NE(refusal("1 2 ++3").find("++3"), std::string::npos);
  EXPECT_FALSE(refusal("1 2 +").empty());
  EXPECT_FALSE(refusal(std::string_view("1 2 \0", 5)).empty());
  // The expected count alone makes nothing large.
  EXPECT_NE(refusal("1", Index{1} << 60).find("1 values"), std::string::npos);
}

std::vector<unsigned char> safetensors(const std::string& header,
                                       const std::vector<unsigned char>& body) {
  std::vector<unsigned char> bytes;
  for (unsigned i = 0; i < 8; ++i)
    bytes.push_back(static_cast<unsigned char>(header.size() >> (8 * i)));
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

TEST(Safetensors, ReadsThreeTypes) {
  const auto bytes =
      safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                  R"("b":{"dtype":"F16","shape":[1,1],"data_offsets":[8,10]},)"
                  R"("c":{"dtype":"BF16","shape":[],"data_offsets":[10,12]},"__metadata__":{}})",
                  {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0x3e, 0xc0, 0x3f});
  EXPECT_EQ(parse_safetensors(bytes, "m", "a"), (std::vector<float>{1, -2}));
  EXPECT_EQ(parse_safetensors(bytes, "m", "b"), (std::vector<float>{1.5F}));
  EXPECT_EQ(parse_safetensors(bytes, "m", "c"), (std::vector<float>{1.5F}));
  EXPECT_TRUE(has_safetensor(bytes, "m", "b"));
  EXPECT_FALSE(has_safetensor(bytes, "m", "d"));
  EXPECT_THROW(parse_safetensors(bytes, "m", "d"), Error);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(parse_safetensors(std::span(bytes).first(size), "m", "c"), Error) << size;
}

TEST(Safetensors, RefusesBrokenHeaders) {
  const std::vector<unsigned char> body(16);
  for (const char* entry :
       {R"({"dtype":"F32","shape":[4],"data_offsets":[0,20]})",
        R"({"dtype":"F32","shape":[5],"data_offsets":[0,16]})",
        R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})",
        R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})",
        R"({"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,16]})",
        R"({"dtype":"I8","shape":[16],"data_offsets":[0,16]})",
        R"({"dtype":"F32","shape":4,"data_offsets":[0,16]})",
        R"({"shape":[4],"data_offsets":[0,16]})",
        R"({"dtype":"F32","shape":[4],"data_offsets":[0]})",
        R"({"dtype":7,"shape":[4],"data_offsets":[0,16]})", "7", "null"})
    EXPECT_THROW(
        parse_safetensors(safetensors(std::string("{\"a\":") + entry + "}", body), "m", "a"), Error)
        << entry;
  EXPECT_THROW(parse_safetensors(safetensors("[]", body), "m", "a"), Error);
  EXPECT_THROW(parse_safetensors(safetensors("{", body), "m", "a"), Error);
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("convoy-weights-" + std::to_string(getpid()));
    std::filesystem::create_directory(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  std::filesystem::path path_;
};

TEST_F(Folder, TextThenNpyThenSafetensors) {
  const auto tensors = safetensors(
      R"({"a.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", {0, 0, 0x80, 0x3f});
  write("model.safetensors", std::string(tensors.begin(), tensors.end()));
  EXPECT_EQ(read_parameter(path_, "a.weight", 1, "k1"), (std::vector<float>{1}));
  std::string npy = std::string("\x93NUMPY\x01\x00v\x00", 10) +
                    "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  npy.resize(127, ' ');
  write("a.weight.npy", npy + "\n" + std::string("\0\0\0\x40", 4));
  EXPECT_EQ(read_parameter(path_, "a.weight", 1, "k1"), (std::vector<float>{2}));
  write("a.weight.txt", "3\n");
  EXPECT_EQ(read_parameter(path_, "a.weight", 1, "k1"), (std::vector<float>{3}));
  EXPECT_TRUE(has_parameter(path_, "a.weight"));
  EXPECT_FALSE(has_parameter(path_, "a.bias"));
  try {
    read_parameter(path_, "a.bias", 8, "k8");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("a.bias.txt"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("8 values (k8)"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace convoy::io
