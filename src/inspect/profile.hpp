// Where a network's time goes, layer by layer, beside the least that the machine allows.
#pragma once

#include <string>
#include <vector>

#include "convoy/network.hpp"
#include "core/machine.hpp"

namespace convoy::inspect {

struct LayerProfile {
  LayerReport report;
  /// The kernel that runs it runs layers [kernel_first, kernel_first + kernel_layers).
  std::size_t kernel_first = 0, kernel_layers = 1;
  /// False where only the kernel's time as a whole is known: it is that of the first of its layers,
  /// whose bytes, operations and floor are those of all of them.
  bool timed = true;
  double seconds = 0;        // on a CPU, that of all threads divided by their number
  double share = 0;          // of all layers' seconds
  double bytes = 0;          // that must cross memory: weights; x, y where no kernel keeps them
  double operations = 0;     // of a direct convolution, 2 a multiply-add, all steps
  double floor_seconds = 0;  // the larger of operations at the peak and bytes at the bandwidth
  std::string why;           // this kernel

  /// seconds / floor; 0 where there is no time.
  double times_floor() const { return floor_seconds > 0 ? seconds / floor_seconds : 0; }
};

struct NetworkProfile {
  /// With its measured peak and bandwidth; a GPU with those that it was built for, its peak that of
  /// the Tensor Cores.
  Machine machine;
  Index images = 0;
  double seconds = 0;  // of all layers
  std::vector<LayerProfile> layers;
  std::vector<LayerSpan> spans;
};

/// Runs the images a few times and keeps the run whose time is the median. `options` are those that
/// the network was made with; images as `Network::run` takes them, at least one. Throws Error as
/// `Network::run` gives statuses.
NetworkProfile profile(const Network& network, const ConstTensorView& images,
                       const NetworkOptions& options);

/// A time line for chrome://tracing and Perfetto: a track of what each kernel took and when, and
/// one of its layers. The layers of one kernel share its time by what its threads spent in each;
/// in which order they ran is not known.
std::string trace_of(const NetworkProfile& profile, const std::string& name);

}  // namespace convoy::inspect
