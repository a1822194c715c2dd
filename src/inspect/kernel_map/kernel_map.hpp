// What a kernel does with a stage, element by element, by the functions that the kernel itself is
// made of: which thread's register holds an output, where a product's operand lies in shared memory
// and who brought it there, what a thread does in a step. Needs no GPU.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/machine.hpp"
#include "inspect/kernel_map/index.hpp"
#include "inspect/kernel_map/pipeline.hpp"
#include "inspect/kernel_map/shared_memory_map.hpp"

namespace convoy::inspect {

/// A figure of the launch, for a person and for a program.
struct MapFact {
  std::string name, value, note;
};

/// A CTA's tile of the output.
struct TilePlace {
  Index x = 0, y = 0;  // which tile along gemm_m and along gemm_n
  Index cta = 0;       // blockIdx.x of the CTA that has it, in the order of starting
  Index turn = 0;      // how many tiles that CTA takes before
  Index t = 0;         // of a neuron whose steps have inputs of their own: the time step
  bool operator==(const TilePlace&) const = default;
};

/// The register that holds an output's sum.
struct Accumulator {
  TilePlace tile;
  int thread = 0, warp = 0, lane = 0;
  int number = 0;           // of the thread's accumulators
  std::string name;         // as the kernel's source says it: "sums[1][3][2]"
  int row = 0, column = 0;  // pixel and filter of the CTA's tile
  std::string stored;       // how it leaves
};

/// Where a product's element of x lies when it is multiplied.
struct OperandPlace {
  Index step = 0;       // of the tile's main loop
  int slot = 0;         // of the ring; -1: kernels without one, which multiply what a thread loaded
  int in_slot = 0;      // bytes from the slot's begin
  Index in_shared = 0;  // bytes from the begin of the CTA's (aligned) shared memory
  std::string brought;  // by whom
  std::string read;     // and how
  // Without a slot: of which thread it is the register of this number in this step.
  int thread = -1, number = 0;
  std::string name;  // "x[3].v[1]"
};

/// What a thread does in a step, line by line: rows of a table with a heading.
struct ThreadStep {
  std::string role;
  std::vector<std::string> heading;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> notes;
};

/// One of the products that a Winograd tile takes.
struct WinogradProduct {
  int xi = 0, i = 0, j = 0;  // i, j: its place among n x n
  double of_output = 0;      // its factor in the output that was asked for
  double of_input = 0;       // the factor of the element of x that was asked for in its V
  double of_weight = 0;      // that of the weight which the element is multiplied by in its U
  Index filter = 0;          // of U
  Index v = 0, m = 0;        // floats from the begin of its group's V, of its block's M
};
struct WinogradPlace {
  Index tile = 0, row = 0, column = 0;  // its first output pixel
  int i = 0, j = 0;                     // of the output in the tile, or of the input in its patch
  // On the CPU: its block, the group in it, its place there; the panel of filters.
  Index block = 0, group = 0, in_group = 0, panel = 0, in_panel = 0;
  std::vector<MapFact> passes;  // on a GPU, instead: who makes it, and its products
  std::vector<WinogradProduct> products;
};

class KernelMap {
 public:
  virtual ~KernelMap() = default;

  const Stage& stage() const { return stage_; }
  const std::string& kernel() const { return kernel_; }
  const std::string& tile() const { return tile_; }
  const std::string& machine() const { return machine_; }

  /// Sizes, grid, steps, slots.
  virtual std::vector<MapFact> facts() const = 0;
  /// The type of y.
  virtual DType output_type() const { return stage_.output_dtype(); }
  /// The order in which tiles of the output are taken, and of the first ones.
  virtual std::vector<TilePlace> first_tiles(int count) const = 0;
  virtual std::string order() const = 0;

