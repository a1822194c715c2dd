#include "cuda/wrap/nchw.hpp"

#include <fmt/core.h>

#include "cuda/costs.hpp"
#include "cuda/error.hpp"
#include "cuda/family.hpp"
#include "cuda/wrap/around.hpp"
#include "cuda/wrap/inner_stage.hpp"
#include "cuda/wrap/transpose.hpp"

namespace convoy::cuda {
namespace {

/// One tensor, of `channels` on `pixels` an image, of elements of `size` bytes.
struct Side {
  Index pixels, channels, size;
  bool converts;
  Index elements(Index n) const { return n * pixels * channels; }
  Index bytes(Index n) const { return converts ? elements(n) * size : 0; }
  bool may_convert(Index n) const { return !converts || may_transpose(n, pixels, channels); }
  /// Of n images a step.
  Strides dense(Index n, Index w) const {
    const Index image = pixels * channels;
    return {n * image, image, w * channels, channels, 1};
  }
  /// NHWC strides of a tensor that reads the same in both layouts, of n images a step that lie
  /// `image` apart.
  Strides in_place(Index n, Index w, Index image) const {
    return pixels == 1 ? Strides{n * image, image, image, image, 1}
                       : Strides{n * image, image, w, 1, 1};
  }
  /// Families know the distance of pixels alone: images of one channel must follow each other.
  Status check_in_place(std::string_view kernel, std::string_view operand, Index image) const {
    if (converts || pixels == 1 || image == pixels) return {};
    return Status(
        StatusCode::invalid_operand,
        fmt::format("{}: its images of one channel are {} elements apart, expected {} for kernel "
                    "{}. Give it a dense tensor, or plan with the kernel general.",
                    operand, image, pixels, kernel));
  }
};

struct Sides {
  Side x, y;
  Index turns, steps;  // images of x and of y for one of a run: a neuron has one a time step
  Sides(const Stage& stage, bool strided_x)
      : x{stage.h * stage.w, stage.c, static_cast<Index>(size_of(stage.dtype)), false},
        y{0, stage.k, static_cast<Index>(size_of(stage.output_dtype(true))), false},
        turns(turns_of(stage)),
        steps(stage.t) {
    const Shapes shapes = shapes_of(stage);
    y.pixels = shapes.out_h * shapes.out_w;
    x.converts = !strided_x && layouts_differ(x.pixels, x.channels);
    y.converts = layouts_differ(y.pixels, y.channels);
  }
  Index x_bytes(Index n) const { return x.bytes(n * turns); }
  Index y_bytes(Index n) const { return y.bytes(n * steps); }
  /// Read and written.
  double bytes(Index n) const { return 2.0 * static_cast<double>(x_bytes(n) + y_bytes(n)); }
  bool may_convert(Index n) const { return x.may_convert(n * turns) && y.may_convert(n * steps); }
};

class PreparedNchw final : public PreparedAround {
 public:
  PreparedNchw(std::string_view name, const Stage& stage, bool strided_x,
               std::unique_ptr<Prepared> inner, const Machine& machine)
      : PreparedAround(name, std::move(inner), machine),
        stage_(stage),
        sides_(stage, strided_x),
        out_w_(shapes_of(stage).out_w),
        strided_x_(strided_x) {
    const OnDevice on(device_);
    launch_status(transpose_ready()).or_throw();
  }

  std::size_t workspace_bytes() const override {
    return x_bytes() + y_bytes() + inner_->workspace_bytes();
  }

  Status run(const RunArgs& args) const noexcept override {
    if (args.n == 0) return {};
    Status status = sides_.y.check_in_place(name_, "y", args.y_stride.n);
    if (status.ok() && !strided_x_) status = sides_.x.check_in_place(name_, "x", args.x_stride.n);
    if (!status.ok()) return status;
    const OnDevice on(device_);
    if (Status chosen = device_status(on.error()); !chosen.ok()) return chosen;
    RunArgs inside = args;
    std::byte* const ours = args.workspace;
    if (inner_->workspace_bytes() > 0) inside.workspace = ours + x_bytes() + y_bytes();
    if (sides_.x.converts) {
      const Side& x = sides_.x;
      if (std::string why = transpose_launch({.from = args.x,
                                              .to = ours,
                                              .batch = args.n * sides_.turns,
                                              .rows = x.channels,
                                              .columns = x.pixels,
                                              .from_stride = args.x_stride.n,
                                              .to_stride = x.pixels * x.channels,
                                              .element_bytes = x.size},
                                             overlap_, stream_of(args));
          !why.empty())
        return launch_status(why);
      inside.x = ours;
      inside.x_stride = x.dense(args.n, stage_.w);
    } else if (!strided_x_) {
      inside.x_stride = sides_.x.in_place(args.n, stage_.w, args.x_stride.n);
    }
    const Side& y = sides_.y;
    std::byte* const made = ours + x_bytes();
    if (y.converts) inside.y = made;
    inside.y_stride =
        y.converts ? y.dense(args.n, out_w_) : y.in_place(args.n, out_w_, args.y_stride.n);
    status = inner_->run(inside);
    if (!status.ok() || !y.converts) return status;
    return launch_status(transpose_launch({.from = made,
                                           .to = args.y,
                                           .batch = args.n * sides_.steps,
                                           .rows = y.pixels,
                                           .columns = y.channels,
                                           .from_stride = y.pixels * y.channels,
                                           .to_stride = args.y_stride.n,
                                           .element_bytes = y.size},
                                          overlap_, stream_of(args)));
  }

 private:
  std::size_t x_bytes() const { return workspace_part(sides_.x_bytes(stage_.n)); }
  std::size_t y_bytes() const { return workspace_part(sides_.y_bytes(stage_.n)); }

  Stage stage_;
  Sides sides_;
  Index out_w_;
  bool strided_x_;
};

}  // namespace

void Nchw::refuse(const Stage& stage, const Machine& machine, Reasons& why) const {
  if (stage.layout != Layout::nchw) return;  // unserved
  add_missing(why, inner_.refusals(stage_nhwc(stage), machine));
  const Sides sides(stage, strided_x_);
  if (!sides.may_convert(stage.n))
    why.emplace_back("more tiles of 64x64 to transpose than 32 bits count");
  const auto check = [&](const char* operand, const Side& side, DType type) {
    if (side.converts && side.size != 2 && side.size != 4)
      why.push_back(
          fmt::format("{} is {}, expected f16, bf16 or f32 to transpose", operand, to_text(type)));
  };
  check("x", sides.x, stage.dtype);
  check("y", sides.y, stage.output_dtype(true));
}

std::vector<Tile> Nchw::tiles(const Stage& stage, const Machine& machine) const {
  return {best_tile(inner_, stage_nhwc(stage), machine)};
}

Cost Nchw::cost(const Stage& stage, const Tile& tile, const Machine& machine) const {
  Cost cost = inner_.cost(stage_nhwc(stage), tile, machine);
  const Sides sides(stage, strided_x_);
  const double moved = sides.bytes(stage.n);
  cost.bytes += moved;
  const PassCosts pass;
  cost.seconds += moved / (pass.memory_share * machine.memory_bandwidth) +
                  pass.launch * ((sides.x.converts ? 1 : 0) + (sides.y.converts ? 1 : 0));
  return cost;
}

std::unique_ptr<Prepared> Nchw::prepare(const Stage& stage, const Tile& tile,
                                        const Machine& machine) const {
  return std::make_unique<PreparedNchw>(name(), stage, strided_x_,
                                        inner_.prepare(stage_nhwc(stage), tile, machine), machine);
}

}  // namespace convoy::cuda
