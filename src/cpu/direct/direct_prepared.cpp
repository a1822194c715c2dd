// Direct, before a run: what is packed, how weights are laid out, how work is cut into tasks.
#include "cpu/direct/direct_prepared.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cpu/shared/refusals.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {
namespace {

using math::ceil_div;
using math::round_up;

// 1x1 filters without padding: the same stage on those pixels alone that it sees.
Stage without_skipped_pixels(Stage stage) {
  if (stage.r != 1 || stage.s != 1 || stage.pad != Padding{0}) return stage;
  const Shapes shapes = shapes_of(stage);
  stage.h = shapes.p;
  stage.w = shapes.q;
  stage.stride = Extent{1};
  return stage;
}

}  // namespace

bool pools_in_registers(const Stage& stage, int vectors, const TileSizes& sizes) {
  const int sums = 4 * sizes.max_windows[static_cast<std::size_t>(vectors)] * vectors;
  const Index depth = stage.r * stage.s * (stage.c / stage.groups);
  return pools_in_fours(stage) && (sums > 8 || depth < 160);
}

DirectPrepared::DirectPrepared(const Stage& given, const Machine& machine, int vectors)
    : stage_(without_skipped_pixels(given)),
      shapes_(shapes_of(stage_)),
      loops_(tile_loops()),
      epilogue_(given.act),
      post_(given),
      pool_rows_(math::pool_rows(stage_, shapes_.p)),
      pool_columns_(math::pool_columns(stage_, shapes_.q)),
      c_group_(given.c / given.groups),
      depth_(given.r * given.s * c_group_),
      threads_(std::max(1, machine.threads)) {
  const Stage& stage = stage_;
  skipped_ = {given.stride.h / stage.stride.h, given.stride.w / stage.stride.w};
  blocks_ = filter_blocks(stage, vectors, loops_);
  const FilterBlock& last = blocks_.back();
  weight_floats_ = last.weights + static_cast<std::size_t>(round_up(depth_ * last.width, 16));
  bias_floats_ = static_cast<Index>(last.bias) + round_up(last.width, 16);
  for (const FilterBlock& block : blocks_) max_width_ = std::max(max_width_, block.width);

  plan_packing();
  plan_runs(static_cast<Index>(machine.l2_bytes));
  fetch_weights_ = weight_floats_ * sizeof(float) > machine.l2_bytes;
  if (stage.pool)
    pooling_ = pools_in_registers(stage, blocks_.front().vectors, loops_) ? Pooling::registers
                                                                          : Pooling::scratch;
  plan_rows();
  plan_bands(machine);
  cut_ = find_cut(stage.n);
}

// Whether the input is packed, and where.
void DirectPrepared::plan_packing() {
  const Stage& stage = stage_;
  const bool linear = stage.r == 1 && stage.s == 1 && stage.pad == Padding{0} &&
                      stage.dtype == DType::f32 && stage.layout == Layout::nhwc && !stage.norm;
  // Skipped pixels mostly put a tile's pixels a large power of two apart, where they share cache
  // sets: packed they do not.
  packed_ = !linear || skipped_ != Extent{1};
  rows_.stage = stage;
  rows_.columns = (shapes_.q - 1) * stage.stride.w + (stage.s - 1) * stage.dil.w + 1;
  rows_.pixel_pitch = stage.c;
  // Pixels a large power of two apart share a few cache sets: a tile's would evict each other.
  if (rows_.pixel_pitch * stage.stride.w % 256 == 0) rows_.pixel_pitch += 16;
  rows_.row_pitch = rows_.columns * rows_.pixel_pitch;
}

// The runs of neighbouring floats that a pixel's taps are.
void DirectPrepared::plan_runs(Index l2_bytes) {
  const Stage& stage = stage_;
  const bool merged = packed_ && rows_.pixel_pitch == c_group_ && stage.dil.w == 1;
  // Short runs, since prefetches are issued between them, in small portions. With 1x1 filters whose
  // sums are made in parts, the overhead of a run's end exceeds that gain.
  const Index part = most_of_part(l2_bytes);
  const Index max_run = stage.r * stage.s > 1 || blocks_.size() == 1 || depth_ <= part ? 64 : 512;
  const auto add_run = [&](const Run& run) {
    for (Index done = 0; done < run.length; done += max_run)
      runs_.push_back({run.offset + done, std::min(max_run, run.length - done), run.depth + done});
  };
  for (Index r = 0; r < stage.r; ++r)
    for (Index s = 0; s < stage.s; ++s) {
      const Index row = r * stage.dil.h * rows_.row_pitch;
      tap_runs_.push_back(
          {row + s * stage.dil.w * rows_.pixel_pitch, c_group_, (r * stage.s + s) * c_group_});
      if (!merged)
        add_run(tap_runs_.back());
      else if (s == 0)
        add_run({row, stage.s * c_group_, r * stage.s * c_group_});
    }
  cut_parts(l2_bytes);
}

