// How lists, peers and kernels are called on the page.
#include <fmt/core.h>

#include <array>

#include "report/sections.hpp"

namespace convoy::report {

std::string_view dtype_in(std::string_view stage) {
  if (const std::size_t last = stage.find("> "); last != std::string_view::npos)
    stage = stage.substr(last + 2);
  for (const std::string_view name : {"f16", "bf16", "u8"})
    if (stage.starts_with(name) && stage.size() > name.size() && stage[name.size()] == ':')
      return name;
  return "f32";
}

std::string list_of(const ResultsFile& file) {
  for (const char* mode : {"-default-", "-strict-"})
    if (const std::size_t at = file.name.rfind(mode); at != std::string::npos)
      return file.name.substr(0, at);
  return file.name;
}

std::string list_title(std::string_view list) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 23> titles = {
      {{"targets-cpu", "Target stages, with pools"},
       {"targets", "Target stages, with pools"},
       {"vgg16", "VGG-16"},
       {"unet", "U-Net"},
       {"mobilenetv2", "MobileNetV2"},
       {"resnet50", "ResNet-50"},
       {"yolov8n", "YOLOv8n"},
       {"resnext50", "ResNeXt-50, grouped layers"},
       {"targets-without-pool", "Target stages without pools"},
       {"targets-bf16", "Target stages in bf16 and f16"},
       {"f32-resnet50", "ResNet-50 in f32, peers without TF32"},
       {"people", "Stages drawn as people use them"},
       {"f32-targets", "Target stages in f32, peers without TF32"},
       {"window-targets", "Target stages by window, by name"},
       {"window-without-pool", "Without pools, by window, by name"},
       {"k-sweep", "Sweep of the channels"},
       {"same-pixels", "The same pixels in other batches"},
       {"launch-split", "Ever more channels"},
       {"cutlass", "Target stages, CUTLASS among the peers"},
       {"groups", "Groups of 16 and 32 channels"},
       {"spiking-vgg11", "Spiking VGG-11, T = 4"},
       {"spiking-vgg11-floor", "The same without neurons"},
       {"slow-paths", "Slow paths"}}};
  for (const auto& [name, title] : titles)
    if (name == list) return std::string(title);
  return std::string(list);
}

std::string how_run(const ResultsFile& file, bool gpu) {
  std::string text;
  if (!gpu) text = fmt::format("{} thread{}", file.threads, file.threads == 1 ? "" : "s");
  if (!gpu || file.mode != "default")
    text += fmt::format("{}{} mode", text.empty() ? "" : ", ", file.mode);
  return text;
}

std::string title_and_how(const ResultsFile& file, bool gpu) {
  const std::string how = how_run(file, gpu);
  return list_title(list_of(file)) + (how.empty() ? "" : ", " + how);
}

bool by_forced_kernel(const ResultsFile& file) {
  return file.name.starts_with("window-");
}

std::string_view library_of(std::string_view peer) {
  return peer.substr(0, peer.find(' '));
}

std::string library_title(std::string_view library) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 9> titles = {
      {{"pytorch", "PyTorch"},
       {"spikingjelly", "SpikingJelly"},
       {"onnxruntime", "ONNX Runtime"},
       {"openvino", "OpenVINO"},
       {"cudnn", "cuDNN"},
       {"xla", "XLA"},
       {"cublas", "cuBLAS"},
       {"cutlass", "CUTLASS"},
       {"unfused", "unfused"}}};
  for (const auto& [name, title] : titles)
    if (name == library) return std::string(title);
  return std::string(library);
}

std::string library_color(std::string_view library) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> colors = {
      {{"pytorch", "c1"},
       {"onnxruntime", "c2"},
       {"openvino", "c3"},
       {"cudnn", "c1"},
       {"xla", "c2"},
       {"torch.compile", "c3"},
       {"cublas", "c4"},
       {"cutlass", "c5"}}};
  for (const auto& [name, color] : colors)
    if (name == library) return std::string(color);
  return "c4";
}

std::string kernel_and_tile(const BenchRow& row) {
  return row.tile.starts_with(row.kernel) ? row.tile : row.kernel + " " + row.tile;
}

}  // namespace convoy::report
