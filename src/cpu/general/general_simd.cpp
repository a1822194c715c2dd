// The loops of the kernel `general`, compiled once for each instruction set.
//
// A task copies its padded input into a patch as fp32, so that types, layouts, borders and `norm`
// are dealt with once an element and not once a tap; then register tiles of 6 pixels × 2 vectors of
// filters sum over the taps; then bias, activation or neuron, and pool work from cache.
#include "cpu/general/general.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/general/general_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "cpu/shared/epilogue-inl.hpp"
#include "cpu/shared/post_ops.hpp"
#include "math/half.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::general_loops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::clamped;
using cpu::HWY_NAMESPACE::one_nan;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;
constexpr hn::RebindToSigned<D> di;
constexpr Index lanes = HWY_LANES(float);
constexpr Index block = filter_block(lanes);

V charge(const Activation& act, V membrane, V x) {
  if (act.kind == Activation::Kind::if_) return hn::Add(membrane, x);
  return hn::Add(membrane, hn::Div(hn::Sub(x, membrane), hn::Set(d, act.tau())));
}

// `count` values to consecutive channels of one pixel, rounded once to the output type.
void store_channels(DType dtype, void* out, Index at, Index stride, const float* from,
                    Index count) {
  if (dtype == DType::f32 && stride == 1) {
    std::memcpy(static_cast<float*>(out) + at, from, static_cast<std::size_t>(count) * 4);
    return;
  }
  for (Index i = 0; i < count; ++i) math::store(dtype, out, at + i * stride, from[i]);
}

// The filter taps of which a register tile takes the sum.
struct Taps {
  Index r_begin, r_end, s_begin, s_end;
};

class Runner {
 public:
  Runner(const Layer& layer, const Geometry& geometry, const Task& task, const Scratch& scratch,
         const RunArgs& args)
      : layer_(layer),
        stage_(layer.stage),
        g_(geometry),
        task_(task),
        scratch_(scratch),
        args_(args),
        out_(stage_.output_dtype()),
        pixel_(layer.c_group * (layer.per_lane ? block : 1)),
        rows_(task.rows.end - task.rows.begin),
        columns_(task.columns.end - task.columns.begin),
        patch_rows_(rows_, stage_.r, stage_.stride.h, stage_.dil.h),
        patch_columns_(columns_, stage_.s, stage_.stride.w, stage_.dil.w),
        first_row_(task.rows.begin * stage_.stride.h - stage_.pad.top),
        first_column_(task.columns.begin * stage_.stride.w - stage_.pad.left) {}

  void run() {
    const bool one_input = stage_.t == 1 || stage_.hold;
    for (Index b = 0; b < task_.block_count; ++b) {
      const PaddedFilters& filters = task_.blocks[b];
      if (stage_.act.is_neuron()) begin_membranes(filters);
      for (Index step = 0; step < stage_.t; ++step) {
        if (step == 0 || !stage_.hold) {
          const bool reload = layer_.per_lane || !one_input || b == 0 ||
                              filters.channel != task_.blocks[b - 1].channel;
          if (reload) load_patch(filters, step);
          convolve(filters);
        }
        finish(filters, step);
        write_output(filters, step);
      }
      if (args_.membrane_out) end_membranes(filters);
    }
  }

 private:
  void load_patch(const PaddedFilters& filters, Index step) {
    const Index row_floats = patch_columns_.size * pixel_;
    for (Index i = 0; i < patch_rows_.size; ++i) {
      const Index row = first_row_ + patch_rows_.position(i);
      float* to = scratch_.patch + i * row_floats;
      if (row < 0 || row >= g_.h) {
        std::memset(to, 0, static_cast<std::size_t>(row_floats) * sizeof(float));
        continue;
      }
      const Index from = step * g_.x.t + task_.image * g_.x.n + row * g_.x.h;
      for (Index j = 0; j < patch_columns_.size; ++j, to += pixel_) {
        const Index column = first_column_ + patch_columns_.position(j);
        if (column < 0 || column >= g_.w)
          std::memset(to, 0, static_cast<std::size_t>(pixel_) * sizeof(float));
        else if (layer_.per_lane)
          load_pixel_per_lane(filters, from + column * g_.x.w, to);
        else
          load_channels(from + column * g_.x.w, filters.channel, layer_.c_group, to);
      }
    }
  }

