// What a run of `spike_resident` should take, and the layout that serves n images best.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/costs.hpp"
#include "cuda/sm80/spike_resident_index.hpp"
#include "cuda/sm80/spike_resident_nets.hpp"
#include "cuda/sm80/spike_resident_warpgroup.hpp"

namespace convoy::cuda::sm80 {
namespace {

// Products of the Tensor Cores: all, and those in a row of the busiest warp.
struct Work {
  double all = 0, in_a_row = 0;
  void add(double tasks, double of_a_task, double warps) {
    all += tasks * of_a_task;
    in_a_row += std::ceil(tasks / warps) * of_a_task;
  }
  // So often on each of `teams` teams that all of them do it `times` times; `waits` cycles each.
  double cycles(const ResidentLayout& layout, double times, double teams, double waits) const {
    const ResidentCosts costs;
    const bool known = layout.compiled != 0;
    const double small = layout.tasks == few_tasks ? costs.small_tasks : 1;
    const double product = small * (known ? costs.known_product : costs.product);
    const double row = small * (known ? costs.known_in_a_row : costs.in_a_row);
    return std::max(times * all * product, std::ceil(times / teams) * (waits + in_a_row * row));
  }
};

TaskSizes tasks_of(const ResidentLayout& layout) {
  return layout.compiled != 0 && layout.tasks == many_tasks ? known_many_tasks : layout.tasks;
}

// Of the convolutions of an image.
Work work_of_image(const ResidentLayout& layout) {
  const TaskSizes sizes = tasks_of(layout);
  Work work;
  const double units = 1.0 * layout.image.rows * layout.image.groups * layout.image.units;
  work.in_a_row = ResidentCosts().unit_products * std::ceil(units / (32 * layout.team));
  for (int i = 0; i < layout.convolutions; ++i) {
    const ResidentLayer& l = layout.layers[i];
    const int tiles = i == 0 ? first_tiles(l.items, l.pool) : conv_tiles(l.items, l.pool);
    if (i == 0)
      work.add(std::ceil(1.0 * tiles / sizes.first_tiles) * l.channel_tiles,
               2.0 * sizes.first_tiles * l.phases * l.products, layout.team);
    else
      work.add(std::ceil(1.0 * tiles / sizes.conv_tiles) *
                   std::ceil(1.0 * l.channel_tiles / sizes.columns),
               2.0 * sizes.conv_tiles * sizes.columns * layout.steps * l.products, layout.team);
  }
  return work;
}
// Of the linear layers of so many images.
Work work_of_round(const ResidentLayout& layout, double images) {
  const TaskSizes sizes = tasks_of(layout);
  Work work;
  for (int i = layout.convolutions; i < layout.size; ++i) {
    const ResidentLayer& l = layout.layers[i];
    if (l.mean)
      work.add(std::ceil(images / tile_rows) * l.channel_tiles, 2.0 * l.products, resident_warps);
    else
      work.add(std::ceil(images / tile_rows / sizes.linear_tiles) *
                   std::ceil(1.0 * l.channel_tiles / sizes.columns),
               2.0 * sizes.linear_tiles * sizes.columns * layout.steps * l.products,
               resident_warps);
  }
  return work;
}

}  // namespace

double resident_seconds(const ResidentLayout& layout, Index n, const DeviceFacts& device) {
  const ResidentCosts costs;
  const double images = std::ceil(static_cast<double>(n) / std::max(device.sms, 1));
  const double rounds = std::ceil(images / layout.batch);
  if (layout.warpgroups && layout.tasks == few_tasks)
    return rounds * (costs.few_launch +
                     std::min<double>(images, layout.batch) * costs.few_image / device.clock);
  if (layout.warpgroups) {
    const double of_round = std::ceil(images / rounds);
    const double cycles = std::ceil(of_round / resident_warpgroups) * costs.warpgroup_images +
                          std::ceil(of_round / LinearByWarpgroup::n) * costs.warpgroup_linear;
    return costs.launch + rounds * cycles / device.clock;
  }
  const double far_bytes = layout.linear_at > 0 ? 0 : layout.linear_bytes;
  const double cycles =
      work_of_image(layout).cycles(layout, images, layout.teams(), costs.image) +
      rounds * std::max(work_of_round(layout, std::ceil(images / rounds)).cycles(layout, 1, 1, 0),
                        far_bytes / costs.l2_bytes);
  return costs.launch + cycles / device.clock;
}

const ResidentLayout& best_layout(const std::vector<ResidentLayout>& layouts, Index n,
                                  const DeviceFacts& device) {
  const ResidentLayout* best = &layouts.front();
  double least = std::numeric_limits<double>::infinity();
  for (const ResidentLayout& layout : layouts) {
    if (layout.warpgroups != layouts.back().warpgroups) continue;
    const double seconds = resident_seconds(layout, n, device);
    if (seconds >= least) continue;
    least = seconds;
    best = &layout;
  }
  return *best;
}

}  // namespace convoy::cuda::sm80
