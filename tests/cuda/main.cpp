// The tests of GPU code see the kernels that the program sees: the teaching kernels, too.
#include <gtest/gtest.h>

#include "teaching/add_kernels.hpp"

int main(int argc, char** argv) {
  convoy::teaching::add_kernels();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
