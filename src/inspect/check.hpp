// Chosen operators of a network by Convoy, the rest by a reference.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "inspect/comparison.hpp"
#include "inspect/execute.hpp"
#include "inspect/operators.hpp"

namespace convoy::inspect {

struct CheckOptions {
  /// Names of operators and blocks; "all": every operator, "none": none.
  std::vector<std::string> checked = {"all"}, timed;
  PlanOptions plan;                // device and threads
  Reference* reference = nullptr;  // null: the oracle
  Tolerance tolerance;
  std::size_t most_worst = 5;
};

/// An operator, or a block, by Convoy on what the reference gave before it, so that errors don't
/// add up.
struct CheckedOperator {
  const Operator* op = nullptr;  // of the Operators that were given
  std::string kernel;
  std::vector<Index> shape;  // [T,N,H,W,C] of its values
  bool checked = false;      // else it was only timed
  Comparison result;
  bool timed = false;
  double seconds = 0, reference_seconds = 0;  // of all images: by Convoy, by the reference
  Tensor values;                              // Convoy's
};

/// Labels of the network whose checked operators are Convoy's, each on what came before in that
/// same network, beside those by the reference alone.
struct Predictions {
  bool any = false;  // false: the last layer gives no vector, or nothing was checked
  std::vector<std::int32_t> ours, reference;
  std::vector<Index> differing;  // images
  /// Of those: images with a membrane of the reference at the threshold, or whose two largest
  /// outputs are as good as equal. Rounding may decide these.
  std::vector<Index> excused;
};

struct CheckReport {
  std::vector<CheckedOperator> operators;  // in the network's order, blocks behind their parts
  std::vector<Output> reference;           // of all operators
  Predictions predictions;
  Index images = 0;
  bool passed() const;
};

/// Throws Error for a name that the network does not have, and where a plan cannot be made or run.
CheckReport check(const Operators& operators, const ConstTensorView& images,
                  const CheckOptions& options);

/// Throws Error for such a name alone: before long work.
void expect_known(const Operators& operators, const std::vector<std::string>& names);

/// Writes both sides of the checked operators, as `convoy dump` does; `image` is the first one's
/// place in its file. A block's files are named after it.
void save(const std::string& folder, const std::string& model, Index image,
          const Operators& operators, const CheckReport& report);

}  // namespace convoy::inspect
