// The images that a network's subcommands read.
#pragma once

#include <string>

#include "command.hpp"
#include "convoy/network.hpp"
#include "io/idx.hpp"

namespace convoy::cli {

/// --images and --data.
struct ImageOptions {
  std::string images, data;

  void add_to(Command& command);
  /// The file named, or the Fashion-MNIST test set. Throws Error where the images are not what the
  /// network of the folder `model` takes.
  io::Images read(const std::string& model, const NetworkText& text) const;
};

/// Images [first, first + n).
ConstTensorView view_of(const io::Images& images, Index first, Index n);

/// Throws Error unless the file has images [first, first + n): `option` is what named the first.
void expect_images(const io::Images& images, Index first, Index n, const std::string& option);

}  // namespace convoy::cli
