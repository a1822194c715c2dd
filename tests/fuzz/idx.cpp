// IDX images and labels: as they come (plain, or what claims to be gzip), and again packed as gzip,
// so that what lies behind the inflater is reached. Plain and packed must agree. Accepted images
// are classified.
#include "io/idx.hpp"

#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convoy/error.hpp"
#include "convoy/network.hpp"

namespace {

using Bytes = std::span<const unsigned char>;

template <class Parse>
auto result_of(Parse parse, Bytes bytes) -> std::optional<decltype(parse(bytes, ""))> {
  try {
    return parse(bytes, "input");
  } catch (const convoy::Error&) {
    return std::nullopt;
  }
}

// Level 0 stores: the deflate format at the price of a copy.
std::vector<unsigned char> packed(Bytes bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 0, Z_DEFLATED, 15 + 16, 1, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
  std::vector<unsigned char> to(deflateBound(&stream, bytes.size()));
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = to.data();
  stream.avail_out = static_cast<uInt>(to.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) std::abort();
  to.resize(stream.total_out);
  deflateEnd(&stream);
  return to;
}

// What was accepted, through a network of its size.
void classify(const convoy::io::Images& images) {
  using namespace convoy;
  const Index values = images.h * images.w * images.c;
  if (values > 64 || images.n > 16) return;
  const NetworkText text{.h = images.h,
                         .w = images.w,
                         .c = images.c,
                         .layers = {{.flatten = true}, {.name = "fc", .stage = {.k = 3}}}};
  std::vector<float> w;
  for (Index i = 0; i < 3 * values; ++i) w.push_back(static_cast<float>(i % 7 - 3));
  NetworkOptions options;
  options.threads = 1;
  options.batch = 4;
  const Network net(text, {{"fc.weight", ConstTensorView::of(w.data(), {3, values})}}, options);
  Tensor labels(DType::i32, {images.n});
  net.run(ConstTensorView::of(images.data.data(), {images.n, images.h, images.w, images.c}), {},
          labels)
      .or_throw();
  for (Index i = 0; i < images.n; ++i)
    if (labels.data<std::int32_t>()[i] < 0 || labels.data<std::int32_t>()[i] > 2) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes(data, size);
  const bool gzip = size >= 2 && data[0] == 0x1f && data[1] == 0x8b;
  const auto images = result_of(convoy::io::parse_images, bytes);
  if (images && images->data.size() !=
                    static_cast<std::size_t>(images->n * images->h * images->w * images->c))
    std::abort();
  const auto labels = result_of(convoy::io::parse_labels, bytes);
  if (images && labels) std::abort();  // one magic number can't be both
  if (images) classify(*images);
  // Packing is the dear part: only for what begins like an IDX file.
  if (gzip || size < 4 || data[0] != 0 || data[1] != 0 || data[2] != 8) return 0;
  const std::vector<unsigned char> again = packed(bytes);
  const auto unpacked = result_of(convoy::io::parse_images, again);
  if (images.has_value() != unpacked.has_value() || (images && images->data != unpacked->data))
    std::abort();
  if (labels != result_of(convoy::io::parse_labels, again)) std::abort();
  return 0;
}
