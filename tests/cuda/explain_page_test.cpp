// docs/start/gpu.md shows a part of the output of `convoy explain` on an H200. The facts of that
// GPU are known, so that the output can be made without it.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "bench/fit/h200.hpp"
#include "plan/explain.hpp"
#include "plan/select.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

std::string explained(const std::string& text) {
  const Machine machine = cuda::machine_of(cuda::h200());
  PlanOptions options;
  options.device = machine.device;
  const Stage stage = parse_stage(text);
  return to_text(explain(stage, machine, select(stage, machine, options, &shipped_tuning())));
}

TEST(ExplainPage, ShowsWhatAnH200Prints) {
  std::set<std::string> printed;
  std::istringstream output(explained("f16:n32h56c64k128r3pad1+bias+relu+max2"));
  for (std::string line; std::getline(output, line);) printed.insert(line);

  std::ifstream page(source_path("docs/start/gpu.md"));
  int shown = 0;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line == "Kernels") inside = true;
    if (line == "```") inside = false;
    if (!inside || line.empty() || line == "  ...") continue;
    EXPECT_TRUE(printed.contains(line)) << line << "\nis not in\n" << output.str();
    ++shown;
  }
  EXPECT_GT(shown, 10) << "docs/start/gpu.md: expected the parts Kernels and Choice";
}

}  // namespace
}  // namespace convoy
