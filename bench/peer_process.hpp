// The worker that times other libraries (bench/peers.py, bench/peers_gpu.py), spoken to over two
// pipes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/tensor.hpp"
#include "inspect/worker.hpp"

namespace convoy::bench {

/// The worker that times other libraries in turns with ours.
class PeerProcess {
 public:
  /// Starts the worker. `python`: an interpreter with torch, onnxruntime and openvino
  /// (scripts/peers makes one), for a GPU with torch and jax. `stopped`: the group is stopped
  /// whenever nothing is asked of it, for idle threads of some libraries spin for a while. Throws
  /// Error when it can't be started.
  PeerProcess(const std::string& python, const std::string& script, DeviceKind device, int threads,
              bool stopped);

  /// Whether it stands still between questions.
  bool stopped() const { return worker_.command().stopped; }

  // Both throw Error when the worker is gone or answers something else; an answer is at most 64
  // MiB.

  /// Builds the stage in every library: {"peers": [names], "left_out": [{name, why}], "versions"},
  /// "partial": [names] of those that do less than the stage, "apart": [names] of those that can be
  /// timed so, where that is asked for, and "method": how they are timed.
  nlohmann::json prepare(const Stage& stage, bool apart);
  /// Seconds of each run, for about `seconds`; `apart`: with a foreign kernel behind each.
  std::vector<double> time(const std::string& peer, double seconds, bool apart);

 private:
  DeviceKind device_;
  inspect::Worker worker_;
};

}  // namespace convoy::bench