  void load_channels(Index pixel, Index channel, Index count, float* to) const {
    const Index stride = g_.x.c;
    const Index from = pixel + channel * stride;
    if (stage_.dtype == DType::f32 && stride == 1) {
      std::memcpy(to, static_cast<const float*>(args_.x) + from,
                  static_cast<std::size_t>(count) * sizeof(float));
    } else if (stage_.dtype == DType::u8 && stride == 1) {
      const auto* x = static_cast<const std::uint8_t*>(args_.x) + from;
      for (Index i = 0; i < count; ++i) to[i] = static_cast<float>(x[i]);
    } else {
      for (Index i = 0; i < count; ++i)
        to[i] = math::load(stage_.dtype, args_.x, from + i * stride);
    }
    if (stage_.norm)
      for (Index i = 0; i < count; ++i)
        to[i] =
            math::normalise(to[i], args_.norm_scale[channel + i], args_.norm_shift[channel + i]);
  }

  void load_pixel_per_lane(const PaddedFilters& filters, Index pixel, float* to) const {
    if (layer_.c_group == 1 && layer_.k_group == 1) {  // depthwise: lanes are channels
      load_channels(pixel, filters.first, filters.count, to);
      std::memset(to + filters.count, 0,
                  static_cast<std::size_t>(block - filters.count) * sizeof(float));
      return;
    }
    for (Index c = 0; c < layer_.c_group; ++c) {
      for (Index lane = 0; lane < block; ++lane) {
        float* value = to + c * block + lane;
        *value = 0;
        if (lane >= filters.count) continue;
        const Index group = (filters.first + lane) / layer_.k_group;
        load_channels(pixel, group * layer_.c_group + c, 1, value);
      }
    }
  }

  void convolve(const PaddedFilters& filters) {
    const bool narrow = filters.count <= lanes;
    if (layer_.per_lane)
      narrow ? convolve_rows<1, true>(filters) : convolve_rows<2, true>(filters);
    else
      narrow ? convolve_rows<1, false>(filters) : convolve_rows<2, false>(filters);
  }

  template <int kVectors, bool kPerLane>
  void convolve_rows(const PaddedFilters& filters) {
    const Taps all{0, stage_.r, 0, stage_.s};
    const float* const weights = task_.weights->packed.data() + filters.weights;
    const bool finite = task_.weights->finite;
    for (Index i = 0; i < rows_; ++i) {
      const float* row = scratch_.patch + i * patch_rows_.step * patch_columns_.size * pixel_;
      float* sums = scratch_.sums + i * columns_ * block;
      const Index step = patch_columns_.step * pixel_;
      Index j = 0;
      if (finite) {
        for (; j + 6 <= columns_; j += 6)
          tile<6, kVectors, kPerLane>(row + j * step, weights, all, sums + j * block);
        for (; j + 2 <= columns_; j += 2)
          tile<2, kVectors, kPerLane>(row + j * step, weights, all, sums + j * block);
      }
      for (; j < columns_; ++j)
        tile<1, kVectors, kPerLane>(row + j * step, weights, finite ? all : taps_inside(i, j),
                                    sums + j * block);
    }
  }

  // The taps of a pixel that lie in the image.
  Taps taps_inside(Index i, Index j) const {
    const auto range = [](Index at, Index size, Index dil, Index count, Index& begin, Index& end) {
      begin = at >= 0 ? 0 : (-at + dil - 1) / dil;
      end = at >= size ? 0 : (size - at + dil - 1) / dil;
      if (end > count) end = count;
    };
    Taps taps{};
    range(first_row_ + i * stage_.stride.h, g_.h, stage_.dil.h, stage_.r, taps.r_begin, taps.r_end);
    range(first_column_ + j * stage_.stride.w, g_.w, stage_.dil.w, stage_.s, taps.s_begin,
          taps.s_end);
    return taps;
  }

