#include <algorithm>

#include "core/failure.hpp"
#include "cuda/error.hpp"
#include "cuda/memory.hpp"
#include "cuda/sm90/halo_cost.hpp"
#include "cuda/sm90/halo_trace.cuh"
#include "cuda/sm90/launching.hpp"

namespace convoy::cuda::sm90 {
namespace {

constexpr Index most_bytes = Index{2} << 30;  // of the stamps of a run

/// Stamps of the busiest track: a consumer's two a slab, of every tile that its CTA has, and what
/// surrounds them. Producers take two a slot or slab, in turns.
Index stamps_of_track(const HaloLayout& layout, Index tiles) {
  const Index slabs = std::max(layout.slabs_a_tile(), 2 * layout.slots_a_tile()),
              walked = ceil_div(tiles, layout.grid) + 2;
  return walked * (2 * slabs + 5) + 16;
}

bool has_stamps(const Stage& stage, const HaloTile& tile) {
  return stage.dtype == DType::f16 && !stage.act.is_neuron() && halo_steps(stage, tile) == 4 &&
         std::find(traced_accumulators.begin(), traced_accumulators.end(),
                   Accumulator{tile.instruction_n(), tile.instructions()}) !=
             traced_accumulators.end();
}

/// Memory that holds zeros before the stream's next work.
DeviceMemory zeros(int device, std::size_t bytes, cudaStream_t stream) {
  DeviceMemory memory(device, bytes, "time stamps");
  check(cudaMemsetAsync(memory.data(), 0, bytes, stream), "clearing time stamps");
  return memory;
}

/// A launch with stamps, and where they go.
struct Traced {
  TracedHaloParams params;
  int grid;
  DeviceMemory stamps;
};

template <class T>
std::vector<T> fetched(const DeviceMemory& memory) {
  std::vector<T> all(memory.bytes() / sizeof(T));
  check(cudaMemcpy(all.data(), memory.data(), memory.bytes(), cudaMemcpyDeviceToHost),
        "fetching time stamps");
  return all;
}

}  // namespace

std::string why_no_halo_trace(const Stage& stage, const HaloTile& tile, const DeviceFacts& device) {
  if (stage.dtype != DType::f16 || stage.act.is_neuron())
    return "halo is compiled with time stamps for f16 stages without a neuron";
  if (has_stamps(stage, tile)) return {};
  std::string why = "its tile " + tile.name() + " is not compiled with time stamps";
  for (const HaloTile& other : halo_tiles(stage, device))
    if (has_stamps(stage, other)) return why + "; " + other.name() + " is: --tile " + other.name();
  return why + ", nor is another tile of this stage";
}

RunTrace trace_halo(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                    const HaloLaunch& launch, std::span<const NhwcRun, 2> runs,
                    const std::function<void()>& warm_up, const DeviceFacts& device,
                    cudaStream_t stream) {
  const OnDevice on(device.index);
  const std::string name = "traced halo " + tile.name();
  const LoadedKernel<TracedHaloParams> kernel(
      find_traced_halo_f16({tile.instruction_n(), tile.instructions()}, pool_kind(stage, tile)),
      name);
  const auto prepare = [&](const NhwcRun& run) {
    TracedHaloParams params{};
    int grid = 0;
    const std::string why = launch.aim(run, params, grid);
    if (!why.empty()) throw DeviceError(name + ": " + why);
    const Index tracks = halo_tracks.size(), capacity = stamps_of_track(layout, params.tiles),
                bytes = grid * tracks * capacity * Index{sizeof(Stamp)};
    if (bytes > most_bytes)
      throw Error("trace: the time stamps of " + to_text(stage) + " would take " +
                  std::to_string(bytes >> 20) + " MiB, at most " +
                  std::to_string(most_bytes >> 20) + " are kept. Use fewer images.");
    DeviceMemory stamps = zeros(device.index, static_cast<std::size_t>(bytes), stream);
    params.to = {static_cast<Stamp*>(stamps.data()), static_cast<int>(tracks),
                 static_cast<int>(capacity)};
    return Traced{params, grid, std::move(stamps)};
  };
  const Traced traced[] = {prepare(runs[0]), prepare(runs[1])};
  constexpr std::size_t readings = most_sms * sizeof(SmClock);
  const DeviceMemory clocks[] = {zeros(device.index, readings, stream),
                                 zeros(device.index, readings, stream),
                                 zeros(device.index, readings, stream)};
  const auto read = [&](int which) {
    check(read_clocks(static_cast<SmClock*>(clocks[which].data()), device.sms, stream),
          "reading the multiprocessors' clocks");
  };

  warm_up();
  read(0);
  warm_up();
  read(1);
  // Alone on an idle GPU a run begins otherwise than behind another: the one before is traced too.
  for (const Traced& run : traced) {
    const std::string why = sm90::launch(kernel, run.params, run.grid, halo_threads,
                                         layout.shared_bytes, stream, [&] { return name; });
    if (!why.empty()) throw DeviceError(why);
  }
  read(2);
  check(cudaStreamSynchronize(stream), "waiting for " + name + " of " + to_text(stage));

  const auto stamps_of = [](const Traced& run) {
    return LaunchStamps{fetched<Stamp>(run.stamps), run.grid, run.params.to.tracks,
                        run.params.to.capacity};
  };
  const std::vector first = fetched<SmClock>(clocks[0]), second = fetched<SmClock>(clocks[1]),
                    third = fetched<SmClock>(clocks[2]);
  const AlignedClocks untraced(first, second), aligned(second, third);
  RunTrace trace = trace_of(stamps_of(traced[1]), stamps_of(traced[0]), aligned, halo_tracks);
  trace.before_seconds = untraced.seconds();
  trace.before_hertz = untraced.hertz();
  trace.predicted = halo_phases(stage, tile, layout, device);
  return trace;
}

}  // namespace convoy::cuda::sm90
