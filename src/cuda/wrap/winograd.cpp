#include "cuda/wrap/winograd.hpp"

#include <algorithm>
#include <vector>

#include "cuda/costs.hpp"
#include "cuda/error.hpp"
#include "cuda/family.hpp"
#include "cuda/wrap/around.hpp"
#include "cuda/wrap/winograd_pass.hpp"
#include "math/divide.hpp"
#include "math/winograd.hpp"

namespace convoy::cuda {
namespace {

namespace f4 = math::winograd4;

Index tiles_of(const Stage& stage) {
  return winograd_tiles(stage).of_image();
}

/// [K,3,3,C] -> [36 K, C], fp32 of transforms made in double.
std::vector<float> transformed(const Stage& stage, const float* w) {
  std::vector<float> all(static_cast<std::size_t>(f4::points * stage.k * stage.c));
  for (Index k = 0; k < stage.k; ++k) {
    for (Index c = 0; c < stage.c; ++c) {
      double half[f4::inputs][3];
      for (Index s = 0; s < 3; ++s) {
        const auto tap = [&](Index r) {
          return static_cast<double>(w[((k * 3 + r) * 3 + s) * stage.c + c]);
        };
        double made[f4::inputs];
        f4::transform_filter({tap(0), tap(1), tap(2)}, made);
        for (int i = 0; i < f4::inputs; ++i) half[i][s] = made[i];
      }
      for (int i = 0; i < f4::inputs; ++i) {
        double made[f4::inputs];
        f4::transform_filter(half[i], made);
        for (int j = 0; j < f4::inputs; ++j)
          all[static_cast<std::size_t>(((i * f4::inputs + j) * stage.k + k) * stage.c + c)] =
              static_cast<float>(made[j]);
      }
    }
  }
  return all;
}

struct WinogradWeights final : PackedWeights {
  std::vector<PackedBlock> blocks() const override {
    std::vector<PackedBlock> all = products->blocks();
    for (PackedBlock& block : all) block.of_transforms = true;
    for (const PackedBlock& block : filters->blocks()) all.push_back(block);
    return all;
  }
  std::shared_ptr<const PackedWeights> products;  // one block
  std::shared_ptr<const DeviceWeights> filters;   // [K,3,3,C]
};

class PreparedWinograd final : public PreparedAround {
 public:
  PreparedWinograd(std::string_view name, const Stage& stage, Index images,
                   std::unique_ptr<Prepared> inner, const Machine& machine)
      : PreparedAround(name, std::move(inner), machine), stage_(stage), images_(images) {
    const OnDevice on(device_);
    launch_status(winograd_ready()).or_throw();
  }

  std::string packing() const override { return "f4 of " + inner_->packing(); }
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
    const float* const w = all.front().w;
    const std::vector<float> of_products = transformed(stage_, w);
    const Parameters inner{.w = of_products.data()};
    auto weights = std::make_shared<WinogradWeights>();
    weights->products = inner_->pack({&inner, 1});
    const auto count = static_cast<std::size_t>(shapes_of(stage_).w_elements);
    weights->filters = pack_widened(stage_, {w, count}, device_);
    return weights;
  }
  void use(std::shared_ptr<const PackedWeights> weights) override {
    const auto both = std::static_pointer_cast<const WinogradWeights>(std::move(weights));
    inner_->use(both->products);
    filters_ = both->filters;
  }
  std::vector<float> laid_out(std::size_t block, const float* from) const override {
    if (block == 0) return inner_->laid_out(0, from);
    return {from, from + shapes_of(stage_).w_elements};
  }

  std::size_t workspace_bytes() const override {
    return part(stage_.c) + part(stage_.k) + inner_->workspace_bytes();
  }

