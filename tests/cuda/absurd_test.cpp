// Stages that are legal and absurd: each GPU kernel refuses them with a reason, or what it would
// launch is sound. Needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bench/fit/h200.hpp"
#include "cuda/family.hpp"
#include "cuda/sm90/few.hpp"
#include "cuda/sm90/first.hpp"
#include "cuda/sm90/pair_tile.hpp"
#include "cuda/tensor_map.hpp"
#include "cuda/wrap/pad.hpp"
#include "cuda/wrap/transpose.hpp"
#include "plan/kernel_table.hpp"
#include "plan/select.hpp"
#include "teaching/cutlass_pooled/cutlass_pooled.hpp"
#include "teaching/families.hpp"
#include "verify/random.hpp"
#include "verify/source_path.hpp"

namespace convoy::cuda {
namespace {

using verify::Random;

Machine machine() {
  return machine_of(h200());
}

/// Those that run one stage.
std::vector<const Kernel*> gpu_kernels() {
  std::vector<const Kernel*> kernels;
  for (const Kernel* kernel : kernel_table())
    if (kernel->device() == DeviceKind::cuda && dynamic_cast<const StageKernel*>(kernel))
      kernels.push_back(kernel);
  return kernels;
}

std::vector<std::string> refusals(const char* kernel, const char* stage) {
  return find_kernel(kernel, DeviceKind::cuda)->refusals(parse_stage(stage), machine());
}
void expect_refused(const char* kernel, const char* stage, const char* why) {
  const std::vector<std::string> found = refusals(kernel, stage);
  for (const std::string& reason : found)
    if (reason.find(why) != std::string::npos) return;
  ADD_FAILURE() << kernel << " for " << stage << " should say: " << why;
}

Index axis(Random& random, double huge) {
  if (!random.chance(huge)) return random.pick<Index>({1, 1, 1, 2, 3, 3, 5, 7, 8});
  return random.pick<Index>({64, 128, 1000, 32760, 32776, 100'000, 1 << 20, 1 << 25, (1 << 27) + 8,
                             1 << 30, (Index{1} << 31) - 8, (Index{1} << 31) - 1});
}

Stage draw(Random& random) {
  const double huge = 0.4 * random.uniform();
  const auto size = [&] { return axis(random, huge); };
  const auto channels = [&] { return random.chance(0.5) ? size() : 8 * axis(random, 0); };
  Stage s;
  s.dtype = random.pick({DType::f16, DType::f16, DType::bf16, DType::u8, DType::f32});
  s.n = size(), s.h = size(), s.w = size(), s.c = channels(), s.k = channels();
  s.r = axis(random, 0.1 * huge), s.s = random.chance(0.5) ? s.r : axis(random, 0.1 * huge);
  if (random.chance(0.2)) s.groups = s.k = s.c;
  if (random.chance(0.3)) s.stride = Extent(axis(random, 0.3 * huge), axis(random, 0.3 * huge));
  if (random.chance(0.3)) s.dil = Extent(size(), size());
  for (Index* side : {&s.pad.top, &s.pad.left, &s.pad.bottom, &s.pad.right})
    if (random.chance(0.5)) *side = size() - 1;
  if (random.chance(0.2)) s.layout = Layout::nchw;
  s.act = random.pick({no_act, relu, leaky(0), leaky(0.1F), clip_to(0, 1)});
  if (random.chance(0.3)) s.pool = random.pick({max_pool(2), max_pool(3, 2, 1)});
  if (random.chance(0.2))
    s.pool = Pool{{size(), size()},
                  {size(), size()},
                  {axis(random, 0) - 1, axis(random, 0) - 1},
                  {size(), size()},
                  random.chance(0.3)};
  if (random.chance(0.01)) {  // what cutlass_pooled takes, and only that
    const Index side = 2 * axis(random, 0);
    return {.dtype = DType::f16,
            .n = s.n,
            .h = side,
            .w = side,
            .c = 8 * axis(random, 0),
            .k = 8 * axis(random, 0),
            .r = 3,
            .s = 3,
            .pad = 1,
            .act = relu,
            .pool = max_pool(2)};
  }
  if (random.chance(0.05)) {  // 3x3 over many channels, as winograd4 takes them
    s.dtype = DType::f32;
    s.r = s.s = 3, s.c = 64 * axis(random, 0), s.groups = 1;
    s.stride = s.dil = Extent(1);
    if (random.chance(0.5)) s.pool.reset();
    return s;
  }
  if (random.chance(0.1)) {
    s.act = random.pick({integrate_fire(1), lif(2, 1)});
    s.t = axis(random, 0.1 * huge), s.hold = random.chance(0.3);
  }
  if (random.chance(0.2)) s.keep = {random.chance(0.5), random.chance(0.5), s.pool.has_value()};
  return s;
}

void expect_sound(const sm90::HaloLayout& l) {
  EXPECT_GE(l.x_slots, 1);
  EXPECT_GE(l.w_slots, 1);
  EXPECT_LE(l.shared_bytes, static_cast<int>(h200().shared_bytes));
  EXPECT_LE(static_cast<Index>(l.x_slots) * l.x_slot + static_cast<Index>(l.w_slots) * l.w_slot,
            l.shared_bytes);
  EXPECT_GE(l.grid, 1);
}
void expect_legal(const TensorMapArgs& map) {
  alignas(16) static char memory[16];
  for (const std::string& problem : problems(map, memory)) ADD_FAILURE() << problem;
}

void check_halo(const Stage& stage) {
  for (const sm90::HaloTile& tile : sm90::halo_tiles(stage, h200())) {
    SCOPED_TRACE(tile.name());
    const sm90::HaloLayout l = sm90::halo_layout(stage, tile, h200());
    expect_sound(l);
    EXPECT_TRUE(sm90::halo_countable(l));
    expect_legal(sm90::halo_x_map(stage, tile, l, stage.c));
    expect_legal(sm90::halo_w_map(stage, tile, l));
    expect_legal(sm90::halo_y_map(stage, tile, stage.k));
    for (int v = 0; v < l.boxes; ++v) {  // a box begins where its first tap does
      const sm90::TapBox& box = l.box[v];
      EXPECT_EQ(l.box_place[v].column * l.box_x, box.dx);
      EXPECT_EQ(l.box_place[v].row * l.box_y, box.dy);
      const int tap = l.tap_index[box.first];
      const Index dy = tap / stage.s * stage.dil.h, dx = tap % stage.s * stage.dil.w;
      EXPECT_TRUE(dy >= box.dy && (dy - box.dy) % stage.stride.h == 0) << dy << ' ' << box.dy;
      EXPECT_TRUE(dx >= box.dx && (dx - box.dx) % stage.stride.w == 0) << dx << ' ' << box.dx;
      EXPECT_LT((dy - box.dy) / stage.stride.h, l.box_h);
      EXPECT_LT((dx - box.dx) / stage.stride.w, l.box_w);
    }
  }
}
void check_first(const Stage& stage) {
  const sm90::FirstLayout l = sm90::first_layout(stage, h200());
  EXPECT_GE(l.bricks, 2);
  EXPECT_LE(l.shared_bytes, static_cast<int>(h200().shared_bytes));
  EXPECT_EQ(l.w_bytes, (stage.k + 63) / 64 * stage.r * (l.row_taps / 4) * 2048);
  expect_legal(sm90::first_y_map(stage, l, stage.k, false));
  if (l.raw) expect_legal(sm90::first_x_map(stage, l));
}
void check_few(const Stage& stage) {
  const sm90::FewLayout l = sm90::few_layout(stage, h200());
  EXPECT_GE(l.slots, 1);
  EXPECT_LE(l.shared_bytes, static_cast<int>(h200().shared_bytes));
  if (l.resident) {
    EXPECT_LE(static_cast<Index>(l.chunks) * l.w_bytes, l.shared_bytes);
  }
  expect_legal(sm90::few_x_map(stage, l, stage.c));
  expect_legal(sm90::few_w_map(stage, l));
}

TEST(Absurd, KernelsRefuseDrawnStagesOrAreSound) {
  Random random(19);
  std::map<std::string_view, int> taken;
  const std::vector<const Kernel*> kernels = gpu_kernels();
  for (int i = 0; i < 55000; ++i) {
    const Stage stage = draw(random);
    if (!problems(stage).empty()) continue;
    SCOPED_TRACE(to_text(stage));
    const Stage compared = canonical_chain(stage, DeviceKind::cuda).stages.front();
    for (const Kernel* kernel : kernels) {
      if (!kernel->refusals(stage, machine()).empty()) continue;
      ++taken[kernel->name()];
      for (const Stage& one : {stage, compared}) {
        const std::vector<Tile> tiles = kernel->tiles(one, machine());
        ASSERT_FALSE(tiles.empty()) << kernel->name();
        const Cost cost = kernel->cost(one, tiles.front(), machine());
        EXPECT_TRUE(cost.seconds > 0 && std::isfinite(cost.seconds)) << kernel->name();
        EXPECT_TRUE(cost.flops > 0 && cost.bytes > 0) << kernel->name();
        EXPECT_TRUE(cost.waste >= 0 && cost.waste <= 1) << kernel->name() << ' ' << cost.waste;
      }
      if (kernel->name() == "halo") check_halo(stage);
      if (kernel->name() == "first") check_first(stage);
      if (kernel->name() == "few") check_few(stage);
    }
    ASSERT_FALSE(HasFailure());
  }
  for (const Kernel* kernel : kernels) {
    if (kernel == &teaching::cutlass_pooled() && !teaching::cutlass_pooled_missing().empty())
      continue;
    EXPECT_GE(taken[kernel->name()], 5) << kernel->name();
  }
}

TEST(Absurd, GeneralTakesWhatIsLegal) {
  for (const char* text :
       {"n1h4c1k1r1+max1d2147483647", "n1h8c3k4r3pad1194543402stride672590751+max2",
        "n1h1w2147483647c1k1r1s1073741824", "n2147483647h1c1k100r1"})
    EXPECT_TRUE(refusals("general", text).empty()) << text;
}

// Where each tap is a box of its own, 16 bits hold how far the box lies from the first.
TEST(Absurd, HaloCountsHowFarTapsLie) {
  EXPECT_TRUE(refusals("halo", "f16:n1h40000w8c8k8r2s1dil32767x1").empty());
  expect_refused("halo", "f16:n1h40000w8c8k8r2s1dil35000x1", "at most 2^15 - 1 fit");
  expect_refused("halo", "f16:n1h8w70000c8k8r1s3dil1x32769", "at most 2^15 - 1 fit");
}

// Bytes that wrapped around 2^32 seemed to fit into shared memory.
TEST(Absurd, WeightsBeyondSharedMemoryDoNotSeemToFit) {
  EXPECT_FALSE(sm90::few_layout(parse_stage("f16:n1h1c33554432k1r1"), h200()).resident);
  EXPECT_TRUE(sm90::few_layout(parse_stage("f16:n1h1c64k1r1"), h200()).resident);
  expect_refused("first", "f16:n1h4c1k134217728r1s4", "do not fit in shared memory");
  for (const Index chunks : {Index{1} << 17, (Index{1} << 17) + 5, Index{1} << 18}) {
    Stage one = parse_stage("f16:n1h2c64k128r3pad1+relu+max2");
    one.c = 64 * chunks;
    const Stage two = parse_stage("f16:n1h1c128k64r1");
    for (const sm90::HaloTile& tile : sm90::pair_tiles(one, two, h200()))
      expect_sound(sm90::pair_layout(one, two, tile, h200()).first);
  }
}

// One image fits, the batch at which arithmetics are compared has more tiles than can be counted.
TEST(Absurd, ManyFiltersAreRanked) {
  const Stage stage = parse_stage("f16:n1h1c8k4000000r1");
  EXPECT_TRUE(refusals("halo", "f16:n1h1c8k4000000r1").empty());
  EXPECT_FALSE(
      sm90::halo_tiles(canonical_chain(stage, DeviceKind::cuda).stages.front(), h200()).empty());
  PlanOptions options;
  options.use_tuning = false;
  EXPECT_EQ(select(stage, machine(), options, nullptr).kernel().name(), "halo");
}

// With eight channels instead of one the stage would not be legal.
TEST(Absurd, PaddedChannelsMayBeTooMany) {
  const char* text = "f16:n1h1w2147483647c1k1r1s1073741824";
  expect_refused("halo_padded", text, "too large");
  PlanOptions options;
  options.use_tuning = false;
  EXPECT_EQ(select(parse_stage(text), machine(), options, nullptr).kernel().name(), "general");
}

TEST(Absurd, LaunchesAreCounted) {
  // Windows in the padding: four times as many outputs as the plane has pixels, of 2^31 / 8.
  expect_refused("halo_pool", "f16:n1h1w1000000c8k16384r1+max2s1p1", "more outputs than 32 bits");
  EXPECT_TRUE(refusals("halo_pool", "f16:n1h1w400000c8k16384r1+max2s1p1").empty());
  expect_refused("halo_padded", "f16:n2147483h1000w8c1k8r1", "pieces of eight channels");
  EXPECT_TRUE(may_transpose(1, 2147483647, 64));
  EXPECT_FALSE(may_transpose(1, 2147483648, 1));
  EXPECT_FALSE(may_transpose(2147483647, 65, 1));
  EXPECT_FALSE(countable({Index{1} << 40}, Index{1} << 40));
  EXPECT_FALSE(countable({}, (Index{1} << 31) - 1)) << "the last step of a walk would overflow";
  expect_refused("depthwise", "f16:n1h1c50000000k50000000r7pad3groups50000000",
                 "at most 2^31 - 1 fit");
  expect_refused("depthwise", "f16:n1h3c8k8r1stride1000000000pad1000000000groups8", "2^30");
  EXPECT_TRUE(refusals("few_filters", "n1073741824h1c16k1r1").empty());
  expect_refused("few_filters", "n1073741824h2w1c16k1r1", "more tiles");
  expect_refused("few_filters", "n1h1w2c16k1r1s2stride1x500000000pad0x300000000", "2^30");
}

// A tile of another stage used to become the first or the last one without a word.
TEST(Absurd, ATileOfAnotherStageIsRefused) {
  const auto refused = [](const char* kernel, const char* from, const char* to) {
    const Kernel& k = *find_kernel(kernel, DeviceKind::cuda);
    const Stage one = parse_stage(from), other = parse_stage(to);
    std::vector<std::string> names;
    for (const Tile& tile : k.tiles(other, machine())) names.push_back(tile.name);
    int foreign = 0;
    for (const Tile& tile : k.tiles(one, machine())) {
      if (std::find(names.begin(), names.end(), tile.name) != names.end()) {
        EXPECT_NO_THROW(k.cost(other, tile, machine())) << tile.name;
        continue;
      }
      ++foreign;
      EXPECT_THROW(k.cost(other, tile, machine()), Error) << kernel << ' ' << tile.name;
    }
    EXPECT_GT(foreign, 0) << kernel;
  };
  refused("window", "f16:n4h14c256k256r3pad1", "f16:n4h14c64k32r3pad1groups2");
  refused("window", "f16:n4h14c64k32r3pad1groups2", "f16:n4h14c33k32r3pad1");
  refused("fma", "n4h14c3k128r3", "n4h14c3k8r3");
}

// Some drivers tell no clock of the memory, or none at all: what was predicted from that was
// infinite, so that every stage ran on `general`.
TEST(Absurd, AGpuWhoseDriverTellsNothingRunsTheSameKernels) {
  PlanOptions options;
  options.use_tuning = false;
  for (const char* text : {"f16:n32h56c64k128r3pad1+bias+relu+max2", "n8h28c64k64r3pad1+relu",
                           "f16:n8h56c64k64r3pad1groups64", "f16:n8h224c3k64r7stride2pad3"}) {
    const Stage stage = parse_stage(text);
    const auto kernel = [&](const Machine& m) {
      return select(stage, m, options, nullptr).kernel().name();
    };
    EXPECT_TRUE(machine().warning.empty());
    DeviceFacts facts = h200();
    facts.memory_bandwidth = 0;
    EXPECT_NE(machine_of(facts).warning.find("speed of its memory"), std::string::npos);
    EXPECT_EQ(kernel(machine_of(facts)), kernel(machine())) << text;
    facts.clock = 0;
    EXPECT_EQ(kernel(machine_of(facts)), kernel(machine())) << text;
    // A machine that did not go through machine_of is an error, not a choice.
    for (double Machine::*number : {&Machine::memory_bandwidth, &Machine::peak_flops,
                                    &Machine::tensor_flops, &Machine::clock_hz}) {
      for (const double none : {0.0, -1.0, std::nan("")}) {
        Machine broken = machine();
        broken.*number = none;
        EXPECT_THROW(static_cast<void>(kernel(broken)), Error) << text << ' ' << none;
      }
    }
  }
}

// The lists that `convoy verify` takes on a GPU: it would refuse what the kernel refuses.
TEST(Absurd, KernelsTakeTheirLists) {
  for (const char* kernel : {"halo", "first", "few", "depthwise", "general", "halo_pool"}) {
    const std::string list = source_path("tests/cuda/") + kernel + "-stages.txt";
    for (const Stage& stage : read_shape_list(list)) {
      const std::vector<std::string> why =
          find_kernel(kernel, DeviceKind::cuda)->refusals(stage, machine());
      EXPECT_TRUE(why.empty()) << to_text(stage) << ": " << why.front();
    }
  }
}

// A window that holds -inf and a number: leaky(0) makes NaN of the one, and NaN wins.
TEST(Refusals, NothingPoolsBeforeAnActivationThatMakesNaN) {
  const auto refused = [](const char* kernel, const char* stage) {
    expect_refused(kernel, stage, "never decreases and makes no NaN");
  };
  for (const char* slope : {"0", "-0.5"}) {
    const std::string act = std::string("+leaky(") + slope + ")+max2";
    refused("halo", ("f16:n2h8c64k64r3pad1+bias" + act).c_str());
    refused("first", ("f16:n2h8c3k64r3pad1+bias" + act).c_str());
    refused("few", ("f16:n2h8c64k3r3pad1+bias" + act).c_str());
    EXPECT_TRUE(refusals("halo_pool", ("f16:n2h8c64k64r3pad1+bias" + act).c_str()).empty());
  }
  EXPECT_TRUE(refusals("halo", "f16:n2h8c64k64r3pad1+bias+leaky(0.1)+max2").empty());
  EXPECT_TRUE(refusals("halo", "f16:n2h8c64k64r3pad1+bias+leaky(0)").empty());
}

}  // namespace
}  // namespace convoy::cuda
