// .npy files: each supported type, and each way in which a file can be wrong.
#include "io/npy.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace convoy::io {
namespace {

std::string file(std::string header, const std::string& data) {
  header += std::string(64 - (10 + header.size() + 1) % 64, ' ') + "\n";
  std::string bytes = "\x93NUMPY";
  bytes += '\x01';
  bytes += '\0';
  bytes += static_cast<char>(header.size() % 256);
  bytes += static_cast<char>(header.size() / 256);
  return bytes + header + data;
}
std::string dictionary(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}
template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}
std::string message(const std::string& bytes) {
  try {
    parse_npy(bytes, "a.npy");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Npy, Types) {
  const Tensor f4 =
      parse_npy(file(dictionary("<f4", "(2, 3)"), bytes_of({1.F, 2.F, 3.F, 4.F, 5.F, 6.F})), "a");
  EXPECT_EQ(f4.view().rank, 2);
  EXPECT_EQ(f4.view().shape[1], 3);
  EXPECT_EQ(f4.data<float>()[5], 6);
  const Tensor f8 = parse_npy(file(dictionary("<f8", "(2,)"), bytes_of({0.5, -3.0})), "a");
  EXPECT_EQ(f8.view().dtype, DType::f32);
  EXPECT_EQ(f8.data<float>()[1], -3);
  const Tensor u1 = parse_npy(file(dictionary("|u1", "(3,)"), "\x01\x02\xff"), "a");
  EXPECT_EQ(u1.data<std::uint8_t>()[2], 255);
  const Tensor i8 = parse_npy(file(dictionary("<i8", "(1,)"), bytes_of<std::int64_t>({-7})), "a");
  EXPECT_EQ(i8.data<std::int32_t>()[0], -7);
  const Tensor scalar = parse_npy(file(dictionary("<f4", "()"), bytes_of({2.5F})), "a");
  EXPECT_EQ(scalar.elements(), 1);
  EXPECT_EQ(parse_npy(file(dictionary("<f4", "(0, 4)"), ""), "a").elements(), 0);
}

TEST(Npy, WhatIsWrittenIsReadBack) {
  const float f[] = {1, -0.5F, 3e-40F, 4, 5, 6};
  const std::int32_t i[] = {-7, 8};
  const std::uint8_t u[] = {0, 255};
  const std::uint16_t h[] = {0x3c00, 0xc000};
  for (const ConstTensorView& view :
       {ConstTensorView::of(f, {2, 3}), ConstTensorView::of(f, {1, 2, 1, 3, 1}),
        ConstTensorView::of(f, std::vector<Index>()), ConstTensorView::of(f, {0, 3}),
        ConstTensorView::of(i, {2}), ConstTensorView::of(u, {2, 1}),
        ConstTensorView(h, DType::f16, {2})}) {
    SCOPED_TRACE(describe(view));
    const std::string bytes = npy_of(view);
    EXPECT_EQ((bytes.size() - static_cast<std::size_t>(view.elements()) * size_of(view.dtype)) % 64,
              0U);
    const Tensor read = parse_npy(bytes, "a.npy");
    EXPECT_EQ(read.view().dtype, view.dtype);
    EXPECT_EQ(read.view().rank, view.rank);
    EXPECT_EQ(read.view().shape, view.shape);
    if (read.bytes() > 0) {
      EXPECT_EQ(std::memcmp(read.view().data, view.data, read.bytes()), 0);
    }
  }
  ConstTensorView columns = ConstTensorView::of(f, {2, 2});
  columns.stride[0] = 3;
  EXPECT_THROW(npy_of(columns), Error);
  EXPECT_THROW(npy_of(TensorView(nullptr, DType::bf16, {0})), Error);
}

TEST(Npy, BadFilesSayWhatIsWrong) {
  const std::string good = file(dictionary("<f4", "(2,)"), bytes_of({1.F, 2.F}));
  EXPECT_EQ(message(good), "");
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(message(good.substr(0, size)).find("a.npy"), std::string::npos) << size;
  EXPECT_NE(message(good + "x").find("9 bytes of data, expected 8"), std::string::npos);
  EXPECT_NE(message("PK\x03\x04 zip archive").find("not an .npy file"), std::string::npos);
  EXPECT_NE(message(file(dictionary("<c8", "(1,)"), "12345678")).find("<c8"), std::string::npos);
  EXPECT_NE(message(file(dictionary("<f4", "(1,1,1,1,1,1)"), "1234")).find("5 axes"),
            std::string::npos);
  EXPECT_NE(message(file(dictionary("<f4", "(-2,)"), "1234")), "");
  EXPECT_NE(message(file(dictionary("<f4", "(4611686018427387904, 4)"), "1234")), "");
  // Nothing in it, but strides that overflow.
  for (const char* shape : {"(0, 17606, 184474407370595115, 63)", "(4611686018427387904, 4, 0)"})
    EXPECT_NE(message(file(dictionary("<f4", shape), "")).find("a.npy: the sizes"),
              std::string::npos)
        << shape;
  EXPECT_NE(message(file(dictionary("<i8", "(1,)"), bytes_of<std::int64_t>({1LL << 40})))
                .find("element 0"),
            std::string::npos);
  EXPECT_NE(message(file("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", "1234"))
                .find("Fortran"),
            std::string::npos);
}

TEST(Npy, TheHeaderIsADictionaryOfThreeKeysAndNothingElse) {
  const auto with = [](const std::string& header) { return message(file(header, "1234")); };
  EXPECT_EQ(with("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"), "");
  EXPECT_EQ(with("{\"shape\":(1,),\"fortran_order\":False,\"descr\":\"<f4\"}"), "");
  EXPECT_EQ(message(file("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1) }", "1234")), "");
  for (const char* bad : {
           "{'descr': '<f4', 'fortran_order': 1, 'shape': (1,), }",
           "{'descr': '<f4', 'fortran_order': Falsehood, 'shape': (1,), }",
           "{'descr': '<f4', 'fortran_order': 'False', 'shape': (1,), }",
           "{'descr': '<f4junk', 'fortran_order': False, 'shape': (1,), }",
           "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': '', }",
           "{'descr': '<f4', 'fortran_order': False, }",
           "{'descr': '<f4', 'shape': (1,), }",
           "{'fortran_order': False, 'shape': (1,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } more",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1 1), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (,), }",
           "{'descr': '<f4' 'fortran_order': False, 'shape': (1,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
           "{'descr\x1b': '<f4', 'fortran_order': False, 'shape': (1,), }",
           "'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
       }) {
    EXPECT_EQ(with(bad).find("a.npy: "), 0U) << bad;
    EXPECT_EQ(with(bad).find('\x1b'), std::string::npos);
  }
  for (const char version : {'\0', '\x04', '\x09', '\xff'}) {
    std::string bytes = file(dictionary("<f4", "(1,)"), "1234");
    bytes[6] = version;
    EXPECT_NE(message(bytes).find("expected 1.0, 2.0 or 3.0"), std::string::npos);
  }
}

}  // namespace
}  // namespace convoy::io
