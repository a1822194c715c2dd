// convoy devices: what is here, what is usable and why not.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "bench/record.hpp"
#include "commands.hpp"
#include "convoy/plan.hpp"
#include "core/gpu.hpp"
#include "core/json.hpp"
#include "options.hpp"
#include "plan/kernel_table.hpp"
#include "plan/timing.hpp"

namespace convoy::cli {
namespace {

std::vector<std::string> kernels_of(const Machine& machine) {
  std::vector<std::string> names;
  for (const Kernel* kernel : kernel_table())
    if (kernel->device() == machine.device.kind && kernel->facts().compiled_for(machine))
      names.emplace_back(kernel->name());
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& one : names) text += (text.empty() ? "" : ", ") + one;
  return text;
}

std::string capability(const Machine& gpu) {
  return fmt::format("{}.{}", gpu.compute_capability / 10, gpu.compute_capability % 10);
}

/// What keeps kernels of this build from a GPU; empty: nothing does.
std::string limit_of(const Machine& gpu) {
  for (const Kernel* kernel : kernel_table()) {
    const KernelFacts& facts = kernel->facts();
    if (facts.device == DeviceKind::cuda && !facts.compiled_for(gpu))
      return fmt::format("the fast kernels need compute capability {}.{}",
                         facts.compute_capability / 10, facts.compute_capability % 10);
  }
  return {};
}

nlohmann::ordered_json gpus_json(const gpu::Survey& survey) {
  auto gpus = nlohmann::ordered_json::array();
  for (const Machine& gpu : survey.machines) {
    const std::string limit = limit_of(gpu);
    gpus.push_back({{"device", to_text(gpu.device)},
                    {"name", gpu.name},
                    {"compute_capability", capability(gpu)},
                    {"multiprocessors", gpu.multiprocessors},
                    {"shared_memory_bytes", gpu.shared_memory_bytes},
                    {"l2_bytes", gpu.l2_bytes},
                    {"memory_bytes", gpu.memory_bytes},
                    {"memory_bytes_per_second", gpu.memory_bandwidth},
                    {"tensor_flops", gpu.tensor_flops},
                    {"peak_flops", gpu.peak_flops},
                    {"kernels", kernels_of(gpu)},
                    {"limit", limit},
                    {"warning", gpu.warning}});
  }
  return {{"compiled_for", survey.compiled},
          {"driver", survey.driver},
          {"devices", std::move(gpus)},
          {"why_none", survey.why_none}};
}

void print_gpus(const gpu::Survey& survey) {
  const auto line = [](const char* label, const std::string& value) {
    fmt::print("  {:<19} {}\n", label, value);
  };
  for (const Machine& gpu : survey.machines) {
    fmt::print("{}\n", to_text(gpu.device));
    line("name", gpu.name);
    line("compute capability",
         fmt::format("{}, {} multiprocessors", capability(gpu), gpu.multiprocessors));
    line("memory",
         fmt::format(
             "{:.1f} GB at {:.0f} GB/s by its clock, L2 {} KiB, {} KiB shared memory per CTA",
             static_cast<double>(gpu.memory_bytes) * 1e-9, gpu.memory_bandwidth * 1e-9,
             gpu.l2_bytes >> 10, gpu.shared_memory_bytes >> 10));
    line("peak",
         fmt::format("{:.0f} TFLOP/s fp16 on tensor cores, {:.0f} fp32, at the highest clock",
                     gpu.tensor_flops * 1e-12, gpu.peak_flops * 1e-12));
    if (!gpu.warning.empty()) line("warning", gpu.warning + ".");
    const std::string limit = limit_of(gpu);
    line("kernels", joined(kernels_of(gpu)) + (limit.empty() ? "" : "; " + limit));
  }
  if (survey.machines.empty()) fmt::print("cuda\n  not usable: {}.\n", survey.why_none);
  if (!survey.driver.empty()) line("driver", "serves CUDA " + survey.driver);
  if (!survey.compiled.empty()) line("compiled for", survey.compiled);
}

void run_devices(bool json, bool no_measure) {
  const Machine machine = cpu_machine();
  const Machine now = no_measure ? machine : measured(machine);
  const Machine one = no_measure ? machine : measured(cpu_machine(1));
  const auto kernels = kernels_of(machine);
  if (json) {
    nlohmann::ordered_json cpu = {{"device", "cpu"},
                                  {"name", machine.name},
                                  {"cpu_model", machine.cpu_model},
                                  {"isa", machine.isa},
                                  {"vector_floats", machine.vector_floats},
                                  {"usable_cores", usable_cores()},
                                  {"threads", machine.threads},
                                  {"l1_bytes", machine.l1_bytes},
                                  {"l2_bytes", machine.l2_bytes},
                                  {"l3_bytes", machine.l3_bytes},
                                  {"kernels", kernels}};
    if (!no_measure) {
      cpu["peak_flops"] = now.peak_flops;
      cpu["peak_flops_of_one_thread"] = one.peak_flops;
      cpu["copy_bytes_per_second"] = now.memory_bandwidth;
    }
    const nlohmann::ordered_json all = {{"convoy", version()},
                                        {"devices", {std::move(cpu)}},
                                        {"gpus", gpus_json(gpu::survey())},
                                        {"record", bench::record_of(machine)}};
    fmt::print("{}\n", json_text(all, 2));
    return;
  }
  const auto line = [](const char* label, const std::string& value) {
    fmt::print("  {:<19} {}\n", label, value);
  };
  fmt::print("cpu\n");
  line("name", machine.name);
  line("instruction set",
       fmt::format("{}, {} floats per vector", machine.isa, machine.vector_floats));
  line("cores", fmt::format("{} usable, {} threads by default", usable_cores(), machine.threads));
  line("caches", fmt::format("L1 {} KiB, L2 {} KiB, L3 {} KiB", machine.l1_bytes >> 10,
                             machine.l2_bytes >> 10, machine.l3_bytes >> 10));
  if (!no_measure) {
    line("FMA peak, fp32",
         fmt::format("{:.1f} GFLOP/s with {} threads, {:.1f} with one (measured just now)",
                     now.peak_flops * 1e-9, machine.threads, one.peak_flops * 1e-9));
    line("copy", fmt::format("{:.1f} GB/s, reads and writes counted (measured just now)",
                             now.memory_bandwidth * 1e-9));
  }
  line("kernels", joined(kernels));
  print_gpus(gpu::survey());
}

}  // namespace

void add_devices(Command& app, int&) {
  struct Arguments {
    bool json = false, no_measure = false;
  };
  auto arguments = std::make_shared<Arguments>();
  Command* command = app.add_subcommand(
      "devices", "List the CPU and the GPUs, their kernels, and why a GPU is not usable");
  add_json(*command, arguments->json);
  command->add_flag("--no-measure", arguments->no_measure,
                    "Do not measure the peak and the copy speed of the CPU");
  command->footer("Example: convoy devices --json");
  command->callback([arguments] { run_devices(arguments->json, arguments->no_measure); });
}

}  // namespace convoy::cli
