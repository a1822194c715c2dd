// The GPU's families that count in 32 bits: what each refuses, and whether every index of a run of
// a stage that it takes is right. The index functions of the kernels are called on the host.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "convoy/stage.hpp"
#include "verify/random.hpp"

namespace convoy::cuda {

using Wide = Index;  // no product here reaches 2^63

struct Family {
  const char* name;
  std::function<std::vector<std::string>(const Stage&)> refusals;
  std::function<void(const Stage&, verify::Random&)> check;
};

std::vector<Family> families();

inline bool fits_int(Wide value) {
  return value >= -(Wide{1} << 31) && value < (Wide{1} << 31);
}
#define EXPECT_INT(value) \
  EXPECT_TRUE(fits_int(value)) << #value << " = " << static_cast<double>(value)

/// Numbers below `count`: the first, the last, and some between.
std::vector<Index> some(Index count, verify::Random& random);

}  // namespace convoy::cuda
