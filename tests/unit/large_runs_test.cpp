// Runs too large for the oracle (verify/large.hpp), in small: what is drawn, and that each chosen
// image is compared.
#include <gtest/gtest.h>

#include "cpu/families.hpp"
#include "plain_options.hpp"
#include "plan/select.hpp"
#include "plan/timing.hpp"
#include "verify/large.hpp"

namespace convoy::verify {
namespace {

TEST(LargeRuns, CompareImagesWithThemselvesAlone) {
  const Machine machine = machine_for(plain());
  for (const char* text :
       {"n100h5w4c3k6r3pad1+bias+relu+max2+keep(pre,act,idx)", "u8:n90h5c3k4r3nchw+norm",
        "n50h5c3k6r3+if(0.5)+t3+keep(pre)", "n9h5c3k6r3+lif(2,0.5)+t2+hold+max2"}) {
    const Stage stage = parse_stage(text).normalised();
    const LargeResult result = check_large({stage, &cpu::general(), ""}, 3, machine);
    EXPECT_EQ(result.failure, "") << text;
    EXPECT_EQ(result.skipped, "") << text;
    EXPECT_GE(result.images, std::min<Index>(stage.n, 30)) << text;
  }
}

// What a kernel refuses is a failure with its words, not a run that is left out.
TEST(LargeRuns, SayWhatWentWrong) {
  const Stage stage = parse_stage("n100h5w4c3k6r3pad1+bias+relu").normalised();
  const LargeResult result = check_large({stage, &cpu::depthwise(), ""}, 3, machine_for(plain()));
  EXPECT_NE(result.failure.find("depthwise"), std::string::npos) << result.failure;
}

TEST(LargeRuns, AreDrawnLargeAndFit) {
  const Machine machine = machine_for(plain());
  Random random(5);
  const double bytes = 64e9;
  const std::vector<LargeRun> runs = draw_large(random, machine, 4, {}, bytes);
  for (const LargeRun& run : runs) {
    SCOPED_TRACE(to_text(run.stage));
    const Shapes shapes = shapes_of(run.stage);
    EXPECT_GE(std::max({shapes.x_elements, shapes.y_elements, shapes.pre_elements}),
              Index{1} << 31);
    EXPECT_LE(bytes_of_operands(run.stage), bytes);
    EXPECT_TRUE(fits(*run.kernel, run.stage, machine));
  }
  EXPECT_TRUE(draw_large(random, machine, 4, "general", 1e6).empty()) << "none fits";
}

}  // namespace
}  // namespace convoy::verify
