#include "cpu/shared/padded_rows.hpp"

#include <algorithm>
#include <cstring>

#include "math/half.hpp"

namespace convoy::cpu {

void PaddedRows::pack(const RunArgs& args, Index image, Index first, Index count, Index begin,
                      Index end, float* to) const {
  if (begin >= end) return;
  for (Index row = first; row < first + count; ++row, to += row_pitch) {
    if (row < 0 || row >= stage.h)
      std::fill_n(to + begin * pixel_pitch, (end - begin) * pixel_pitch, 0.0F);
    else
      pack_row(args, image, row, begin, end, to);
  }
}

void PaddedRows::pack_row(const RunArgs& args, Index image, Index row, Index first, Index last,
                          float* to) const {
  const Index left = stage.pad.left;
  const Index begin = std::clamp(left, first, last);
  const Index end = std::clamp(left + stage.w, begin, last);
  std::fill_n(to + first * pixel_pitch, (begin - first) * pixel_pitch, 0.0F);
  std::fill_n(to + end * pixel_pitch, (last - end) * pixel_pitch, 0.0F);
  if (begin == end) return;
  to += begin * pixel_pitch;
  const Strides& stride = args.x_stride;
  const Index from = image * stride.n + row * stride.h + (begin - left) * stride.w;
  const Index count = end - begin, c = stage.c, pitch = pixel_pitch;
  if (stage.dtype == DType::f32 && stride.c == 1 && !stage.norm) {
    const float* x = static_cast<const float*>(args.x) + from;
    if (stride.w == c && pitch == c) {
      std::memcpy(to, x, static_cast<std::size_t>(count * c) * sizeof(float));
      return;
    }
    for (Index i = 0; i < count; ++i)
      std::memcpy(to + i * pitch, x + i * stride.w, static_cast<std::size_t>(c) * sizeof(float));
    return;
  }
  const auto convert = [&](auto* x) {
    x += from;
    const float* scale = args.norm_scale;
    const float* shift = args.norm_shift;
    if (!stage.norm) {
      for (Index i = 0; i < count; ++i)
        for (Index j = 0; j < c; ++j)
          to[i * pitch + j] = static_cast<float>(x[i * stride.w + j * stride.c]);
      return;
    }
    for (Index i = 0; i < count; ++i)
      for (Index j = 0; j < c; ++j)
        to[i * pitch + j] =
            math::normalise(static_cast<float>(x[i * stride.w + j * stride.c]), scale[j], shift[j]);
  };
  if (stage.dtype == DType::u8)
    convert(static_cast<const std::uint8_t*>(args.x));
  else
    convert(static_cast<const float*>(args.x));
}

}  // namespace convoy::cpu