  // All throw Error for what the stage, or the launch, does not have, and where the kernel has
  // nothing of the kind.
  virtual Accumulator accumulator(const OutputIndex& output) const;
  /// The way back; none: the register holds nothing of y.
  virtual std::optional<OutputIndex> output_of(const TilePlace& tile, int thread, int number) const;
  virtual OperandPlace operand(const OutputIndex& output, const TapIndex& tap) const;
  /// What lies at a byte of a slot's pixels in a step of a tile; its `inside` is false where zeros
  /// lie. By what brings it there, not by what reads it.
  virtual InputElement in_slot(const TilePlace& tile, Index step, int byte) const;
  /// Of kernels without slots: what a thread loads into a register in a step.
  virtual InputElement loaded(const TilePlace& tile, int thread, Index step, int number) const;
  /// The tile at (x, y), or with y < 0 of CTA x.
  virtual TilePlace tile_at(Index x, Index y) const;
  /// The same tile in time step t of a neuron whose steps have inputs of their own.
  virtual TilePlace in_step(const TilePlace& tile, Index t) const;
  virtual ThreadStep thread_step(const TilePlace& tile, int thread, Index step) const;
  virtual SharedMemoryMap shared_memory() const;
  virtual Pipeline pipeline() const;
  /// Of Winograd alone; none elsewhere. `tap`: of which the element of x is asked for, if any.
  virtual std::optional<WinogradPlace> winograd(const OutputIndex& output,
                                                const TapIndex* tap) const;

 protected:
  KernelMap(const Stage& stage, std::string kernel, std::string tile, std::string machine)
      : stage_(stage),
        kernel_(std::move(kernel)),
        tile_(std::move(tile)),
        machine_(std::move(machine)) {}
  [[noreturn]] void lacks(const std::string& what) const;

 private:
  Stage stage_;
  std::string kernel_, tile_, machine_;
};

struct MapRequest {
  Stage stage;
  std::string device = "cpu";  // cpu, cuda:<n>, or a GPU's short name (cuda/known_gpus.hpp)
  std::string kernel, tile;    // empty: what the planner, or the family, would take
  int threads = 0;
};
/// The map of the kernel that runs a stage. Throws Error where that kernel has none, or refuses the
/// stage.
std::unique_ptr<KernelMap> make_kernel_map(const MapRequest& request);
/// Whether a kernel of a GPU has one.
bool is_mapped_on_gpu(const std::string& kernel);
/// "winograd4, ..." that have one.
std::string mapped_kernels();

/// Throws Error with all of a kernel's refusals where there are any.
void expect_served(const char* kernel, const Stage& stage,
                   const std::vector<std::string>& refusals);

/// What an implicit GEMM's tiles are: its rows, a tile, the grid.
std::vector<MapFact> implicit_gemm_facts(Index rows, bool pooled, int tile_m, int tile_n,
                                         Index m_tiles, Index n_tiles);

// The families.
std::unique_ptr<KernelMap> map_window(const Stage& stage, const Machine& machine,
                                      const std::string& tile);
std::unique_ptr<KernelMap> map_halo(const Stage& stage, const Machine& machine,
                                    const std::string& tile);
/// Of a stage whose f32 sums a pass takes on: "halo_neuron_pass" has it inside.
std::unique_ptr<KernelMap> map_halo_sums(const Stage& stage, const Machine& machine,
                                         const std::string& tile);
std::unique_ptr<KernelMap> map_fma(const Stage& stage, const Machine& machine,
                                   const std::string& tile);
std::unique_ptr<KernelMap> map_depthwise(const Stage& stage, const Machine& machine,
                                         const std::string& tile);
std::unique_ptr<KernelMap> map_few(const Stage& stage, const Machine& machine,
                                   const std::string& tile);
std::unique_ptr<KernelMap> map_few_filters(const Stage& stage, const Machine& machine,
                                           const std::string& tile);
std::unique_ptr<KernelMap> map_winograd(const Stage& stage, const Machine& machine,
                                        const std::string& kernel, const std::string& tile);
/// The GPU's winograd4; `tile`: megabytes of a chunk, as "256MB".
std::unique_ptr<KernelMap> map_winograd_gpu(const Stage& stage, const Machine& machine,
                                            const std::string& tile);
/// A kernel that runs another one between passes: "halo_pool". Null for another name.
std::unique_ptr<KernelMap> map_wrapped(const std::string& kernel, const Stage& stage,
                                       const Machine& machine, const std::string& tile);
/// By the first of these that serves the stage; null: none does.
std::unique_ptr<KernelMap> map_by_any_wrapper(const Stage& stage, const Machine& machine);
std::string wrapped_kernels();
/// Any of a GPU's; null for one without a map.
std::unique_ptr<KernelMap> map_gpu_kernel(const std::string& kernel, const Stage& stage,
                                          const Machine& machine, const std::string& tile);
/// Kernels of others, by what is known of them: "cutlass_multistage", "cudnn_volta". Null for
/// another name.
std::unique_ptr<KernelMap> map_published(const Stage& stage, const std::string& kernel);

}  // namespace convoy::inspect
