#include "core/size.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace convoy {
namespace {

TEST(Size, SaturatesInsteadOfWrappingAround) {
  constexpr Index large = std::numeric_limits<Index>::max();
  EXPECT_EQ((Size(3) * 4 + 5).value(), 17);
  EXPECT_TRUE(Size(Size::most).fits());
  EXPECT_FALSE((Size(Size::most) + 1).fits());
  EXPECT_FALSE((Size(Index{1} << 40) * (Index{1} << 24)).fits());
  EXPECT_FALSE((Size(Index{1} << 31) * (Index{1} << 31) * 4).fits());
  EXPECT_FALSE(Size(large).fits());
  EXPECT_FALSE((Size(large) + large).fits());
  EXPECT_FALSE((Size(large) * large).fits());
}

TEST(Size, IsTooLargeForGoodOnceItWas) {
  const Size lost = Size(Index{1} << 50) * (Index{1} << 50);
  EXPECT_FALSE((lost * 1).fits());
  EXPECT_FALSE((lost + 0).fits());
  EXPECT_FALSE((lost * 2 + 1).fits());
  EXPECT_FALSE(Size(-1).fits());
  EXPECT_FALSE((Size(-1) * -1).fits());
  EXPECT_EQ((lost * 0).value(), 0);
  EXPECT_LT(Size(7), lost);
}

}  // namespace
}  // namespace convoy
