// PyTorch and SpikingJelly as the reference, in a process of their own.
#pragma once

#include <string>

#include "inspect/execute.hpp"
#include "inspect/worker.hpp"

namespace convoy::inspect {

/// Runs operators in python/check_torch.py. Values go through files of float32 in a folder of its
/// own below the system's folder for such files, which ends with this object.
class TorchReference final : public Reference {
 public:
  /// Throws Error when the script can't be started, or finds no PyTorch.
  TorchReference(const std::string& python, const std::string& script, int threads);
  ~TorchReference() override;
  TorchReference(const TorchReference&) = delete;
  TorchReference& operator=(const TorchReference&) = delete;

  std::string name() const override { return name_; }
  Output run(const Operator& op, Index steps, Index n, const ConstTensorView& x) override;

 private:
  /// The answer, without an error in it.
  nlohmann::json ask(const nlohmann::json& request);
  std::string path(const char* file) const { return folder_ + "/" + file; }
  Tensor read(const char* file, const std::vector<Index>& shape) const;

  Worker worker_;
  std::string folder_, name_;
};

}  // namespace convoy::inspect
