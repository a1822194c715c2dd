// What a kernel is: the interface between the planner and every family, CPU and GPU alike.
//
// A family is one file (src/cpu/direct.cpp, ...) that defines one class derived from `Kernel` and
// one function that returns its only instance. src/plan/kernel_table.cpp lists those functions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/plan.hpp"
#include "convoy/stage.hpp"
#include "core/machine.hpp"
#include "core/threads.hpp"

namespace convoy {

/// How to walk a tensor, in elements. c is 1 for NHWC. t is 0 where the input is held.
struct Strides {
  Index t = 0, n = 0, h = 0, w = 0, c = 1;
};

/// One configuration of a family. Its numbers mean what the family says; the name is what
/// `explain` prints, `--tile` accepts and the tuning cache stores. Tiles never change the bits.
struct Tile {
  std::string name;
  int a = 0, b = 0, c = 0, d = 0;
  bool operator==(const Tile&) const = default;
};

/// What the cost model predicts for one run of the whole stage.
struct Cost {
  double seconds = 0;
  double flops = 0;  // operations done, waste included
  double waste = 0;  // share of them whose result is thrown away (tile and channel padding)
  double bytes = 0;  // moved to and from memory: x, w and y once each, and any spill of blocks
};

/// One run, checked by the plan: pointers are aligned to their element, shapes and types are the
/// stage's, n ≤ stage.n. Dense tensors have no strides here.
struct RunArgs {
  Index n = 0;
  const void* x = nullptr;
  Strides x_stride;
  const float* bias = nullptr;        // [K], null without the rider
  const float* norm_scale = nullptr;  // [C]
  const float* norm_shift = nullptr;  // [C]
  void* y = nullptr;
  Strides y_stride;
  void* pre = nullptr;                 // dense [T,N,P,Q,K]
  void* act = nullptr;                 // dense [T,N,P,Q,K]
  std::int32_t* idx = nullptr;         // shaped and laid out as y, dense
  const float* membrane_in = nullptr;  // dense [N,P,Q,K]; null: zero
  float* membrane_out = nullptr;       // dense [N,P,Q,K]; null: not wanted
  std::byte* workspace = nullptr;      // 64-byte aligned, workspace_bytes()
  Threads* threads = nullptr;          // CPU
  void* stream = nullptr;              // GPU
};

/// A kernel bound to a stage and a tile, with packed weights. Immutable while running.
class Prepared {
 public:
  virtual ~Prepared() = default;
  /// w: contiguous f32 [K,R,S,C/groups] on the host, already flipped if asked for.
  virtual void set_weights(const float* w) = 0;
  virtual std::size_t workspace_bytes() const { return 0; }
  /// No allocation, no exception. Re-entrant as long as workspaces differ.
  virtual Status run(const RunArgs& args) const noexcept = 0;
};

class Kernel {
 public:
  virtual std::string_view name() const = 0;        // file name = kernel name = name in `explain`
  virtual std::string_view arithmetic() const = 0;  // kernels that share it give equal bits
  virtual bool exact() const = 0;  // exact on small integers: allowed in strict mode
  /// False: a NaN or an infinity in x also makes outputs NaN whose filter ends up to three pixels
  /// to its left, or begins next to its right.
  virtual bool contains_non_finite() const { return true; }
  virtual DeviceKind device() const = 0;
  /// Every reason why the kernel can't run this legal stage here; empty: it fits.
  virtual std::vector<std::string> refusals(const Stage& stage, const Machine& machine) const = 0;
  /// Tiles worth considering for a stage that fits, at least one, in a fixed order.
  virtual std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const = 0;
  virtual Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const = 0;
  virtual std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                            const Machine& machine) const = 0;

 protected:
  // Families are statics that nobody deletes. Without a virtual destructor they need none at all,
  // and stay whole for plans that are made while the program ends.
  ~Kernel() = default;
};

}  // namespace convoy
