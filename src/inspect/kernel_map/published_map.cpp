// Kernels of others, by what is known of them, so that what their readers asked can be looked at
// beside our own: sizes, iterations, slots, how their shared memory lies.
//
// cutlass_multistage: CUTLASS 2.x's implicit GEMM (ImplicitGemmMultistage) with an activation
// iterator of 64 rows by 128 channels, 256 threads and 3 stages, as read with a debugger at C =
// 128, R = S = 3. cudnn_volta: volta_fp16_s884cudnn_fp16_128x128_ldg8_..._nhwc_tn_v1, as read from
// its SASS. A figure that depends on more than that is not here.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "convoy/error.hpp"
#include "inspect/kernel_map/kernel_map.hpp"
#include "inspect/kernel_map/ring_pipeline.hpp"
#include "math/divide.hpp"

namespace convoy::inspect {
namespace {

/// What is known of one.
struct Published {
  const char* name;
  int m, n, k;         // of a CTA's tile, a step
  int warp_m, warp_n;  // 0: not known
  int threads, slots;
  int gap;  // bytes behind each block of 8 channels; -1: another layout
};
constexpr Published kernels[] = {{"cutlass_multistage", 64, 128, 128, 0, 0, 256, 3, -1},
                                 {"cudnn_volta", 128, 128, 32, 64, 64, 128, 2, 32}};
constexpr int unit_channels = 8;                  // of a 16-byte access
constexpr int staged_rows = 32, staged_gap = 64;  // of cudnn_volta's end: fp32 values, bytes

class PublishedMap final : public KernelMap {
 public:
  PublishedMap(const Stage& stage, const Published& kernel)
      : KernelMap(stage, kernel.name, fmt::format("{}x{}x{}", kernel.m, kernel.n, kernel.k),
                  kernel.gap >= 0 ? "Volta" : "Ampere"),
        p_(kernel),
        shapes_(shapes_of(this->stage())) {
    chunks_ = math::ceil_div(stage.c, Index{p_.k});
    steps_ = chunks_ * stage.r * stage.s;
    m_tiles_ = math::ceil_div(shapes_.gemm_m, Index{p_.m});
    n_tiles_ = math::ceil_div(shapes_.gemm_n, Index{p_.n});
  }

  std::vector<MapFact> facts() const override {
    std::vector<MapFact> all;
    const auto add = [&](const char* name, std::string text, std::string note) {
      all.push_back({name, std::move(text), std::move(note)});
    };
    add("grid", fmt::format("{} x {}", m_tiles_, n_tiles_),
        "tiles along gemm_m x gemm_n, a CTA each");
    add("tile", fmt::format("{} x {} x {}", p_.m, p_.n, p_.k),
        "rows x filters x channels of a step");
    add("CTA", fmt::format("{} threads", p_.threads),
        p_.warp_m > 0 ? fmt::format("{} warps of {} x {}", p_.threads / 32, p_.warp_m, p_.warp_n)
                      : fmt::format("{} warps", p_.threads / 32));
    add("iterations", fmt::format("{}", steps_),
        fmt::format("{} chunks of {} channels x {} x {} taps{}", chunks_, p_.k, stage().r,
                    stage().s, p_.gap < 0 ? ", in the order chunk, r, s" : ""));
    add("slots", fmt::format("{}", p_.slots),
        fmt::format("of {} bytes: {} of A, {} of B", slot_bytes(), part_bytes(p_.m),
                    part_bytes(p_.n)));
    add("shared memory", fmt::format("{} bytes", p_.slots * slot_bytes()),
        fmt::format("{} KB in all, {} KB a slot", p_.slots * slot_bytes() / 1024.0,
                    slot_bytes() / 1024.0));
    if (p_.gap < 0) {
      add("accesses", fmt::format("{}", accesses()),
          fmt::format("of 16 bytes ({} channels) by a thread in each step of A, rows {} apart",
                      unit_channels, rows_a_pass()));
      add("prologue", fmt::format("{} tiles", p_.slots - 1),
          "kStages - 1, before the first product");
      add("mainloop", fmt::format("{} iterations", std::max<Index>(0, steps_ - (p_.slots - 1))),
          fmt::format("that load a tile; the last {} only multiply",
                      std::min<Index>(steps_, p_.slots - 1)));
      const int log = n_tiles_ >= 3 ? 2 : n_tiles_ >= 2 ? 1 : 0;
      add("swizzle", fmt::format("{}", log),
          fmt::format(
              "log2 of the panel's tiles along gemm_n, of {}: GemmIdentityThreadblockSwizzle<4> "
              "has 0 for one tile, 1 for two, and 2 from three on",
              n_tiles_));
      add("masks", "R, S <= 32", "of the optimized iterator; the analytic one takes any filter");
    } else {
      add("accumulators", fmt::format("{}", p_.warp_m * p_.warp_n / 32),
          "registers of a thread, R0 on; its end takes four rounds of 32");
      add("instructions", fmt::format("{} HMMA", p_.warp_m * p_.warp_n * p_.k / 256),
          "per warp in a step: 64 x 64 x 32 products, 256 in each HMMA.884");
      std::string begins;
      for (int i = 0; i < p_.k / unit_channels; ++i)
        begins += fmt::format("{}{}", i ? ", " : "", i * block_bytes());
      add("blocks", begins,
          fmt::format(
              "bytes at which A's blocks of {} channels begin: {} bytes each, {} between them",
              unit_channels, p_.m * 16, p_.gap));
      add("staged sums", fmt::format("{} bytes", staged_rows * (p_.n * 4 + staged_gap)),
          fmt::format("for {}: {} rows of {} fp32 values, {} bytes between rows",
                      staged_rows * p_.n * 4, staged_rows, p_.n, staged_gap));
    }
    return all;
  }
  std::vector<TilePlace> first_tiles(int count) const override {
    std::vector<TilePlace> all;
    for (Index i = 0; i < std::min<Index>(count, m_tiles_); ++i) all.push_back({i, 0, i, 0});
    return all;
  }
  std::string order() const override {
    return "blockIdx.x along gemm_m, blockIdx.y along gemm_n, unless the swizzle folds them";
  }