// How many rows a task takes at most.
void DirectPrepared::plan_bands(const Machine& machine) {
  const Stage& stage = stage_;
  // Large bands spread the cost of halo rows, of rows that two pooling windows share and of loading
  // weights over many pixels. The limit: the input, which each block of filters reads again, stays
  // in L2 beside the block's weights. Weights that exceed L2 are re-read from L3 for each band, so
  // bands are larger then.
  const Index l2 = static_cast<Index>(machine.l2_bytes / sizeof(float));
  const Index cache = fetch_weights_ && stage.r * stage.s > 1 ? l2 * 3 / 4 : l2 / 3;
  const Index all_rows = stage.n * shapes_.out_h;
  const Index most_pixels = pooling_ == Pooling::scratch && by_rows_ ? 8192 : 4096;
  // With 1x1 filters the results take as much of L2 as the input, and are counted.
  const bool few_weights = 4 * weight_floats_ * sizeof(float) <= machine.l2_bytes;
  const bool with_results = stage.r * stage.s == 1 && !stage.pool && few_weights;
  const auto small_enough = [&](Index rows, Index images) {
    const Index pixels = pixels_of(rows, images);
    if (with_results && 4 * pixels * (stage.c + stage.k) > 3 * cache) return false;
    return pixels <= most_pixels &&
           (packed_ ? packed_floats(rows, images) : pixels * stage.c) <= cache;
  };
  while (max_rows_ < all_rows && small_enough(max_rows_ + 1, images_of(max_rows_ + 1))) ++max_rows_;
  // Whole images have fewer halos than as many rows anywhere.
  while (max_images_ < stage.n && small_enough((max_images_ + 1) * shapes_.out_h, max_images_ + 1))
    ++max_images_;
  // The rows before the pool lie in L2 as well.
  while (pool_step_ < max_rows_ && 2 * pool_floats(pool_step_ + 1) <= cache) ++pool_step_;
}

// Depth of a part: its weights take at most an eighth of L2.
Index DirectPrepared::most_of_part(Index l2_bytes) const {
  return std::max<Index>(64, l2_bytes / 8 / static_cast<Index>(sizeof(float)) / max_width_);
}

void DirectPrepared::cut_parts(Index l2_bytes) {
  // Runs of a few steps: loading an offset for each step is faster than many short loops.
  if (runs_.front().length < 32 && runs_.size() > 1) {
    for (const Run& run : runs_)
      for (Index i = 0; i < run.length; ++i) offsets_.push_back(run.offset + i);
    runs_.clear();
    parts_.push_back({0, 0, 0, depth_});
    return;
  }
  const Index count = ceil_div(depth_, most_of_part(l2_bytes)),
              all_runs = static_cast<Index>(runs_.size());
  for (Index i = 0; i < count; ++i) {
    const Index first = all_runs * i / count, end = all_runs * (i + 1) / count;
    if (first == end) continue;
    const Run &from = runs_[static_cast<std::size_t>(first)],
              &to = runs_[static_cast<std::size_t>(end - 1)];
    parts_.push_back({first, end - first, from.depth, to.depth + to.length - from.depth});
  }
}

std::string DirectPrepared::packing() const {
  return fmt::format("{} in blocks of {}", weights_shape(stage_), max_width_);
}

void DirectPrepared::lay_out(const float* w, DirectWeights& packed) const {
  packed.packed = Buffer<float>(weight_floats_);
  std::fill_n(packed.packed.data(), weight_floats_, 0.0F);
  for (const FilterBlock& block : blocks_)
    for (Index i = 0; i < block.count; ++i) {
      const float* from = w + (block.first + i) * depth_;
      float* to = packed.packed.data() + block.weights + i;
      for (Index j = 0; j < depth_; ++j) to[j * block.width] = from[j];
    }
  packed.finite = std::all_of(w, w + shapes_.w_elements, [](float v) { return std::isfinite(v); });
}

// Rows of padded input behind a piece.
Index DirectPrepared::packed_rows(const math::PoolSpan& rows) const {
  return (rows.end - rows.begin - 1) * stage_.stride.h + (stage_.r - 1) * stage_.dil.h + 1;
}

// That any `out_rows` consecutive output rows touch, at most.
Index DirectPrepared::images_of(Index out_rows) const {
  return std::min(out_rows, (out_rows - 1) / shapes_.out_h + 2);
}

// At most, for output rows of so many images.
Index DirectPrepared::packed_floats(Index out_rows, Index images) const {
  if (!packed_) return 0;
  const Index most = pixels_of(out_rows, images) / shapes_.q;
  const Index halo = (stage_.r - 1) * stage_.dil.h + stage_.stride.h;
  return (most * stage_.stride.h + images * halo) * rows_.row_pitch + 16;
}

Index DirectPrepared::pixels_of(Index out_rows, Index images) const {
  // The conv rows of o output rows of one image: (o - 1)·stride + window.
  const Index window = (pool_rows_.window - 1) * pool_rows_.dil + 1;
  const Index shared = std::max<Index>(0, window - pool_rows_.stride);
  const Index rows = std::min(out_rows * pool_rows_.stride + images * shared, images * shapes_.p);
  return rows * shapes_.q;
}

