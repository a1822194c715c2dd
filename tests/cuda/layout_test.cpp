// NCHW on a GPU: the fast families between transpositions give the bits of `general`, which reads
// NCHW itself, and the transposition runs near the speed of a copy.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/gpu.hpp"
#include "cuda/error.hpp"
#include "cuda/wrap/transpose.hpp"
#include "gpu_case.hpp"

namespace convoy {
namespace {

class GpuLayout : public GpuTest {};

TEST_F(GpuLayout, NchwGivesTheBitsOfGeneral) {
  constexpr struct {
    const char *stage, *kernel;
  } lines[] = {
      {"f16:n3h9w13c16k24r3pad1nchw+bias+relu+max2", "halo_nchw"},
      {"bf16:n2h7c72k136r1nchw+leaky(0.5)", "halo_nchw"},
      {"f16:n5h1c64k40r1nchw+bias", "halo_nchw"},       // nothing to convert
      {"f16:n2h3c64k40r3nchw+bias+relu", "halo_nchw"},  // one output pixel
      {"f16:n4h16c3k16r3pad1nchw+bias+relu+max2", "first_nchw"},
      {"u8:n2h18w20c3k24r3pad1nchw+bias+norm+relu+max2", "first_nchw"},
      {"f16:n2h23c1k16r7stride2pad3nchw+bias+relu+max3s2p1", "first_nchw"},
      {"f16:n2h10c64k3r3pad1nchw+bias+relu+max2", "few_nchw"},
  };
  for (const auto& line : lines) expect_bits_of_general(line.stage, line.kernel);
}

TEST_F(GpuLayout, FewerImagesOfALargerTensorGiveTheSameBits) {
  expect_same_bits_of_fewer_images("f16:n6h12w10c32k48r3pad1nchw+bias+relu+max2", "halo_nchw");
}

TEST_F(GpuLayout, TransposesNearTheSpeedOfACopy) {
  struct Shape {
    Index batch, rows, columns;
    double least;  // of the speed of a copy; odd columns go by single elements
  };
  for (const Shape& s :
       {Shape{32, 64, 224 * 224, 0.75}, Shape{32, 224 * 224, 64, 0.75}, Shape{256, 256, 196, 0.7},
        Shape{256, 512, 49, 0.6}, Shape{64, 72, 1001, 0.2}}) {
    const Index count = s.batch * s.rows * s.columns;
    Tensor from(DType::f16, {count}, gpu0), to(DType::f16, {count}, gpu0);
    const cuda::Transpose what{.from = from.view().data,
                               .to = to.view().data,
                               .batch = s.batch,
                               .rows = s.rows,
                               .columns = s.columns,
                               .from_stride = s.rows * s.columns,
                               .to_stride = s.rows * s.columns};
    const auto best = [](auto&& enqueue) {
      double seconds = 1;
      for (int i = 0; i < 20; ++i) seconds = std::min(seconds, gpu::time(gpu0, {}, enqueue));
      return seconds;
    };
    const double ours = best([&] {
      cuda::launch_status(cuda::transpose_launch(what, false, nullptr)).or_throw();
    }),
                 copied = best([&] { copy_tensor(from, to); });
    const double bytes = 4.0 * static_cast<double>(count);
    std::printf("%lld x %lld x %lld: %.0f GB/s, a copy %.0f GB/s\n",
                static_cast<long long>(s.batch), static_cast<long long>(s.rows),
                static_cast<long long>(s.columns), bytes / ours / 1e9, bytes / copied / 1e9);
    EXPECT_GE(copied / ours, s.least) << s.rows << " x " << s.columns;
  }
}

}  // namespace
}  // namespace convoy
