#include "images.hpp"

#include <fmt/core.h>

#include "core/printable.hpp"
#include "io/dataset.hpp"
#include "options.hpp"

namespace convoy::cli {

void ImageOptions::add_to(Command& command) {
  command
      .add_option("--images", images,
                  "Images, an IDX file, plain or gzip; by default the Fashion-MNIST test set")
      ->type_name("FILE")
      ->check(not_empty());
  command
      .add_option("--data", data,
                  "Folder with the Fashion-MNIST test set; by default the folder CONVOY_DATA, then "
                  "$XDG_DATA_HOME/convoy, then /usr/share/datasets/fashion-mnist")
      ->type_name("FOLDER")
      ->check(not_empty());
}

io::Images ImageOptions::read(const std::string& model, const NetworkText& text) const {
  if (text.dtype != DType::u8)
    throw Error(fmt::format(
        "{}/network.txt: the input is {}, expected u8, because IDX images are bytes. Use the "
        "Python or C++ interface for other inputs.",
        printable_path(model), to_text(text.dtype)));
  const std::string file = images.empty() ? io::find_data("t10k-images-idx3-ubyte", data) : images;
  io::Images all = io::read_images(file);
  if (all.h != text.h || all.w != text.w || all.c != text.c)
    throw Error(
        fmt::format("{}: the images are {}x{}x{} (height, width, channels), expected {}x{}x{}, the "
                    "network's input.{}",
                    printable_path(file), all.h, all.w, all.c, text.h, text.w, text.c,
                    images.empty() ? " Give its images with --images FILE." : ""));
  return all;
}

ConstTensorView view_of(const io::Images& images, Index first, Index n) {
  const std::uint8_t* const data = images.data.data() + first * images.h * images.w * images.c;
  return {data, DType::u8, {n, images.h, images.w, images.c}};
}

void expect_images(const io::Images& images, Index first, Index n, const std::string& option) {
  if (first < images.n && n <= images.n - first) return;
  if (n == 1 || first >= images.n)
    throw Error(fmt::format("{} {}: the file has {} images, expected an index from 0 to {}.",
                            option, first, images.n, images.n - 1));
  throw Error(
      fmt::format("{} {}: found {} images asked for from this index on, but the file has {}. Ask "
                  "for at most {}.",
                  option, first, n, images.n, images.n - first));
}

}  // namespace convoy::cli
