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

class PeerProcess {
 public:
  /// Starts the worker. `python`: an interpreter with torch, onnxruntime and openvino
  /// (scripts/peers makes one), for a GPU with torch and jax. Throws Error when it can't be
  /// started.
  PeerProcess(const std::string& python, const std::string& script, DeviceKind device, int threads);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Both throw Error when the worker is gone or answers something else; an answer is at most 64
  // MiB.

  /// Builds the stage in every library: {"peers": [names], "left_out": [{name, why}], "versions"},
  /// and "partial": [names] of those that do less than the stage.
  nlohmann::json prepare(const Stage& stage);
  /// Seconds of each run, for about `seconds`.
  std::vector<double> time(const std::string& peer, double seconds);

 private:
  nlohmann::json ask(const nlohmann::json& request);
  [[noreturn]] void lost() const;
  [[noreturn]] void garbled(std::string_view answer) const;
  std::string script_;
  DeviceKind device_;
  pid_t child_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
  std::string unread_;
};

}  // namespace convoy::bench