  // One accumulator an output, from 0, in the order r, s, c: this is the arithmetic "sequential".
  template <int kPixels, int kVectors, bool kPerLane>
  void tile(const float* patch, const float* weights, const Taps& taps, float* sums) const {
    const Index step = patch_columns_.step * pixel_;
    V sum[kPixels][kVectors];
#pragma GCC unroll 8
    for (int u = 0; u < kPixels; ++u)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[u][v] = hn::Zero(d);
    for (Index r = taps.r_begin; r < taps.r_end; ++r) {
      for (Index s = taps.s_begin; s < taps.s_end; ++s) {
        const float* x =
            patch + (r * patch_rows_.tap * patch_columns_.size + s * patch_columns_.tap) * pixel_;
        const float* w = weights + (r * stage_.s + s) * layer_.c_group * block;
        for (Index c = 0; c < layer_.c_group; ++c, w += block, x += kPerLane ? block : 1) {
          V filter[kVectors];
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) filter[v] = hn::Load(d, w + v * lanes);
#pragma GCC unroll 8
          for (int u = 0; u < kPixels; ++u) {
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v) {
              const V value =
                  kPerLane ? hn::LoadU(d, x + u * step + v * lanes) : hn::Set(d, x[u * step]);
              sum[u][v] = hn::MulAdd(value, filter[v], sum[u][v]);
            }
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int u = 0; u < kPixels; ++u)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) hn::Store(sum[u][v], d, sums + u * block + v * lanes);
  }

  void finish(const PaddedFilters& filters, Index step) {
    alignas(64) float bias[block] = {};
    if (args_.bias)
      std::memcpy(bias, args_.bias + filters.first,
                  static_cast<std::size_t>(filters.count) * sizeof(float));
    alignas(64) float pre[block];
    const bool neuron = stage_.act.is_neuron();
    const V threshold = hn::Set(d, stage_.act.threshold());
    const Epilogue epilogue(stage_.act);
    const Index vectors = filters.count <= lanes ? 1 : 2;
    for (Index i = 0; i < rows_; ++i) {
      for (Index j = 0; j < columns_; ++j) {
        const Index at = (i * columns_ + j) * block;
        for (Index v = 0; v < vectors; ++v) {
          V value = hn::Load(d, scratch_.sums + at + v * lanes);
          value = hn::Add(value, hn::Load(d, bias + v * lanes));
          V result;
          if (neuron) {
            float* membrane = scratch_.membrane + at + v * lanes;
            value = one_nan(d, charge(stage_.act, hn::Load(d, membrane), value));
            const auto fires = hn::Ge(value, threshold);
            const V after = stage_.soft ? hn::Sub(value, threshold) : hn::Zero(d);
            hn::Store(hn::IfThenElse(fires, after, value), d, membrane);
            result = hn::IfThenElseZero(fires, hn::Set(d, 1.0F));
          } else {
            value = one_nan(d, value);
            result = clamped(d, value, epilogue);
          }
          hn::Store(value, d, pre + v * lanes);
          hn::Store(result, d, scratch_.act + at + v * lanes);
        }
        if (args_.pre && owns(i, j))
          store_channels(out_, args_.pre, dense(step, i, j, filters), 1, pre, filters.count);
      }
    }
    finish_rows(PostOps(stage_), {scratch_.act, 1, 0, rows_ * columns_, block, filters.count});
    if (args_.act) keep_act(filters, step);
  }

  void keep_act(const PaddedFilters& filters, Index step) {
    for (Index i = 0; i < rows_; ++i)
      for (Index j = 0; j < columns_; ++j)
        if (owns(i, j))
          store_channels(out_, args_.act, dense(step, i, j, filters), 1,
                         scratch_.act + (i * columns_ + j) * block, filters.count);
  }

  bool owns(Index i, Index j) const {
    return task_.rows.begin + i < task_.rows.own_end &&
           task_.columns.begin + j < task_.columns.own_end;
  }
  // Element of [T,N,P,Q,K] that pixel (i, j) of the block and its first filter are.
  Index dense(Index step, Index i, Index j, const PaddedFilters& filters) const {
    const Index row = (step * g_.n + task_.image) * g_.p + task_.rows.begin + i;
    return (row * g_.q + task_.columns.begin + j) * stage_.k + filters.first;
  }

  void begin_membranes(const PaddedFilters& filters) {
    std::memset(scratch_.membrane, 0,
                static_cast<std::size_t>(rows_ * columns_ * block) * sizeof(float));
    if (!args_.membrane_in) return;
    for (Index i = 0; i < rows_; ++i)
      for (Index j = 0; j < columns_; ++j)
        std::memcpy(scratch_.membrane + (i * columns_ + j) * block,
                    args_.membrane_in + dense(0, i, j, filters),
                    static_cast<std::size_t>(filters.count) * sizeof(float));
  }
  void end_membranes(const PaddedFilters& filters) {
    for (Index i = 0; i < rows_; ++i)
      for (Index j = 0; j < columns_; ++j)
        if (owns(i, j))
          std::memcpy(args_.membrane_out + dense(0, i, j, filters),
                      scratch_.membrane + (i * columns_ + j) * block,
                      static_cast<std::size_t>(filters.count) * sizeof(float));
  }

