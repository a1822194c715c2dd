#include "cpu/shared/pixel_rows.hpp"

#include <algorithm>
#include <cstring>

#include "core/threads.hpp"
#include "cpu/shared/core_costs.hpp"
#include "cpu/shared/cpu_prepared.hpp"
#include "cpu/shared/pool_rows.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {
using math::ceil_div;
using math::round_up;

namespace {

// Taps of one axis that lie inside the image, for the output at `at`.
struct TapsInside {
  Index first = 0, count = 0;
};
TapsInside taps_inside(Index at, Index stride, Index pad, Index dil, Index taps, Index size) {
  const Index start = at * stride - pad;
  const Index first = start < 0 ? ceil_div(-start, dil) : 0;
  const Index end = start < size ? std::min(taps, (size - 1 - start) / dil + 1) : 0;
  return {std::min(first, taps), std::max<Index>(0, end - std::min(first, taps))};
}

}  // namespace

// Where a row's results of filters [k, k + filters) go.
struct PixelRows::Target {
  Index k = 0, filters = 0;
  const float* bias = nullptr;
  float* y = nullptr;
  Index y_pixel = 0;
};

PixelRows::PixelRows(const Stage& stage, const Machine& machine, Index unit)
    : stage_(stage),
      shapes_(shapes_of(stage)),
      post_(stage),
      pool_rows_(math::pool_rows(stage, shapes_.p)),
      pool_columns_(math::pool_columns(stage, shapes_.q)),
      threads_(std::max(1, machine.threads)),
      biases_(round_up(stage.k, 16) + 16) {
  list_segments();
  if (!stage.pool) return;
  // The rows of a window, and the input that they are made of, share L2.
  const Index most = static_cast<Index>(machine.l2_bytes / (4 * sizeof(float)));
  const Index filters = most / std::max<Index>(1, math::rows_of_window(stage) * shapes_.q);
  block_ = std::clamp(filters / unit * unit, unit, round_up(stage.k, unit));
}

void PixelRows::list_segments() {
  for (Index q = 0; q < shapes_.q; ++q) {
    const TapsInside columns =
        taps_inside(q, stage_.stride.w, stage_.pad.left, stage_.dil.w, stage_.s, stage_.w);
    const bool alike = !segments_.empty() && segments_.back().s == columns.first &&
                       segments_.back().tap_columns == columns.count;
    if (alike) {
      ++segments_.back().count;
      continue;
    }
    const Index column = q * stage_.stride.w - stage_.pad.left + columns.first * stage_.dil.w;
    segments_.push_back({q, 1, columns.first, columns.count, columns.count > 0 ? column : 0});
  }
}

// Of a thread: the rows of a window.
Index PixelRows::floats_of_scratch() const {
  if (!stage_.pool) return 0;
  return std::min(math::rows_of_window(stage_), shapes_.p) * shapes_.q * round_up(block_, 16);
}

std::size_t PixelRows::bytes_of_rows() const {
  return static_cast<std::size_t>(biases_ + threads_ * floats_of_scratch()) * sizeof(float);
}

void PixelRows::run_rows(const RunArgs& args) const noexcept {
  float* const bias = reinterpret_cast<float*>(args.workspace);
  copy_bias(args, stage_, biases_, bias);
  const Index rows = args.n * shapes_.out_h;
  // Tasks of neighbouring rows, which share inputs; a few for each thread.
  const Index tasks = std::min<Index>(rows, threads_ == 1 ? 1 : 4 * threads_);
  args.threads->for_each(tasks, [&](Index task, int thread) {
    const Index begin = rows * task / tasks, end = rows * (task + 1) / tasks;
    if (stage_.pool) {
      run_pooled(args, begin, end, bias + biases_ + thread * floats_of_scratch());
      return;
    }
    for (Index row = begin; row < end; ++row) {
      const Index image = row / shapes_.p, p = row % shapes_.p;
      float* const y = static_cast<float*>(args.y) + image * args.y_stride.n + p * args.y_stride.h;
      run_row_of(args, image, p, {0, stage_.k, bias, y, args.y_stride.w});
    }
  });
}

