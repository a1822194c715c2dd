// What `explain` says must follow from the stage, and say it for every legal stage.
#include "plan/explain.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plain_options.hpp"

namespace convoy {
namespace {

Explanation explained(std::string_view text, bool measure = false) {
  return explain(parse_stage(text), plain(), {measure, false, 0.005});
}

TEST(Explain, CountsTheBytesThatMove) {
  // x 2*4*4*8, w 16*3*3*8, conv 2*4*4*16, y 2*2*2*16 floats.
  const Explanation e = explained("n2h4c8k16r3pad1+bias+relu+max2");
  const double x = 2 * 16 * 8 * 4, w = 16 * 9 * 8 * 4, plane = 2 * 16 * 16 * 4, y = 2 * 4 * 16 * 4;
  EXPECT_EQ(e.fused_bytes(), x + w + y);
  // The chain writes conv, reads and writes it for the activation and reads it for the pool.
  EXPECT_EQ(e.unfused_bytes(), x + w + 4 * plane + y);

  const Explanation bare = explained("n2h4c8k16r3pad1");
  EXPECT_EQ(bare.fused_bytes(), x + w + plane);
  EXPECT_EQ(bare.unfused_bytes(), bare.fused_bytes());

  const Explanation activated = explained("n2h4c8k16r3pad1+relu");
  EXPECT_EQ(activated.fused_bytes(), x + w + plane);
  EXPECT_EQ(activated.unfused_bytes(), x + w + 3 * plane);

  // pre and act are written either way; the chain reads act for its pool.
  const Explanation kept = explained("n2h4c8k16r3pad1+relu+max2+keep(pre,act)");
  EXPECT_EQ(kept.fused_bytes(), x + w + 2 * plane + y);
  EXPECT_EQ(kept.unfused_bytes(), x + w + 4 * plane + y);

  // Two steps of held input: convolved once; v in and out; spikes of each step.
  const Explanation neuron = explained("n2h4c8k16r3pad1+if(1)+t2+hold");
  EXPECT_EQ(neuron.fused_bytes(), x + w + 2 * plane + 2 * plane);
  EXPECT_EQ(neuron.unfused_bytes(), x + w + plane + 2 * plane + 4 * plane + 2 * plane);
}

TEST(Explain, GivesFormulaAndValueOfEverySize) {
  const Explanation e = explained("n3h11w13c6k9r3s5stride2x1pad1x2dil1x2groups3+max3x2s2p1x1ceil");
  for (const char* symbol : {"P", "Q", "P'", "Q'", "gemm_m", "gemm_n", "gemm_k", "MACs"}) {
    const auto at =
        std::find_if(e.sizes.begin(), e.sizes.end(),
                     [&](const Explanation::Size& size) { return size.symbol == symbol; });
    ASSERT_NE(at, e.sizes.end()) << symbol;
    EXPECT_FALSE(at->formula.empty());
    EXPECT_FALSE(at->numbers.empty());
  }
  EXPECT_EQ(e.sizes[0].numbers, "floor((11 + 1 + 1 - 1*(3 - 1) - 1) / 2) + 1");
  EXPECT_EQ(e.sizes[0].value, 6);
  EXPECT_EQ(e.sizes[1].numbers, "floor((13 + 2 + 2 - 2*(5 - 1) - 1) / 1) + 1");
  EXPECT_EQ(e.sizes[1].value, 9);
}

TEST(Explain, SaysEveryKernelsVerdict) {
  const Explanation e = explained("n2h9c8k8r5stride2pad2+bias+relu+max3s2p1+strict");
  int chosen = 0, refused = 0;
  for (const auto& line : e.kernels) {
    chosen += line.chosen ? 1 : 0;
    refused += line.refusals.empty() ? 0 : 1;
    if (!line.exact) {
      EXPECT_FALSE(line.refusals.empty()) << line.kernel;
    }
    const std::string text = to_text(e);
    for (const std::string& refusal : line.refusals)
      EXPECT_NE(text.find(refusal), std::string::npos);
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_GE(refused, 2);  // neither Winograd does 5x5
}

TEST(Explain, WorksForEveryRider) {
  for (const char* text :
       {"n1h1c1k1r1", "u8:n2h9c3k5r3pad1+bias+norm+relu6", "f16:n1h6c4k4r3+clip(0,1)",
        "bf16:n1h6c4k4r3+leaky(0.1)+max2+keep(pre,act,idx)", "n2h7c3k4r3nchw+bias+relu",
        "n1h8c4k4r3+lif(2,1)+soft+t3+max2", "n1h8c4k4r3+if(1)+t2+hold", "n4h1c256k10r1+bias",
        "n1h20c16k16r3dil2groups4pad2x1x0x3+bias+relu+max3s2p1ceil"}) {
    const Explanation e = explained(text, true);
    EXPECT_TRUE(e.measured.has_value()) << text;
    EXPECT_GT(e.measured->median, 0) << text;
    EXPECT_LE(e.measured->minimum, e.measured->median) << text;
    EXPECT_LE(e.fused_bytes(), e.unfused_bytes()) << text;
    const std::string canonical = to_text(parse_stage(text));
    const auto json = nlohmann::json::parse(to_json(e));
    EXPECT_EQ(json["stage"], canonical);
    EXPECT_EQ(json["kernel"], e.kernel);
    const std::string shown = to_text(e);
    EXPECT_EQ(shown.rfind(canonical, 0), 0U) << shown.substr(0, 200);
    EXPECT_EQ(shown.find("inf"), std::string::npos) << shown;
    EXPECT_EQ(shown.find("nan"), std::string::npos) << shown;
  }
}

TEST(Explain, DoesNotRunWhatIsTooLarge) {
  const Explanation e = explained("n100000h224c64k64r3pad1+relu", true);
  EXPECT_FALSE(e.measured.has_value());
  EXPECT_NE(e.not_measured.find("GB"), std::string::npos);
}

TEST(Explain, OfAPlanMeasuresNothing) {
  const Plan plan(parse_stage("n1h8c4k4r3+relu"), plain());
  const auto json = nlohmann::json::parse(plan.explain_json());
  EXPECT_FALSE(json.contains("measured"));
  EXPECT_EQ(json["machine"]["measured"], false);
  EXPECT_EQ(json["workspace_bytes"], plan.workspace_bytes());
  EXPECT_EQ(json["kernel"], plan.kernel());
}

}  // namespace
}  // namespace convoy
