// The page's parts, a file each: empty where there is nothing to show.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/explain.hpp"
#include "report/html.hpp"
#include "report/results.hpp"

namespace convoy::report {

/// What one machine makes of a stage that the page is asked about.
struct StageView {
  std::string stage;  // its text
  std::string where;  // "this CPU, AMD EPYC, avx512, 2 threads"
  Explanation explanation;
};

/// A stage's map, shared memory and pipeline, of the kernel that runs it: f16 and bf16 stages on an
/// H200, which need not be here, others on this CPU.
struct MappedStage {
  std::string stage;
  Html html;   // empty: its kernel has no map
  Html slots;  // what a slot holds; empty: there are none
};
std::vector<MappedStage> map_stages(const std::vector<Stage>& stages);

/// Views of the stages on this CPU and, in a build with GPU kernels, on this machine's GPU or else
/// on an H200, whose facts are stored. A stage that nothing runs there has no view; `why_not` gets
/// a sentence for each.
std::vector<StageView> view_stages(const std::vector<Stage>& stages,
                                   std::vector<std::string>& why_not);
/// Whether this build has GPU kernels and their cost models.
bool has_gpu_kernels();

/// How far from the roofline, who is faster and by how much, what a slot holds.
Html minute_section(const Results& results, const std::vector<MappedStage>& mapped);
Html roofline_section(const Results& results);
Html ratios_section(const Results& results);
/// The time and speed over channels, over batches of the same pixels, and what a launch costs.
Html sweeps_section(const Results& results);
Html ladder_section(const Results& results);
Html stages_section(const std::vector<StageView>& views, const std::vector<MappedStage>& mapped,
                    const Results& results, const std::vector<std::string>& why_not);
Html model_section(const Results& results);
Html refusals_section(const Results& results, const std::vector<StageView>& views);
/// Spiking networks, two stages in one launch, builds against builds.
Html others_section(const Results& results);
/// What was read, by what it was measured, and what was skipped.
Html files_section(const Results& results);

// What several sections say alike: raw text, with words of result files in it.

/// "f16" and so on of a stage's or a chain's text; f32 where it says nothing.
std::string_view dtype_in(std::string_view stage);
/// A list's name without mode and threads: "targets-cpu-default-2t" is "targets-cpu".
std::string list_of(const ResultsFile& file);
/// A title for people: "Target stages", or the name itself.
std::string list_title(std::string_view list);
/// "2 threads, strict mode"; empty for a GPU in default mode.
std::string how_run(const ResultsFile& file, bool gpu);
/// "Target stages, 2 threads, strict mode"
std::string title_and_how(const ResultsFile& file, bool gpu);
/// Measured with --kernel: says nothing of what is chosen.
bool by_forced_kernel(const ResultsFile& file);
/// "cudnn", of "cudnn without pool"; how people write it; its colour in plots.
std::string_view library_of(std::string_view peer);
std::string library_title(std::string_view library);
std::string library_color(std::string_view library);
/// The kernel and its tile; once where both have one name.
std::string kernel_and_tile(const BenchRow& row);

}  // namespace convoy::report
