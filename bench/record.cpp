#include "bench/record.hpp"

#include <fstream>
#include <string>

#include "convoy/plan.hpp"
#include "core/build.hpp"
#include "core/date.hpp"
#include "core/printable.hpp"

namespace convoy::bench {
namespace {

// "580.159.04"; empty where the driver's module does not say.
std::string driver_release() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string line;
  std::getline(file, line);
  return printable(line, 40);
}

}  // namespace

nlohmann::json record_of(const Machine& machine) {
  const Build& by = build();
  nlohmann::json record{
      {"convoy", version()},     {"commit", by.commit}, {"dirty", by.dirty},
      {"compiler", by.compiler}, {"flags", by.flags},   {"date", utc_now()},
      {"machine", machine.name}, {"isa", machine.isa},  {"threads", machine.threads}};
  if (machine.device.kind == DeviceKind::cpu) {
    record["cpu_model"] = machine.cpu_model;
    // What the cost models know of it beside its class of cores.
    record["cpu"] = {{"halves", machine.halves},
                     {"mesh", machine.mesh},
                     {"l1_bytes", machine.l1_bytes},
                     {"l2_bytes", machine.l2_bytes},
                     {"l3_bytes", machine.l3_bytes}};
    return record;
  }
  const Machine host = cpu_machine();
  record["cuda_compiler"] = by.cuda_compiler;
  record["driver"] = machine.driver;
  if (const std::string release = driver_release(); !release.empty())
    record["driver_release"] = release;
  record["host"] = {{"machine", host.name}, {"cpu_model", host.cpu_model}, {"isa", host.isa}};
  return record;
}

}  // namespace convoy::bench