  TilePlace tile_at(Index x, Index y) const override {
    const Index column = std::max<Index>(y, 0);
    if (x < 0 || x >= m_tiles_ || column >= n_tiles_)
      throw Error(fmt::format("explain: --block {},{}: the grid has {} x {} tiles, numbered from 0",
                              x, column, m_tiles_, n_tiles_));
    return {x, column, column * m_tiles_ + x, 0};
  }

  ThreadStep thread_step(const TilePlace& tile, int thread, Index step) const override {
    if (p_.gap >= 0) lacks("known map of its loads: they read addresses from constant memory");
    if (thread < 0 || thread >= p_.threads)
      throw Error(fmt::format("explain: --thread {}: a CTA of {} has threads 0 to {}", thread,
                              kernel(), p_.threads - 1));
    if (step < 0 || step >= steps_)
      throw Error(fmt::format("explain: --step {}: a tile has steps 0 to {}", step, steps_ - 1));
    const Index s = step % stage().s, r = step / stage().s % stage().r,
                chunk = step / stage().s / stage().r;
    ThreadStep what;
    what.role = fmt::format("warp {}, lane {}: its accesses of A, kStrided = {}, Delta = {}",
                            thread / 32, thread % 32, accesses(), rows_a_pass());
    what.heading = {"access", "offset_npq", "(n,p,q)", "(r,s,c)", "(n,h,w)", "bytes"};
    for (int i = 0; i < accesses(); ++i) {
      const Index m = tile.x * p_.m + thread / units_a_row() + Index{i} * rows_a_pass();
      const TapIndex tap{r, s, chunk * p_.k + thread % units_a_row() * unit_channels};
      if (m >= shapes_.gemm_m || tap.c >= stage().c) {
        what.rows.push_back(
            {fmt::format("{}", i), fmt::format("{}", m), "-", "-", "-", "0: zeros"});
        continue;
      }
      const Product product = product_at(stage(), m, gemm_column(stage(), tap), 0);
      const InputElement& x = product.input;
      what.rows.push_back(
          {fmt::format("{}", i), fmt::format("{}", m),
           fmt::format("({},{},{})", product.output.n, product.output.p, product.output.q),
           fmt::format("({},{},{})", tap.r, tap.s, tap.c),
           fmt::format("({},{},{}) {}", x.n, x.h, x.w, x.inside ? "inside" : "padding"),
           x.inside ? fmt::format("16 at {}", x.byte) : "0: cp.async writes zeros"});
    }
    return what;
  }

  SharedMemoryMap shared_memory() const override {
    if (p_.gap < 0) lacks("known layout of shared memory; cudnn_volta, window and halo have one");
    SharedMemoryMap map;
    map.kernel = kernel(), map.tile = tile();
    map.bytes = p_.slots * slot_bytes();
    map.tiles = m_tiles_ * n_tiles_;
    map.regions = regions();
    map.layout = "blocks of 8 channels of all rows, 16 bytes a row, one block after the other";
    map.protects = fmt::format(
        "the {} bytes between blocks are for writing. Four neighbouring lanes bring 64 bytes, a "
        "pixel, 16 to each block, so that eight lanes write two rows of four blocks at once. "
        "Blocks of 2048 bytes begin in the same bank: four lanes would write the same eight banks. "
        "A gap of {} bytes moves each block on by eight banks: four blocks take all 32",
        p_.gap, p_.gap);
    map.accesses = accesses_of_warp();
    map.accumulators = accumulator_rows();
    map.accumulator_order =
        "lane 0 has columns 0, 1, 4, 5 of each 16 of row 0: R0, R1, R4, R5, R32, R33, R36, R37 are "
        "eight neighbouring channels of NHWC only if the filters are in another order in B";
    map.epilogue = {
        "four rounds of 32 of a thread's 128 values: y = a*x + b, four registers at once to shared "
        "memory, 32 rows of 128 fp32 values",
        fmt::format("{} bytes between rows, so that lanes of neighbouring rows write other banks",
                    staged_gap),
        "read back as eight neighbouring channels a lane: max, two f16 to a register, STG.128 of "
        "16 bytes"};
    return map;
  }

