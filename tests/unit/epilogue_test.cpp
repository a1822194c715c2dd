// The CPU's epilogue: every family activates and pools as src/math says, whatever the activation.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/buffer.hpp"
#include "core/kernel.hpp"
#include "cpu/shared/post_ops.hpp"
#include "math/activation.hpp"
#include "math/half.hpp"
#include "math/nan.hpp"
#include "math/pool.hpp"
#include "plan/kernel_table.hpp"

namespace convoy {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// All that act element by element. A new kind belongs here: the switch does not compile without.
std::vector<Activation> element_wise() {
  std::vector<Activation> all;
  for (int kind = 0; kind <= static_cast<int>(Activation::Kind::lif); ++kind) {
    switch (static_cast<Activation::Kind>(kind)) {
      case Activation::Kind::none:
      case Activation::Kind::relu:
      case Activation::Kind::relu6:
        all.emplace_back(static_cast<Activation::Kind>(kind));
        break;
      case Activation::Kind::clip:
        all.push_back(clip_to(-0.5F, 0.75F));
        all.push_back(clip_to(-infinity, 1));
        break;
      case Activation::Kind::leaky:
        for (const float slope : {0.1F, 2.0F, 0.0F, -0.5F}) all.push_back(leaky(slope));
        break;
      case Activation::Kind::if_:
      case Activation::Kind::lif:
        break;
    }
  }
  return all;
}

float activated(const Activation& act, float v) {
  return math::one_nan(math::activate(act, v));
}

struct Case {
  const char *kernel, *stage;  // without activation and pool
};
constexpr Case epilogues[] = {
    {"direct", "n1h9w13c5k20r3pad1+bias"},
    {"direct", "n1h6w50c8k35r3pad1+bias"},
    {"winograd2", "n1h9w13c16k20r3pad1+bias"},
    {"winograd4", "n1h9w13c64k20r3pad1+bias"},
    {"first", "n1h9w27c1k9r3pad1+bias"},
    {"first_winograd2", "n1h9w13c3k20r3pad1+bias"},
    {"tap_pairs", "n1h17w25c3k20r7pad3stride2+bias"},
    {"few_filters", "n1h9w13c32k3r3pad1+bias"},
    {"depthwise", "n1h9w13c20k20r3pad1groups20+bias"},
    {"grouped", "n1h9w13c20k30r3pad1groups10+bias"},
    {"general", "n1h9w13c5k20r3pad1+bias"},
};

struct Drawn {
  std::vector<float> x, w, bias;

  explicit Drawn(const Stage& stage) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const Shapes shapes = shapes_of(stage);
    for (auto [values, count] :
         {std::pair(&x, shapes.x_elements), {&w, shapes.w_elements}, {&bias, stage.k}}) {
      values->resize(static_cast<std::size_t>(count));
      for (float& value : *values) value = normal(random);
    }
    x[7] = infinity;  // and NaN where it meets another sign
    x[8] = std::numeric_limits<float>::quiet_NaN();
  }

  std::vector<float> run(const Kernel& kernel, const Stage& stage) const {
    const Machine machine = cpu_machine(1);
    const auto prepared = kernel.prepare(stage, kernel.tiles(stage, machine).front(), machine);
    set_weights(*prepared, w.data());
    const Shapes shapes = shapes_of(stage);
    Buffer<std::byte> workspace(prepared->workspace_bytes());
    std::memset(workspace.data(), 0xff, workspace.size());
    std::vector<float> y(static_cast<std::size_t>(shapes.y_elements), 12345.0F);
    Threads threads(1);
    RunArgs args;
    args.n = stage.n;
    args.x = x.data();
    args.x_stride = {0, stage.h * stage.w * stage.c, stage.w * stage.c, stage.c, 1};
    args.bias = bias.data();
    args.y = y.data();
    args.y_stride = {0, shapes.out_h * shapes.out_w * stage.k, shapes.out_w * stage.k, stage.k, 1};
    args.workspace = workspace.data();
    args.threads = &threads;
    prepared->run(args).or_throw();
    return y;
  }
};

// One image's maxima over the windows of the stage's pool, the first maximum and NaN as PyTorch
// keeps them.
std::vector<float> pooled(const std::vector<float>& y, const Stage& stage) {
  const Shapes shapes = shapes_of(stage);
  const math::PoolAxis rows = math::pool_rows(stage, shapes.p);
  const math::PoolAxis columns = math::pool_columns(stage, shapes.q);
  std::vector<float> most;
  for (Index i = 0; i < shapes.out_h; ++i)
    for (Index j = 0; j < shapes.out_w; ++j)
      for (Index filter = 0; filter < stage.k; ++filter) {
        float best = -infinity;
        for (Index row = rows.begin(i); row < rows.end(i); row += rows.dil)
          for (Index column = columns.begin(j); column < columns.end(j); column += columns.dil) {
            const Index at = (row * shapes.q + column) * stage.k + filter;
            const float value = y[static_cast<std::size_t>(at)];
            if (math::beats(value, best)) best = value;
          }
        most.push_back(best);
      }
  return most;
}
// In registers, through rows of results, and with windows that have nothing inside the plane.
std::vector<Pool> pools(const Shapes& shapes) {
  return {max_pool(2), max_pool(3, 2, 1), {2, 1, 1, {shapes.p + 1, 1}}};
}

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> all;
  for (const float value : values)
    all.push_back(std::bit_cast<std::uint32_t>(math::one_nan(value)));
  return all;
}

