// The worker that times other libraries (bench/peers.py, bench/peers_gpu.py), spoken to over two
// pipes.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/tensor.hpp"

namespace convoy::bench {

/// The worker and all that it starts are one process group, which ends with this object. A signal
/// that ends our process ends the group too; where that can't be caught, the kernel wakes a group
/// that lost its parent and hangs it up. One of these lives at a time.
class PeerProcess {
 public:
  /// Starts the worker. `python`: an interpreter with torch, onnxruntime and openvino
  /// (scripts/peers makes one), for a GPU with torch and jax. `stopped`: the group is stopped
  /// whenever nothing is asked of it, for idle threads of some libraries spin for a while. Throws
  /// Error when it can't be started.
  PeerProcess(const std::string& python, const std::string& script, DeviceKind device, int threads,
              bool stopped);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  /// Whether it stands still between questions.
  bool stopped() const { return stopped_; }

  // Both throw Error when the worker is gone or answers something else; an answer is at most 64
  // MiB.

  /// Builds the stage in every library: {"peers": [names], "left_out": [{name, why}], "versions"},
  /// "partial": [names] of those that do less than the stage, "apart": [names] of those that can be
  /// timed so, where that is asked for, and "method": how they are timed.
  nlohmann::json prepare(const Stage& stage, bool apart);
  /// Seconds of each run, for about `seconds`; `apart`: with a foreign kernel behind each.
  std::vector<double> time(const std::string& peer, double seconds, bool apart);

 private:
  nlohmann::json ask(const nlohmann::json& request);
  nlohmann::json answer_to(const nlohmann::json& request);
  void stop() const;
  [[noreturn]] void lost() const;
  [[noreturn]] void garbled(std::string_view answer) const;
  std::string script_;
  DeviceKind device_;
  bool stopped_;
  pid_t child_ = -1;  // also the number of its process group
  int to_child_ = -1;
  int from_child_ = -1;
  std::string unread_;
};

}  // namespace convoy::bench
