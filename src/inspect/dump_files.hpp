// Folders of dumps: what `convoy dump` writes and `convoy compare` reads (docs/use/cli/dump.md).
#pragma once

#include <string>
#include <vector>

#include "inspect/comparison.hpp"
#include "inspect/execute.hpp"
#include "inspect/operators.hpp"

namespace convoy::inspect {

/// Whose values a file holds.
enum class Side : std::uint8_t { convoy, reference };

// Names of files. An operator's name is free text; core/file_name.hpp says how it is written there.
std::string index_name(Side side);                        // dbg.json, dbg_ref.json
std::string dump_name(const std::string& op, Side side);  // dbg_conv1.bin, dbg_conv1_ref.bin
std::string membrane_name(const std::string& neuron);     // dbg_if1_mem_ref.bin

/// What the index says of an operator.
struct DumpedOperator {
  std::string name;
  OperatorKind kind = OperatorKind::conv;
  std::vector<Index> shape;  // [T,H,W,C], or [T,N,H,W,C] of several images
  /// The neuron whose membranes say which spikes may differ: the operator itself, or the one before
  /// a pool. Empty: the values are no spikes.
  std::string spikes_of;
  double threshold = 0;  // of that neuron
  Stage stage;           // of one image; c 0: there is none, as of a mean

  /// [T,N,H,W,C].
  std::vector<Index> full_shape() const;
  Index values() const;
};

struct DumpIndex {
  std::string model;
  Index image = 0;  // the first one's place in its file
  std::vector<DumpedOperator> operators;
};

/// The index's line of an operator, for `n` images. `op` is one of `operators`.
DumpedOperator dumped(const Operators& operators, const Operator& op, Index n);
/// That of the mean over the steps.
DumpedOperator dumped_mean(const Operators& operators, Index n);

/// Makes the folder, with those above it. Throws Error where that can't be done, or it is a file.
void make_folder(const std::string& folder);

/// Throws Error where two files of these operators would have one name ("conv1" and "conv1_ref").
void expect_different_files(const std::vector<DumpedOperator>& operators);

/// Writes values [T,N,H,W,C], each step again where T is 1 and the index has more: float32, little
/// endian. The file is whole or not written. Throws Error.
void write_values(const std::string& path, const Tensor& values, Index steps);

/// Exactly `count` of them. Throws Error for a file that is missing, too short or too long.
std::vector<float> read_values(const std::string& path, Index count);

std::string text_of(const DumpIndex& index);
/// What text_of wrote. Throws Error that begins with `name`, for whatever it is not.
DumpIndex parse_index(std::string_view text, const std::string& name);

/// Writes the values of one side of operators and, of the reference, the membranes that
/// `spikes_of` names, then the index: it never speaks of files that are not there.
struct DumpedValues {
  DumpedOperator op;
  const Tensor* values = nullptr;
  const Tensor* membrane = nullptr;  // of the reference, of the neuron `spikes_of`
};
void write_dumps(const std::string& folder, Side side, const std::string& model, Index image,
                 const std::vector<DumpedValues>& all);

}  // namespace convoy::inspect
