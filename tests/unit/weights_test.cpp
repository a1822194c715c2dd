// Weight files: text, .npy and .safetensors give the same numbers; everything broken is refused.
#include "io/weights.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <chrono>
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

TEST(Weights, TooSmallIsZeroAndTooLargeAnError) {
  const std::string zeros(400, '0');
  const auto values = parse_weights("1E-400 -1e-400 +1e-99999999999999999999 0." + zeros + "1 1" +
                                        zeros + "e-400 0." + zeros + "1e401 " + zeros + "1 1E-310",
                                    "w", 8, "k8");
  EXPECT_EQ(values, (std::vector<float>{0, 0, 0, 0, 1, 1, 1, 0}));
  EXPECT_TRUE(std::signbit(values[1]));
  for (const std::string& large :
       {std::string("1E400"), "-1" + zeros, "1" + zeros + "e-4", "0.01e" + std::string(30, '9')})
    EXPECT_NE(refusal("1 2 " + large).find("not a finite fp32 number"), std::string::npos) << large;
}

TEST(Weights, AMarkIsNoNumberAndNoError) {
  EXPECT_EQ(parse_weights("\xef\xbb\xbf"
                          "1 2",
                          "w", 2, "k2"),
            (std::vector<float>{1, 2}));
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
  for (const char* bad : {"1 2 +-0.5", "1 2 -+0.5", "1 2 --1", "1 2 1e", "1 2 1e-400x"})
    EXPECT_NE(refusal(bad).find("is not a number"), std::string::npos) << bad;
  EXPECT_NE(refusal("1 2 \x1b[31m").find("\"?[31m\""), std::string::npos);
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
  const SafeTensors tensors(bytes, "m");
  EXPECT_EQ(tensors.values("a"), (std::vector<float>{1, -2}));
  EXPECT_EQ(tensors.values("b"), (std::vector<float>{1.5F}));
  EXPECT_EQ(tensors.values("c"), (std::vector<float>{1.5F}));
  EXPECT_TRUE(tensors.contains("b"));
  EXPECT_FALSE(tensors.contains("d"));
  EXPECT_FALSE(tensors.contains("__metadata__"));
  EXPECT_THROW(tensors.values("d"), Error);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(
        SafeTensors({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}, "m"), Error)
        << size;
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
        SafeTensors(safetensors(std::string("{\"a\":") + entry + "}", body), "m").values("a"),
        Error)
        << entry;
  EXPECT_THROW(SafeTensors(safetensors("[]", body), "m"), Error);
  EXPECT_THROW(SafeTensors(safetensors("{", body), "m"), Error);
  EXPECT_THROW(SafeTensors(safetensors(std::string(100'000, '['), body), "m"), Error);
}

std::string broken(const std::string& header) {
  try {
    const SafeTensors tensors(safetensors(header, std::vector<unsigned char>(16)), "m");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Safetensors, HasEachNameOnceAndEachByteOnce) {
  const std::string whole = R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})",
                    first = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})",
                    second = R"({"dtype":"F32","shape":[2],"data_offsets":[8,16]})",
                    empty = R"({"dtype":"F32","shape":[0],"data_offsets":[8,8]})";
  EXPECT_EQ(broken(R"({"a":)" + whole + "}  "), "");
  EXPECT_EQ(broken(R"({"b":)" + second + R"(,"e":)" + empty + R"(,"a":)" + first + "}"), "");
  EXPECT_NE(broken(R"({"a":)" + first + R"(,"a":)" + second + "}").find("\"a\" twice"),
            std::string::npos);
  EXPECT_NE(broken(R"({"a":{"dtype":"F32","dtype":"F16","shape":[4],"data_offsets":[0,16]}})")
                .find("\"dtype\" twice"),
            std::string::npos);
  EXPECT_NE(broken(R"({"a":)" + whole + R"(,"b":)" + second + "}").find("overlap"),
            std::string::npos);
  EXPECT_NE(broken(R"({"b":)" + second + "}").find("hole"), std::string::npos);
  EXPECT_NE(broken(R"({"a":)" + first + "}").find("16 bytes of data, expected 8 for its tensors"),
            std::string::npos);
  EXPECT_NE(broken("{\"a\\u001b\":7}").find("\"a?\""), std::string::npos);
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

TEST_F(Folder, TextOrNpyOrSafetensors) {
  const auto tensors = safetensors(
      R"({"a.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", {0, 0, 0x80, 0x3f});
  std::string npy = std::string("\x93NUMPY\x01\x00v\x00", 10) +
                    "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  npy.resize(127, ' ');
  const std::string contents[] = {"3\n", npy + "\n" + std::string("\0\0\0\x40", 4),
                                  std::string(tensors.begin(), tensors.end())};
  const std::string names[] = {"a.weight.txt", "a.weight.npy", "model.safetensors"};
  const float values[] = {3, 2, 1};
  // Each of them alone; of two or three nobody can tell which is meant.
  for (unsigned set = 1; set < 8; ++set) {
    std::string joined;
    float wanted = 0;
    for (unsigned i = 0; i < 3; ++i) {
      std::filesystem::remove(path_ / names[i]);
      if ((set >> i & 1U) == 0) continue;
      write(names[i], contents[i]);
      wanted = values[i];
      joined += (joined.empty() ? "in " : " and in ") + names[i];
    }
    ParameterFolder folder(path_);
    EXPECT_TRUE(folder.has("a.weight"));
    EXPECT_FALSE(folder.has("a.bias"));
    try {
      EXPECT_EQ(folder.read("a.weight", {1}, "k1"), std::vector<float>{wanted});
      EXPECT_TRUE(std::has_single_bit(set)) << joined;
    } catch (const Error& error) {
      EXPECT_FALSE(std::has_single_bit(set)) << error.what();
      EXPECT_NE(std::string(error.what()).find("more than once, " + joined + ", expected"),
                std::string::npos)
          << error.what();
    }
  }
  ParameterFolder folder(path_);
  try {
    folder.read("a.bias", {8}, "k8");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("a.bias.txt"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("8 values (k8)"), std::string::npos) << error.what();
  }
}

TEST_F(Folder, SafetensorsAreReadOnce) {
  const auto tensors =
      safetensors(R"({"a.weight":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                  R"("b.weight":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})",
                  {0, 0x3c, 0, 0x40});
  write("model.safetensors", std::string(tensors.begin(), tensors.end()));
  ParameterFolder folder(path_);
  EXPECT_EQ(folder.read("a.weight", {1}, "k1"), (std::vector<float>{1}));
  std::filesystem::remove(path_ / "model.safetensors");
  EXPECT_TRUE(folder.has("b.weight"));
  EXPECT_EQ(folder.read("b.weight", {1}, "k1"), (std::vector<float>{2}));
}

// Bytes that this process has read by system calls.
std::uint64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string word;
  std::uint64_t count = 0;
  io >> word >> count;
  return word == "rchar:" ? count : 0;
}

TEST_F(Folder, ReadingEveryTensorReadsTheFileOnce) {
  constexpr std::size_t tensors = 40, values = 5000;
  std::string header = "{";
  std::vector<unsigned char> body;
  for (std::size_t i = 0; i < tensors; ++i) {
    header += "\"w" + std::to_string(i) + R"(":{"dtype":"F32","shape":[5000],"data_offsets":[)" +
              std::to_string(i * values * 4) + "," + std::to_string((i + 1) * values * 4) +
              (i + 1 < tensors ? "]}," : "]}}");
    const auto number = static_cast<float>(i);
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&number);
    for (std::size_t v = 0; v < values; ++v) body.insert(body.end(), bytes, bytes + 4);
  }
  const auto all = safetensors(header, body);
  write("model.safetensors", std::string(all.begin(), all.end()));
  const std::uint64_t before = bytes_read();
  ParameterFolder folder(path_);
  for (std::size_t i = 0; i < tensors; ++i)
    ASSERT_EQ(folder.read("w" + std::to_string(i), {values}, ""),
              std::vector<float>(values, static_cast<float>(i)));
  if (before == 0) GTEST_SKIP() << "skipped: no /proc/self/io";
  EXPECT_LT(bytes_read() - before, all.size() + 10000);
}

TEST_F(Folder, SafetensorsThatBecomeShorterAreAnError) {
  const auto all =
      safetensors(R"({"a":{"dtype":"F16","shape":[300000],"data_offsets":[0,600000]}})",
                  std::vector<unsigned char>(600000, 0x3c));
  write("model.safetensors", std::string(all.begin(), all.end()));
  const SafeTensors tensors(path_ / "model.safetensors");
  const std::vector<float> values = tensors.values("a");  // in more than one part
  EXPECT_EQ(values, std::vector<float>(300000, 1.05859375F));
  std::filesystem::resize_file(path_ / "model.safetensors", all.size() - 1);
  try {
    tensors.values("a");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("model.safetensors: it became shorter"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(Folder, WhatHasTheNameAndIsNoFileIsNamed) {
  ParameterFolder folder(path_);
  const auto refused = [&](const std::string& name, const std::string& expected) {
    EXPECT_TRUE(folder.has("a.weight") || name == "model.safetensors") << name;
    try {
      folder.read("a.weight", {1}, "k1");
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(name + ": " + expected), std::string::npos)
          << error.what();
    }
    std::filesystem::remove(path_ / name);
  };
  for (const char* form : {".txt", ".npy"}) {
    const std::string name = std::string("a.weight") + form;
    std::filesystem::create_directory(path_ / name);
    refused(name, "is a folder");
    ASSERT_EQ(mkfifo((path_ / name).c_str(), 0600), 0);
    refused(name, "is a pipe");
    std::filesystem::create_symlink(name, path_ / name);
    refused(name, "cannot be opened: Too many");
    std::filesystem::create_symlink("nowhere", path_ / name);
    refused(name, "cannot be opened: No such");
  }
  write("a.weight.npy", "");
  std::filesystem::resize_file(path_ / "a.weight.npy", std::uintmax_t{20} << 30);
  refused("a.weight.npy", "21474836480 bytes, expected at most");
  std::filesystem::create_directory(path_ / "model.safetensors");
  EXPECT_THROW(folder.has("a.weight"), Error);
  std::filesystem::remove(path_ / "model.safetensors");
  EXPECT_FALSE(folder.has("a.weight"));
}

// A file of many small tensors is read in time that grows with its length.
TEST(SafeTensors, ReadsAHeaderOfManyTensorsInLinearTime) {
  const auto seconds = [](int count) {
    std::string header = "{";
    for (int i = 0; i < count; ++i)
      header += (i ? ",\"t" : "\"t") + std::to_string(i) +
                "\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}";
    const auto bytes = safetensors(header + "}", {});
    const auto begin = std::chrono::steady_clock::now();
    const SafeTensors tensors(bytes, "m");
    EXPECT_TRUE(tensors.contains("t" + std::to_string(count - 1)));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  seconds(1000);
  const double few = seconds(10'000), many = seconds(80'000);
  EXPECT_LT(many, 30 * few + 0.2) << "10,000 tensors: " << few << " s, 80,000: " << many << " s";
}

TEST(SafeTensors, RefusesEntriesThatAreNotAsTheFormatSays) {
  for (const char* entry :
       {R"({"dtype":1,"shape":[1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[[1]],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,4]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[0,{"a":4}]})",
        R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", R"({"dtype":"F32","shape":[1]})",
        R"(["F32",[1],[0,4]])", R"("F32")", R"(null)", R"({})"})
    EXPECT_THROW(
        SafeTensors(
            safetensors(std::string("{\"a\":") + entry + "}", std::vector<unsigned char>(4)), "m"),
        Error)
        << entry;
  // Whatever else an entry or the file's own part holds is not looked at.
  const SafeTensors good(
      safetensors(
          R"({"__metadata__":{"a":["b",{"c":1}]},"a":{"more":[1,{"dtype":[2]}],"dtype":"F32",)"
          R"("shape":[1],"data_offsets":[0,4],"note":"x"}})",
          std::vector<unsigned char>(4)),
      "m");
  EXPECT_EQ(good.values("a").size(), 1U);
}

TEST(ParameterFolder, RefusesATextOfManyTimesWhatIsNeededUnread) {
  const std::string folder = testing::TempDir() + "/convoy_sparse";
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/fc.bias.txt";
  std::ofstream(path) << "1 2 3\n";
  EXPECT_EQ(ParameterFolder(folder).read("fc.bias", {3}, "k3").size(), 3U);
  std::filesystem::resize_file(path, std::uintmax_t{39} << 27);  // 4.9 GB, none of it on the disk
  try {
    ParameterFolder(folder).read("fc.bias", {3}, "k3");
    ADD_FAILURE() << "it was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("fc.bias.txt"), std::string::npos) << error.what();
  }
  std::filesystem::resize_file(path, std::uintmax_t{30} << 27);  // below the limit of all files
  EXPECT_THROW(ParameterFolder(folder).read("fc.bias", {3}, "k3"), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace convoy::io