// The same sums, then the activation of src/math, then the pool: bit for bit what a kernel gives
// that does all of it at once.
TEST(Epilogue, EveryFamilyActivatesAndPoolsAsTheDefinition) {
  const Machine machine = cpu_machine(1);
  int compared = 0;
  for (const Case& line : epilogues) {
    Stage stage = parse_stage(line.stage);
    const Kernel& kernel = *find_kernel(line.kernel, DeviceKind::cpu);
    if (!kernel.refusals(stage, machine).empty()) continue;  // winograd4 without vectors
    const Drawn problem(stage);
    const std::vector<float> sums = problem.run(kernel, stage);
    for (const Activation& act : element_wise()) {
      stage.act = act;
      stage.pool.reset();
      SCOPED_TRACE(std::string(line.kernel) + " " + to_text(stage));
      ASSERT_EQ(kernel.refusals(stage, machine), std::vector<std::string>());
      std::vector<float> expected = sums;
      for (float& value : expected) value = activated(act, value);
      EXPECT_EQ(bits(problem.run(kernel, stage)), bits(expected));
      for (const Pool& pool : pools(shapes_of(parse_stage(line.stage)))) {
        stage.pool = pool;
        if (!kernel.refusals(stage, machine).empty()) continue;
        EXPECT_EQ(bits(problem.run(kernel, stage)), bits(pooled(expected, stage)))
            << to_text(stage);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 150);
}

// Of each number of filters, with and without a gap between pixels: what lies in the gaps may be
// another thread's.
TEST(Epilogue, FinishedRowsLeaveTheGapsAlone) {
  Stage stage;
  for (const Activation& act : element_wise()) {
    stage.act = act;
    const cpu::PostOps post(stage);
    for (Index k = 1; k <= 40; ++k)
      for (const Index gap : {Index{0}, Index{3}}) {
        const Index pixel_pitch = k + gap, row_pitch = 3 * pixel_pitch + 1;
        std::vector<float> y(static_cast<std::size_t>(2 * row_pitch)), expected;
        std::mt19937 random(1);
        std::normal_distribution<float> normal;
        for (Index i = 0; i < 2 * row_pitch; ++i) {
          const Index at = i % row_pitch;
          float& value = y[static_cast<std::size_t>(i)];
          value = i % 7 == 0 ? -infinity : normal(random);
          const bool stored = at < 3 * pixel_pitch && at % pixel_pitch < k;
          expected.push_back(stored && !post.none() ? activated(act, value) : value);
        }
        cpu::finish_rows(post, {y.data(), 2, row_pitch, 3, pixel_pitch, k});
        EXPECT_EQ(bits(y), bits(expected)) << static_cast<int>(act.kind) << " " << k << " " << gap;
      }
  }
}

// What math::may_pool_first promises: the maximum first changes nothing. Of those that it excludes
// each changes something.
TEST(Epilogue, PoolingFirstChangesNothingWhereItMay) {
  const std::vector<float> values = {-infinity, -3.0F, -1.0F, -0.25F, -0.0F,
                                     0.0F,      0.5F,  3.0F,  9.0F,   infinity};
  for (const Activation& act : element_wise()) {
    bool changes = false;
    for (const float a : values)
      for (const float b : values)
        for (const float bias : {-1.0F, 0.0F, 0.3F}) {
          const float one = activated(act, a + bias), other = activated(act, b + bias);
          const float late = math::beats(other, one) ? other : one;
          const float first = activated(act, (math::beats(b, a) ? b : a) + bias);
          changes =
              changes || std::bit_cast<std::uint32_t>(late) != std::bit_cast<std::uint32_t>(first);
        }
    EXPECT_EQ(changes, !math::may_pool_first(act))
        << static_cast<int>(act.kind) << " " << act.slope();
  }
}

// What math::may_round_first promises of 16-bit types; and it says no for a reason.
TEST(Epilogue, RoundingFirstChangesNothingWhereItMay) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> values = {-infinity, -7e4F,  -1e-9F, -0.0F,   0.0F,
                               1e-9F,     5.999F, 7e4F,   infinity};
  for (int i = 0; i < 10'000; ++i) values.push_back(normal(random) * (i % 2 ? 8 : 1e-6F));
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const Activation& act : element_wise()) {
      int changed = 0;
      for (const float v : values) {
        const float late = math::round_to(type, activated(act, v));
        const float early = math::round_to(type, activated(act, math::round_to(type, v)));
        changed += late != early && !(std::isnan(late) && std::isnan(early));
      }
      if (math::may_round_first(act)) {
        EXPECT_EQ(changed, 0) << static_cast<int>(act.kind);
      }
      if (act == leaky(0.1F)) {
        EXPECT_GT(changed, 100);
      }
    }
  }
}

// The bound on each output rests on it: an activation that is steeper would break the bound, one
// that is far less steep would make it too wide.
TEST(Epilogue, NoActivationIsSteeperThanItSays) {
  for (const Activation& act : element_wise()) {
    SCOPED_TRACE(static_cast<int>(act.kind));
    const double most = math::steepest(act);
    double seen = 0;
    for (double v = -12; v < 12; v += 1.0 / 64) {
      const auto a = static_cast<float>(v), b = static_cast<float>(v + 1.0 / 64);
      const double rise = std::abs(static_cast<double>(activated(act, b)) - activated(act, a)) * 64;
      seen = std::max(seen, rise);
    }
    EXPECT_LE(seen, most * (1 + 1e-4));
    EXPECT_GE(seen, most * 0.95);
  }
}

}  // namespace
}  // namespace convoy
