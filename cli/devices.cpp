// convoy devices: what is here, what is usable and why not.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "convoy/plan.hpp"
#include "plan/kernel_table.hpp"
#include "plan/timing.hpp"

namespace convoy::cli {
namespace {

std::vector<std::string> kernels_of(DeviceKind kind) {
  std::vector<std::string> names;
  for (const Kernel* kernel : kernel_table())
    if (kernel->device() == kind) names.emplace_back(kernel->name());
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& one : names) text += (text.empty() ? "" : ", ") + one;
  return text;
}

constexpr const char* no_gpu = "none: this build of Convoy has no GPU kernels";

void run_devices(bool json, bool no_measure) {
  const Machine machine = cpu_machine();
  const Machine now = no_measure ? machine : measured(machine);
  const Machine one = no_measure ? machine : measured(cpu_machine(1));
  const auto kernels = kernels_of(DeviceKind::cpu);
  if (json) {
    nlohmann::ordered_json cpu = {{"device", "cpu"},
                                  {"name", machine.name},
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
    const nlohmann::ordered_json all = {
        {"convoy", version()}, {"devices", {std::move(cpu)}}, {"gpus", no_gpu}};
    fmt::print("{}\n", all.dump(2));
    return;
  }
  const auto line = [](const char* label, const std::string& value) {
    fmt::print("  {:<19} {}\n", label, value);
  };
  fmt::print("cpu\n");
  line("name", machine.name);
  line("instruction set",
       fmt::format("{}, {} floats a vector", machine.isa, machine.vector_floats));
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
  fmt::print("cuda\n  {}\n", no_gpu);
}

}  // namespace

void add_devices(CLI::App& app, int&) {
  struct Arguments {
    bool json = false, no_measure = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("devices", "Tell what is here, what is usable and why not");
  command->add_flag("--json", arguments->json, "Print JSON");
  command->add_flag("--no-measure", arguments->no_measure,
                    "Leave out the measured peak and copy speed");
  command->footer("Example: convoy devices --json");
  command->callback([arguments] { run_devices(arguments->json, arguments->no_measure); });
}

}  // namespace convoy::cli
