// Golden choices: which kernel and tile the cost models pick for an H200, without tuning, and how
// long they say that it takes. A changed constant shows here what it changes. Where that is meant,
// run with CONVOY_WRITE_CHOICES=1: the file is then written anew, of the same stages.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "bench/fit/h200.hpp"
#include "plan/select.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

// A line: the chain's text, kernel, tile and microseconds, with tabs between them.
const std::string path = source_path("tests/cuda/choices-h200.txt");

struct Choice {
  std::string chain, kernel, tile;
  double microseconds = 0;
  std::string text() const {
    return fmt::format("{}\t{}\t{}\t{:.4g}", chain, kernel, tile, microseconds);
  }
};

Choice choose(const std::string& text) {
  PlanOptions options;
  options.use_tuning = false;
  const Selection selection =
      select(parse_chain(text, true), cuda::machine_of(cuda::h200()), options, nullptr);
  return {text, std::string(selection.kernel().name()), selection.tile.tile.name,
          selection.tile.cost.seconds * 1e6};
}

TEST(Choices, AreThoseOfTheFile) {
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::string written;
  int choices = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') {
      written += line + "\n";
      continue;
    }
    std::istringstream fields(line);
    Choice was;
    std::getline(fields, was.chain, '\t');
    std::getline(fields, was.kernel, '\t');
    std::getline(fields, was.tile, '\t');
    fields >> was.microseconds;
    const Choice is = choose(was.chain);
    written += is.text() + "\n";
    ++choices;
    if (std::getenv("CONVOY_WRITE_CHOICES")) continue;
    EXPECT_TRUE(is.kernel == was.kernel && is.tile == was.tile &&
                std::abs(is.microseconds / was.microseconds - 1) < 2e-3)
        << "was " << line << "\nis  " << is.text();
  }
  EXPECT_GE(choices, 100);
  if (std::getenv("CONVOY_WRITE_CHOICES")) std::ofstream(path) << written;
}

}  // namespace
}  // namespace convoy
