// Two sides of a folder of dumps, operator by operator.
#pragma once

#include <string>
#include <vector>

#include "inspect/comparison.hpp"
#include "inspect/dump_files.hpp"

namespace convoy::inspect {

struct ComparedOperator {
  DumpedOperator op;
  Comparison result;
  bool channels_first = false;  // it is off, and agrees when it is read as [T,C,H,W]
};

/// Compares dbg_X.bin with dbg_X_ref.bin for every operator of the index dbg.json, in its order,
/// which is the network's. dbg_ref.json, where it is there, must speak of the same operators and
/// image; dumps of another program need none. Without membranes no spike may differ. Throws Error
/// for a file that is missing, wrong or of another size than the index says.
std::vector<ComparedOperator> compare_folder(const std::string& folder, const Tolerance& tolerance,
                                             std::size_t most_worst);

}  // namespace convoy::inspect