  void write_output(const PaddedFilters& filters, Index step) {
    // Ties that the rounding makes must be seen by idx, which takes the first maximum.
    if (args_.idx && out_ != DType::f32)
      for (Index i = 0; i < rows_ * columns_ * block; ++i)
        scratch_.act[i] = math::round_to(out_, scratch_.act[i]);
    for (Index i = task_.rows.out_begin; i < task_.rows.out_end; ++i) {
      for (Index j = task_.columns.out_begin; j < task_.columns.out_end; ++j) {
        const Index to =
            step * g_.y.t + task_.image * g_.y.n + i * g_.y.h + j * g_.y.w + filters.first * g_.y.c;
        if (stage_.pool) {
          alignas(64) float best[block];
          alignas(64) std::int32_t where[block];
          pool_window(filters, i, j, best, where);
          store_channels(out_, args_.y, to, g_.y.c, best, filters.count);
          if (args_.idx) store_idx(filters, step, i, j, where);
        } else {
          const Index at = ((i - task_.rows.begin) * columns_ + j - task_.columns.begin) * block;
          store_channels(out_, args_.y, to, g_.y.c, scratch_.act + at, filters.count);
        }
      }
    }
  }

  void pool_window(const PaddedFilters& filters, Index i, Index j, float* best,
                   std::int32_t* where) const {
    const Index row_end = g_.rows.end(i);
    const Index column_end = g_.columns.end(j);
    const Index first = g_.rows.begin(i) * g_.q + g_.columns.begin(j);
    for (Index v = 0; v < (filters.count <= lanes ? 1 : 2); ++v) {
      V most = hn::Set(d, -std::numeric_limits<float>::infinity());
      auto position = hn::Set(di, static_cast<std::int32_t>(first));
      for (Index p = g_.rows.begin(i); p < row_end; p += g_.rows.dil) {
        for (Index q = g_.columns.begin(j); q < column_end; q += g_.columns.dil) {
          const Index at = (p - task_.rows.begin) * columns_ + q - task_.columns.begin;
          const V value = hn::Load(d, scratch_.act + at * block + v * lanes);
          const auto beats = hn::Or(hn::Gt(value, most), hn::IsNaN(value));
          most = hn::IfThenElse(beats, value, most);
          position = hn::IfThenElse(hn::RebindMask(di, beats),
                                    hn::Set(di, static_cast<std::int32_t>(p * g_.q + q)), position);
        }
      }
      hn::Store(most, d, best + v * lanes);
      hn::Store(position, di, where + v * lanes);
    }
  }

  // idx is dense, in the layout of y.
  void store_idx(const PaddedFilters& filters, Index step, Index i, Index j,
                 const std::int32_t* where) {
    const Index image = step * g_.n + task_.image;
    const bool nhwc = stage_.layout == Layout::nhwc;
    const Index plane = g_.out_h * g_.out_w;
    const Index pixel = i * g_.out_w + j;
    const Index to = nhwc ? (image * plane + pixel) * stage_.k + filters.first
                          : (image * stage_.k + filters.first) * plane + pixel;
    for (Index k = 0; k < filters.count; ++k) args_.idx[to + k * (nhwc ? 1 : plane)] = where[k];
  }

  const Layer& layer_;
  const Stage& stage_;
  const Geometry& g_;
  const Task& task_;
  const Scratch& scratch_;
  const RunArgs& args_;
  const DType out_;
  const Index pixel_;  // floats of a pixel of the patch
  const Index rows_, columns_;
  const PatchAxis patch_rows_, patch_columns_;
  const Index first_row_, first_column_;  // of the image, at the patch's corner
};

void run_task_simd(const Layer& layer, const Geometry& geometry, const Task& task,
                   const Scratch& scratch, const RunArgs& args) {
  Runner(layer, geometry, task, scratch, args).run();
}
}  // namespace
}  // namespace convoy::cpu::general_loops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::cpu::general_loops {

HWY_EXPORT(run_task_simd);

void run_task(const Layer& layer, const Geometry& geometry, const Task& task,
              const Scratch& scratch, const RunArgs& args) {
  HWY_DYNAMIC_DISPATCH(run_task_simd)(layer, geometry, task, scratch, args);
}

}  // namespace convoy::cpu::general_loops
#endif
