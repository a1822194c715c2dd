// One self-contained HTML page of results: no network, no library, readable without a script.
#pragma once

#include <string>
#include <vector>

#include "convoy/stage.hpp"
#include "report/results.hpp"

namespace convoy::report {

struct PageRequest {
  Results results;
  std::vector<Stage> stages;  // shown one by one, with their kernels
  std::string title = "Convoy";
};

/// The page's whole text.
std::string page(const PageRequest& request);

}  // namespace convoy::report