  Pipeline pipeline() const override {
    if (p_.gap >= 0)
      lacks("known pipeline except two slots that take turns; cutlass_multistage has one");
    Pipeline pipe =
        ring_pipeline(p_.slots, slot_bytes(), steps_, p_.threads,
                      "before the last but one of the step's products", [&](Index step) {
                        return fmt::format("tile[{}]: tap ({},{})", step,
                                           step / stage().s % stage().r, step % stage().s);
                      });
    pipe.kernel = kernel(), pipe.tile = tile();
    pipe.notes = {
        "a tile's copies are spread over the warp's products of the tile before; fence, wait "
        "and advance() come before the last but one"};
    return pipe;
  }

 private:
  std::vector<SharedRegion> regions() const {
    std::vector<SharedRegion> regions;
    const int block = block_bytes(), blocks = p_.k / unit_channels;
    for (int slot = 0; slot < p_.slots; ++slot)
      for (const char* operand : {"A", "B"})
        for (int i = 0; i < blocks; ++i) {
          const int begin =
              slot * slot_bytes() + (*operand == 'B' ? blocks * block : 0) + i * block;
          regions.push_back({fmt::format("slot {}: {}{}", slot, operand, i), begin, p_.m * 16,
                             fmt::format("{} rows of 8 channels, from byte {} of {}; then {} bytes "
                                         "of nothing",
                                         p_.m, i * block, operand, p_.gap)});
        }
    return regions;
  }

  std::vector<SharedAccess> accesses_of_warp() const {
    const int block = block_bytes(), blocks = p_.k / unit_channels;
    SharedAccess write, read;
    write.name = "write A", write.instruction = "STS.128", write.store = true;
    write.who = "each warp: lane l brings channels 8(l%4) to 8(l%4)+7 of row l/4";
    read.name = "read A", read.instruction = "LDS.128";
    read.who = "each warp: eight lanes read eight neighbouring rows of a block";
    for (int lane = 0; lane < 32; ++lane) {
      write.address.push_back(lane % 4 * block + lane / 4 * 16);
      write.plain_address.push_back(lane % 4 * p_.m * 16 + lane / 4 * 16);
      read.address.push_back(lane * 16), read.plain_address.push_back(lane * 16);
    }
    for (SharedAccess* access : {&write, &read}) {
      const double warps = p_.threads / 32.0, times = static_cast<double>(steps_);
      access->count(access == &write ? p_.m * blocks / 32.0 * times
                                     : warps * p_.warp_m * blocks / 32.0 * times);
    }
    return {write, read};
  }

  // mma.m8n8k4's fp32 result, as PTX's manual has it: of lane 0 element e lies in row (e & 2), in
  // column (e & 4) + (e & 1). A warp's 64 x 64: four such products of 16 rows, then the next 16
  // columns.
  std::vector<AccumulatorRow> accumulator_rows() const {
    std::vector<AccumulatorRow> rows;
    for (const int row : {0, 2}) {
      AccumulatorRow of_row{0, 0, row, {}, {}};
      for (int j = 0; j < p_.warp_n / 16; ++j)
        for (const int e : {0, 1, 4, 5}) {
          of_row.registers.push_back(j * 4 * 8 + e + row);
          of_row.columns.push_back(j * 16 + (e & 4) + (e & 1));
        }
      rows.push_back(of_row);
    }
    return rows;
  }

  int part_bytes(int rows) const {
    return p_.k / unit_channels * (rows * 16 + std::max(p_.gap, 0));
  }
  int block_bytes() const { return p_.m * 16 + p_.gap; }
  int slot_bytes() const { return part_bytes(p_.m) + part_bytes(p_.n); }
  int units_a_row() const { return p_.k / unit_channels; }
  int rows_a_pass() const { return p_.threads / units_a_row(); }
  int accesses() const { return p_.m / rows_a_pass(); }

  Published p_;
  Shapes shapes_;
  Index chunks_ = 0, steps_ = 0, m_tiles_ = 0, n_tiles_ = 0;
};

}  // namespace

std::unique_ptr<KernelMap> map_published(const Stage& stage, const std::string& kernel) {
  for (const Published& one : kernels) {
    if (kernel != one.name) continue;
    if (stage.dtype != DType::f16 || stage.layout != Layout::nhwc || stage.groups != 1 ||
        stage.c % unit_channels != 0)
      throw Error(
          fmt::format("explain: kernel {} is known for f16, NHWC, one group and C a multiple of "
                      "8, found {}",
                      kernel, to_text(stage)));
    return std::make_unique<PublishedMap>(stage, one);
  }
  return nullptr;
}

}  // namespace convoy::inspect
