// IDX files: what is read, and that everything broken is refused with the reason.
#include "io/idx.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "convoy/error.hpp"

namespace convoy::io {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes idx(std::uint32_t magic, const std::vector<std::uint32_t>& sizes, std::size_t count) {
  Bytes bytes;
  const auto number = [&](std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<unsigned char>(value >> shift));
  };
  number(magic);
  for (const std::uint32_t size : sizes) number(size);
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<unsigned char>(i * 7 + 1));
  return bytes;
}

Bytes gzip(const Bytes& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  Bytes packed(bytes.size() + 1000);
  stream.next_in = const_cast<unsigned char*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// The message of the error, empty if there was none.
std::string refusal(const Bytes& bytes, bool labels = false) {
  try {
    if (labels)
      parse_labels(bytes, "file");
    else
      parse_images(bytes, "file");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

void expect_refusal(const Bytes& bytes, const std::string& part, bool labels = false) {
  const std::string message = refusal(bytes, labels);
  EXPECT_TRUE(message.starts_with("file: ")) << message;
  EXPECT_NE(message.find(part), std::string::npos)
      << "\"" << message << "\" does not say \"" << part << "\"";
}

TEST(Idx, ReadsPlainAndGzipWithThreeAndFourSizes) {
  for (const bool packed : {false, true}) {
    const Bytes gray = idx(0x803, {5, 3, 4}, 60), colour = idx(0x804, {2, 3, 4, 3}, 72),
                few = idx(0x801, {9}, 9);
    const Images a = parse_images(packed ? gzip(gray) : gray, "file");
    EXPECT_EQ(a.n, 5);
    EXPECT_EQ(a.h, 3);
    EXPECT_EQ(a.w, 4);
    EXPECT_EQ(a.c, 1);
    EXPECT_TRUE(std::equal(a.data.begin(), a.data.end(), gray.begin() + 16, gray.end()));
    const Images b = parse_images(packed ? gzip(colour) : colour, "file");
    EXPECT_EQ(b.c, 3);
    EXPECT_TRUE(std::equal(b.data.begin(), b.data.end(), colour.begin() + 20, colour.end()));
    const auto labels = parse_labels(packed ? gzip(few) : few, "file");
    EXPECT_TRUE(std::equal(labels.begin(), labels.end(), few.begin() + 8, few.end()));
  }
}

TEST(Idx, EveryTruncationIsRefused) {
  const Bytes whole = idx(0x803, {5, 3, 4}, 60), packed = gzip(whole);
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(
        refusal(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size))).empty())
        << size;
  for (std::size_t size = 0; size < packed.size(); ++size)
    EXPECT_FALSE(
        refusal(Bytes(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size))).empty())
        << size;
}

TEST(Idx, EveryDamagedByteOfGzipDataIsRefusedOrHarmless) {
  const Bytes whole = idx(0x803, {5, 3, 4}, 60), packed = gzip(whole);
  for (std::size_t at = 10; at < packed.size();
       ++at) {  // behind the gzip header, where some bytes are free
    Bytes damaged = packed;
    damaged[at] ^= 0x55;
    try {
      EXPECT_EQ(parse_images(damaged, "file").data, parse_images(whole, "file").data) << at;
    } catch (const Error&) {
    }
  }
}

TEST(Idx, SaysWhatIsWrong) {
  expect_refusal({}, "empty");
  expect_refusal(idx(0xd03, {5, 3, 4}, 60), "0x00000d03");
  expect_refusal(idx(0x801, {5}, 5), "These are labels");
  expect_refusal(idx(0x803, {5, 3, 4}, 60), "These are images", true);
  expect_refusal(idx(0x803, {5, 3, 4}, 59), "59");
  expect_refusal(idx(0x803, {5, 3, 4}, 61), "more bytes than the 60");
  expect_refusal(gzip(idx(0x803, {5, 3, 4}, 61)), "more bytes than the 60");
  expect_refusal(idx(0x803, {0, 3, 4}, 0), "size of 0");
  expect_refusal(idx(0x803, {0xffffffff, 0xffffffff, 0xffffffff}, 2), "4294967295");
  expect_refusal(idx(0x803, {1 << 30, 32, 32}, 2), "cut short");
  expect_refusal(gzip(idx(0x803, {1 << 30, 32, 32}, 2)), "cut short");
  expect_refusal(idx(0x801, {5}, 4), "Was the file cut short?", true);
  Bytes two = gzip(idx(0x801, {5}, 5));
  two.push_back(0);
  expect_refusal(two, "after the end", true);
}

TEST(Idx, MissingFilesAndFoldersAreNamed) {
  for (const std::string path : {"/nowhere/at/all", "/tmp"}) {
    try {
      read_images(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(path + ": ")) << error.what();
    }
  }
}

// A header that claims as much as gzip could hold: memory grows with what comes out, so that a
// process of little memory tells what is wrong with the file.
TEST(Idx, BelievesNoSizeThatAGzipFileClaims) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs its own address space";
#endif
  std::vector<unsigned char> plain(2 << 20);
  std::uint32_t state = 1;
  for (unsigned char& byte : plain)
    byte = static_cast<unsigned char>((state = state * 1664525 + 1013904223) >> 24);
  const std::array<unsigned char, 16> header{0, 0, 8, 3,    0, 0, 0x75, 0x30,
                                             0, 0, 0, 0xff, 0, 0, 0,    0xff};
  std::copy(header.begin(), header.end(), plain.begin());  // 30,000 x 255 x 255
  std::vector<unsigned char> packed(plain.size() + (1 << 16));
  z_stream stream{};
  ASSERT_EQ(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = plain.data();
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  ASSERT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{512 << 20, 512 << 20};
    setrlimit(RLIMIT_AS, &limit);
    try {
      parse_images(packed, "many.gz");
    } catch (const Error& error) {
      _exit(std::string(error.what()).find("bytes after the header") == std::string::npos ? 2 : 0);
    } catch (...) {
      _exit(3);
    }
    _exit(4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace convoy::io
