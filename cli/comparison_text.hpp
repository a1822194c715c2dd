// What `compare` and `check` share: how values are compared, and how what differs is shown.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "command.hpp"
#include "inspect/comparison.hpp"

namespace convoy::cli {

/// --tol, --rtol and --topk.
struct ComparisonOptions {
  inspect::Tolerance tolerance;
  Index topk = 5;

  void add_to(Command& command);
};

/// "(t,h,w,c) = (1,3,4,5): 0.53, expected 0.55, error 0.02", for an element of [T,N,H,W,C]; the
/// image is named where there are several. Of a spike also the membrane's distance.
std::string text_of(const inspect::Difference& difference, const std::vector<Index>& shape);

/// How many values of an operator are off, and a line each for the worst.
std::string off_text(const std::string& name, const inspect::Comparison& comparison,
                     const std::vector<Index>& shape);

/// The numbers of a comparison; what is infinite is null.
nlohmann::ordered_json json_of(const inspect::Comparison& comparison,
                               const std::vector<Index>& shape);

}  // namespace convoy::cli
