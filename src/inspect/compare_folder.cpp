#include "inspect/compare_folder.hpp"

#include <fmt/core.h>

#include <filesystem>

#include "core/failure.hpp"
#include "core/file.hpp"
#include "core/printable.hpp"

namespace convoy::inspect {
namespace {

DumpIndex read_index(const std::string& path) {
  constexpr std::size_t most_bytes = std::size_t{16} << 20;  // of a thousand layers it takes 1 MiB
  return parse_index(convoy::text_of(read_file(path, most_bytes)), path);
}

std::string describe(const DumpedOperator& op) {
  std::string shape;
  for (const Index size : op.shape) shape += (shape.empty() ? "" : "x") + std::to_string(size);
  return fmt::format("{} ({}, {})", printable(op.name), to_text(op.kind), shape);
}

void expect_same(const DumpIndex& ours, const DumpIndex& reference, const std::string& folder) {
  const auto wrong = [&](const std::string& what) {
    return InvalidFile(
        fmt::format("{}: {}. Write both sides again, for the same network and image.",
                    printable_path(folder), what));
  };
  if (ours.image != reference.image)
    throw wrong(fmt::format("the dump is of image {}, but the reference is of image {}", ours.image,
                            reference.image));
  if (ours.operators.size() != reference.operators.size())
    throw wrong(fmt::format("the dump has {} operators, but the reference has {}",
                            ours.operators.size(), reference.operators.size()));
  for (std::size_t i = 0; i < ours.operators.size(); ++i) {
    const DumpedOperator &a = ours.operators[i], &b = reference.operators[i];
    if (a.name != b.name || a.kind != b.kind || a.shape != b.shape)
      throw wrong(fmt::format("the dump has {}, but the reference has {} at this place",
                              describe(a), describe(b)));
  }
}

/// The membranes that say which spikes may differ; none where nobody wrote them.
std::vector<float> membranes_of(const std::string& folder, const DumpedOperator& op) {
  const std::string path = folder + "/" + membrane_name(op.spikes_of);
  if (!file_there(path)) return {};
  const std::vector<Index> shape = op.full_shape();
  return read_values(path, shape[0] * shape[1] * op.stage.h * op.stage.w * op.stage.c);
}

ComparedOperator compare_operator(const std::string& folder, const DumpedOperator& op,
                                  const Tolerance& tolerance, std::size_t most_worst) {
  const auto read = [&](Side side) {
    return read_values(folder + "/" + dump_name(op.name, side), op.values());
  };
  const std::vector<float> got = read(Side::convoy), expected = read(Side::reference);
  ComparedOperator compared{op, {}};
  SpikeRule rule;
  std::vector<float> membranes;
  if (!op.spikes_of.empty()) {
    membranes = membranes_of(folder, op);
    rule = {op.threshold, membranes, op.stage};
  }
  const std::vector<Index> shape = op.full_shape();
  compared.result =
      compare(got, expected, shape, tolerance, op.spikes_of.empty() ? nullptr : &rule, most_worst);
  compared.channels_first = compared.result.off > 0 && shape[4] > 1 && shape[2] * shape[3] > 1 &&
                            agrees_channels_first(got, expected, shape, tolerance);
  return compared;
}

Error missing(const std::string& folder, Side side) {
  return FileNotFound(
      fmt::format("{}: found one side only, expected {} too. `convoy dump MODEL {}{}` writes it.",
                  printable_path(folder), index_name(side), printable_path(folder),
                  side == Side::reference ? " --reference" : ""));
}

}  // namespace

std::vector<ComparedOperator> compare_folder(const std::string& folder, const Tolerance& tolerance,
                                             std::size_t most_worst) {
  std::error_code none;
  if (!std::filesystem::is_directory(folder, none))
    throw FileNotFound(printable_path(folder) +
                       ": expected a folder of dumps. `convoy dump MODEL FOLDER` writes one.");
  if (!file_there(folder + "/" + index_name(Side::convoy))) throw missing(folder, Side::convoy);
  DumpIndex index = read_index(folder + "/" + index_name(Side::convoy));
  if (const std::string path = folder + "/" + index_name(Side::reference); file_there(path)) {
    DumpIndex reference = read_index(path);
    expect_same(index, reference, folder);
    index = std::move(reference);  // its thresholds are those that the spikes should have
  } else if (!index.operators.empty() &&
             !file_there(folder + "/" + dump_name(index.operators[0].name, Side::reference))) {
    throw missing(folder, Side::reference);
  }
  std::vector<ComparedOperator> all;
  all.reserve(index.operators.size());
  for (const DumpedOperator& op : index.operators)
    all.push_back(compare_operator(folder, op, tolerance, most_worst));
  return all;
}

}  // namespace convoy::inspect