  Status run(const RunArgs& args) const noexcept override {
    const OnDevice on(device_);
    if (Status chosen = device_status(on.error()); !chosen.ok()) return chosen;
    const Strides &x = args.x_stride, &y = args.y_stride;
    for (Index first = 0; first < args.n; first += images_) {
      WinogradRun run{.args = args};
      run.args.n = std::min(images_, args.n - first);
      run.args.x = static_cast<const float*>(args.x) + first * x.n;
      run.args.y = static_cast<float*>(args.y) + first * y.n;
      run.v = reinterpret_cast<float*>(args.workspace);
      run.m = reinterpret_cast<float*>(args.workspace + part(stage_.c));
      run.w = static_cast<const float*>(filters_->memory.data());
      std::string why = launch_winograd_input(stage_, run, overlap_, stream_of(args));
      if (!why.empty()) return launch_status(why);
      const Status status = inner_->run(inner_args(args, run));
      if (!status.ok()) return status;
      why = launch_winograd_output(stage_, run, overlap_, stream_of(args));
      if (!why.empty()) return launch_status(why);
    }
    return {};
  }

 private:
  std::size_t part(Index channels) const {
    return workspace_part(images_ * tiles_of(stage_) * f4::points * channels *
                          Index{sizeof(float)});
  }
  RunArgs inner_args(const RunArgs& args, const WinogradRun& run) const {
    const auto dense = [](Index channels) {
      const Index pixel = f4::points * channels;
      return Strides{0, pixel, pixel, pixel, 1};
    };
    RunArgs inside;
    inside.n = run.args.n * tiles_of(stage_);
    inside.x = run.v, inside.x_stride = dense(stage_.c);
    inside.y = run.m, inside.y_stride = dense(stage_.k);
    inside.workspace = args.workspace + part(stage_.c) + part(stage_.k);
    inside.stream = args.stream;
    return inside;
  }

  Stage stage_;
  Index images_;  // of a chunk
  std::shared_ptr<const DeviceWeights> filters_;
};

}  // namespace

Winograd::Winograd(std::string_view name, std::string_view arithmetic, const Kernel& inner)
    : StageKernel({.name = name,
                   .arithmetic = arithmetic,
                   .device = DeviceKind::cuda,
                   .serves = served_by_winograd}),
      inner_(inner) {}

void Winograd::refuse(const Stage& stage, const Machine& machine, Reasons& why) const {
  refuse_winograd(stage, why);
  if (why.empty()) why = inner_.refusals(winograd_inner(stage, stage.n), machine);
}

std::vector<Tile> Winograd::tiles(const Stage& stage, const Machine&) const {
  std::vector<Tile> tiles;
  for (const int megabytes : winograd_megabytes(stage))
    tiles.push_back({winograd_tile_name(megabytes), megabytes});
  return tiles;
}

Cost Winograd::cost(const Stage& stage, const Tile& tile, const Machine& machine) const {
  const Index images = winograd_images_of_chunk(stage, tile.a);
  const auto chunks = static_cast<double>(math::ceil_div(stage.n, images));
  const Stage inner = winograd_inner(stage, images);
  const Cost products = inner_.cost(inner, best_tile(inner_, inner, machine), machine);
  const Cost whole = cost_of(stage, 0, 0);
  const double transforms =
      static_cast<double>(winograd_bytes_of_image(stage)) * static_cast<double>(stage.n);
  const PassCosts pass;
  const double passes = (whole.bytes + transforms) / (pass.memory_share * machine.memory_bandwidth);
  Cost cost = whole;
  cost.bytes += 2 * transforms;
  cost.flops = products.flops * chunks;
  cost.seconds = chunks * (products.seconds + 2 * pass.launch) + passes;
  return cost;
}

std::unique_ptr<Prepared> Winograd::prepare(const Stage& stage, const Tile& tile,
                                            const Machine& machine) const {
  const Index images = winograd_images_of_chunk(stage, tile.a);
  const Stage inner = winograd_inner(stage, images);
  const Tile best = inner_.tiles(inner, machine).front();
  return std::make_unique<PreparedWinograd>(name(), stage, images,
                                            inner_.prepare(inner, best, machine), machine);
}

}  // namespace convoy::cuda