// Rows [begin, end) behind the pool, counted over all images. Rows that windows of two steps share
// are kept, not computed twice.
void PixelRows::run_pooled(const RunArgs& args, Index begin, Index end, float* scratch) const {
  const float* const bias = reinterpret_cast<const float*>(args.workspace);
  while (begin < end) {
    const Index image = begin / shapes_.out_h, first = begin % shapes_.out_h;
    const Index last = std::min(shapes_.out_h, first + end - begin);
    for (Index k = 0; k < stage_.k; k += block_) {
      const Index filters = std::min(block_, stage_.k - k), width = round_up(filters, 16);
      Index held_begin = 0, held_end = 0;  // of the rows in scratch
      for (Index out = first; out < last; ++out) {
        const Index top = pool_rows_.lowest(out), bottom = pool_rows_.end(out);
        const Index kept = std::clamp<Index>(held_end - top, 0, std::max<Index>(0, bottom - top));
        if (kept > 0 && top > held_begin)
          std::memmove(scratch, scratch + (top - held_begin) * shapes_.q * width,
                       static_cast<std::size_t>(kept * shapes_.q * width) * sizeof(float));
        for (Index p = top + kept; p < bottom; ++p)
          run_row_of(args, image, p,
                     {k, filters, bias + k, scratch + (p - top) * shapes_.q * width, width});
        held_begin = top;
        held_end = std::max(top, bottom);
        const RowsToPool rows{pool_rows_, pool_columns_, shapes_.q, width,
                              filters,    scratch,       top,       post_};
        pool_rows(rows, out, out + 1, shapes_.out_w,
                  static_cast<float*>(args.y) + image * args.y_stride.n + k, args.y_stride);
      }
    }
    begin += last - first;
  }
}

void PixelRows::run_row_of(const RunArgs& args, Index image, Index p, const Target& to) const {
  const Strides& stride = args.x_stride;
  const TapsInside rows =
      taps_inside(p, stage_.stride.h, stage_.pad.top, stage_.dil.h, stage_.r, stage_.h);
  const Index h = p * stage_.stride.h - stage_.pad.top + rows.first * stage_.dil.h;
  PixelRow row;
  row.x = static_cast<const float*>(args.x) + image * stride.n + h * stride.h;
  row.r = rows.first;
  row.tap_rows = rows.count;
  row.row = stage_.dil.h * stride.h;
  row.column = stage_.dil.w * stride.w;
  row.x_column = stride.w;
  row.pixel = stage_.stride.w * stride.w;
  row.k = to.k;
  row.filters = to.filters;
  row.bias = to.bias;
  row.y = to.y;
  row.y_pixel = to.y_pixel;
  run_row(row);
  finish_unpooled_rows(post_, {to.y, 1, 0, shapes_.q, to.y_pixel, to.filters});
}

Cost cost_of_rows(const Stage& stage, Index vectors, double products, double steps,
                  const Machine& machine) {
  const Shapes shapes = shapes_of(stage);
  const CoreCosts& costs = core_costs(machine);
  const double lanes = machine.vector_floats;
  const double all = static_cast<double>(shapes.gemm_m) * static_cast<double>(vectors);
  const double step = 2 * lanes / (machine.peak_flops / machine.threads);
  double seconds = all * steps * step;
  if (stage.pool) {
    const double outputs = static_cast<double>(stage.n * shapes.out_h * shapes.out_w) *
                           static_cast<double>(ceil_div(stage.k, machine.vector_floats));
    const double window = static_cast<double>(stage.pool->window.h * stage.pool->window.w);
    seconds += outputs * window * costs.pool_vector_cycles / costs.clock;
  }
  Cost cost;
  cost.flops = 2 * all * lanes * products;
  cost.waste = 1 - 2 * static_cast<double>(shapes.macs) / cost.flops;
  cost.bytes = bytes_of_stage(stage, shapes);
  cost.seconds = std::max(seconds / machine.threads, cost.bytes / machine.memory_bandwidth) +
                 start_seconds(machine);
  return cost;
}

}  // namespace convoy::cpu
