// Chains of stages: their text, what is legal, and the kernels that run several stages.
#include "core/chain.hpp"

#include <gtest/gtest.h>

#include "convoy/error.hpp"

namespace convoy {
namespace {

TEST(Chain, TextRoundTrips) {
  for (const std::string text :
       {"n1h8w8c4k4r3+relu", "f16:n2h8w8c16k32r3pad1+relu+max2 > f16:n2h4w4c32k16r1+relu",
        "spikes > n1h8w8c4k4r3+if(1)", "constants > spikes t3 > n2h1w1c40k8r1 > mean"}) {
    const OwnedChain chain = parse_chain(text, true);
    EXPECT_EQ(to_text(chain), text);
    EXPECT_EQ(parse_chain(to_text(chain), true), chain);
  }
}

TEST(Chain, KnowsItsSteps) {
  EXPECT_EQ(Chain(parse_stage("n1h8w8c4k4r3+relu")).steps(), 1);
  EXPECT_EQ(Chain(parse_chain("spikes t3 > n2h1w1c40k8r1 > mean")).steps(), 3);
}

TEST(Chain, SaysWhatDoesNotFit) {
  const auto message = [](const char* text, bool gpu = false) {
    try {
      parse_chain(text, gpu);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto contains = [&](const char* text, const char* what, bool gpu = false) {
    EXPECT_NE(message(text, gpu).find(what), std::string::npos) << message(text, gpu);
  };
  contains("n1h8w8c4k4r3 > n1h8w8c4k4r3", "expected 6x6x4 or 1x1x144");
  contains("n1h8w8c4k4r3 > n2h6w6c4k4r3", "expected the same n");
  contains("f16:n1h8w8c8k8r3 > n1h6w6c8k8r3", "expected f16", true);
  contains("n1h8w8c4k4r3 > mean", "expected a neuron");
  contains("spikes t0 > n1h8w8c4k4r3", "spikes t<STEPS>");
  contains("spikes t9223372036854775807 > n2h6w6c8k9r3", "in all");
  contains("mean > n1h8w8c4k4r3", "expected mean at the end");
  contains("n1h8w8c4k4r3 > constants", "expected it at the start");
  contains("n1h8w8c4k4r3 > spikes t3", "expected it at the start");
  contains("n1h8w8c4k4r3 > n1h6w6c4k4r3+keep(pre)", "found keep(...)");
  contains("n1h8w8c4k4r3+if(1)+t2 > n1h6w6c4k4r3+if(1)+t3", "t is 2, expected 3");
}

}  // namespace
}  // namespace convoy
