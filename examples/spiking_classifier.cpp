// Classifies images with a spiking network: the shipped model and the test images of Fashion-MNIST.
//
//     spiking_classifier MODEL IMAGES LABELS [DEVICE]
//
// IMAGES and LABELS are IDX files, plain or compressed: Debian's package dataset-fashion-mnist has
// them in /usr/share/datasets/fashion-mnist.
#include <zlib.h>

#include <convoy/network.hpp>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace convoy;

const char* const names[] = {"T-shirt", "trousers", "pullover", "dress", "coat",
                             "sandal",  "shirt",    "sneaker",  "bag",   "ankle boot"};

/// The bytes of an IDX file after its header, which has `axes` sizes of four bytes each.
std::vector<std::uint8_t> read_idx(const std::string& path, int axes, std::vector<Index>& shape) {
  gzFile file = gzopen(path.c_str(), "rb");  // reads plain files too
  if (!file) throw Error(path + ": can't be opened");
  std::vector<std::uint8_t> header(static_cast<std::size_t>(4 * (axes + 1)));
  bool whole = gzread(file, header.data(), static_cast<unsigned>(header.size())) ==
                   static_cast<int>(header.size()) &&
               header[2] == 8 && header[3] == axes;  // 8: bytes
  Index count = whole ? 1 : 0;
  for (int axis = 1; whole && axis <= axes; ++axis) {
    Index extent = 0;
    for (int i = 0; i < 4; ++i)
      extent = extent * 256 + header[static_cast<std::size_t>(4 * axis + i)];
    shape.push_back(extent);
    count *= extent;
    whole = count > 0 && count < (1 << 30);
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(whole ? count : 0));
  whole = whole && gzread(file, bytes.data(), static_cast<unsigned>(count)) == count;
  gzclose(file);
  if (!whole)
    throw Error(path + ": expected an IDX file of bytes with " + std::to_string(axes) + " axes");
  return bytes;
}

}  // namespace

int main(int count, char** words) {
  if (count < 4 || count > 5) {
    std::fprintf(stderr, "Usage: %s MODEL IMAGES LABELS [DEVICE]\n", words[0]);
    return 2;
  }
  try {
    std::vector<Index> shape, labels_shape;
    const std::vector<std::uint8_t> pixels = read_idx(words[2], 3, shape);
    const std::vector<std::uint8_t> expected = read_idx(words[3], 1, labels_shape);
    if (shape[0] != labels_shape[0]) throw Error("expected one label per image");

    NetworkOptions options;
    options.device = parse_device(count > 4 ? words[4] : "cpu");
    const Network network(words[1], options);
    std::printf("%zu layers, %lld parameters, %lld time steps\n", network.layers().size(),
                static_cast<long long>(network.parameters()),
                static_cast<long long>(network.text().steps));

    // Pixels as they are: the network normalises them, by the line `input` of its network.txt.
    std::vector<std::int32_t> labels(expected.size());
    network
        .run(ConstTensorView::of(pixels.data(), {shape[0], shape[1], shape[2]}), {},
             TensorView::of(labels.data(), {shape[0]}))
        .or_throw();

    std::size_t right = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) right += labels[i] == expected[i];
    for (std::size_t i = 0; i < 5 && i < labels.size(); ++i)
      std::printf("image %zu: %s\n", i, names[labels[i]]);
    std::printf("%zu of %zu labels are right\n", right, labels.size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