Index DirectPrepared::most_pixels() const {
  return std::max(pixels_of(max_rows_, images_of(max_rows_)),
                  pixels_of(max_images_ * shapes_.out_h, max_images_));
}

Index DirectPrepared::most_packed() const {
  return round_up(std::max(packed_floats(max_rows_, images_of(max_rows_)),
                           packed_floats(max_images_ * shapes_.out_h, max_images_)),
                  16);
}

// A thread's scratch, 64-byte aligned throughout.
DirectPrepared::Scratch DirectPrepared::scratch_of(float* slot) const {
  const Index pixels = 2 * round_up(most_pixels(), 8);  // an Index takes two floats
  const auto indices = [&](Index i) { return reinterpret_cast<Index*>(slot + i * pixels); };
  Scratch scratch;
  scratch.at = indices(0);
  scratch.to = indices(1);
  scratch.place = indices(2);
  scratch.runs = reinterpret_cast<Run*>(slot + 3 * pixels);
  scratch.pack = slot + 3 * pixels + run_floats();
  scratch.pool = scratch.pack + most_packed();
  scratch.sums = scratch.pool + pool_floats(pool_step_);
  return scratch;
}

Index DirectPrepared::run_floats() const {
  return round_up(stage_.r * stage_.s * static_cast<Index>(sizeof(Run) / sizeof(float)), 16);
}

Index DirectPrepared::pool_floats(Index out_rows) const {
  if (pooling_ != Pooling::scratch) return 0;
  const Index window = (pool_rows_.window - 1) * pool_rows_.dil + 1;
  const Index rows = std::min((out_rows - 1) * pool_rows_.stride + window, shapes_.p);
  return round_up(rows * shapes_.q * max_width_ + 16, 16);
}

Index DirectPrepared::slot_floats() const {
  const Index pixels = most_pixels();
  const Index sums = parts_.size() > 1 ? pixels * max_width_ : 0;
  return 6 * round_up(pixels, 8) + run_floats() + most_packed() + pool_floats(pool_step_) +
         round_up(sums, 16);
}

std::size_t DirectPrepared::workspace_bytes() const {
  return static_cast<std::size_t>(bias_floats_ + threads_ * slot_floats()) * sizeof(float);
}

// Cuts n images into tasks of even rows or, where every pixel is a result and in the list, of
// even pixels, and of a part of the filters where those are few, so that the thread that ends last
// ends as early as can be.
DirectPrepared::Cut DirectPrepared::find_cut(Index n) const {
  const Index rows = n * shapes_.out_h;
  const Index blocks = static_cast<Index>(blocks_.size());
  Cut best;
  double least = 0;
  const auto consider = [&](Index step, Index bands, bool by_pixels, bool images) {
    const double size = by_pixels ? static_cast<double>(rows) / static_cast<double>(bands)
                                  : static_cast<double>(step);
    // What each band costs beyond its rows, in rows: halo, lists, weights fetched again.
    const double extra = 0.02 * size + 24.0 / static_cast<double>(shapes_.q * pool_rows_.stride) +
                         static_cast<double>(pool_rows_.window - pool_rows_.stride) /
                             static_cast<double>(pool_rows_.stride);
    for (Index splits = 1; splits <= std::min<Index>(blocks, 2 * threads_); ++splits) {
      const double share =
          static_cast<double>(ceil_div(blocks, splits)) / static_cast<double>(blocks);
      const double packing = splits > 1 ? 0.02 * size : 0.0;
      const double whole = (size + extra) * share + packing;
      const Index tasks = bands * splits, turns = ceil_div(tasks, threads_);
      double time = static_cast<double>(turns) * whole;
      if (!by_pixels && !images) {
        // Threads begin with neighbouring tasks, and rows are even among those.
        // In fp64: of a batch of 2^31 images the product does not fit 64 bits.
        const auto most = static_cast<double>(ceil_div(turns, splits));
        const double of_thread =
            std::ceil(static_cast<double>(rows) * most / static_cast<double>(bands));
        time -= static_cast<double>(turns) * share * (size - of_thread / most);
      }
      if (tasks < 2 * threads_) time *= 1.02;  // little to even out
      if (least == 0 || time < 0.995 * least) {
        least = time;
        best = {step, splits, bands, by_pixels, images};
      }
    }
  };
  const Index fewest = ceil_div(rows, max_rows_);
  for (Index bands = fewest; bands <= std::min<Index>(rows, fewest + 4 * threads_); ++bands) {
    const Index step = ceil_div(rows, bands);
    // A band that begins and ends within rows touches one more.
    const bool by_pixels =
        pooling_ == Pooling::none && !by_rows_ && rows % bands != 0 && step < max_rows_;
    consider(step, bands, by_pixels, false);
  }
  for (Index images = max_rows_ / shapes_.out_h + 1; images <= std::min(n, max_images_); ++images)
    consider(images * shapes_.out_h, ceil_div(n, images), false, true);
  return best;
}

}  // namespace convoy::cpu
