#include "core/machine.hpp"

#include <fmt/core.h>
#include <hwy/highway.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "convoy/error.hpp"
#include "core/process.hpp"
#include "core/threads.hpp"

namespace convoy {
namespace {

struct Isa {
  std::string_view name;
  std::int64_t target;  // 0: not on this processor
  int vector_floats, vector_registers;
};
#if HWY_ARCH_X86
constexpr std::int64_t avx512 = HWY_AVX3, avx2 = HWY_AVX2, neon = 0;
#elif HWY_ARCH_ARM
constexpr std::int64_t avx512 = 0, avx2 = 0, neon = HWY_NEON;
#else
constexpr std::int64_t avx512 = 0, avx2 = 0, neon = 0;
#endif
// Best first: what kernels are compiled for (HWY_DISABLED_TARGETS leaves out the rest).
constexpr Isa isas[] = {
    {"avx512", avx512, 16, 32},
    {"avx2", avx2, 8, 16},
    {"neon", neon, 4, 32},
    // Highway compiles one of the two, by what the compiler can do.
    {"scalar", HWY_EMU128 | HWY_SCALAR, (HWY_TARGETS & HWY_EMU128) ? 4 : 1, 16},
};

const Isa* find_isa(std::string_view name) {
  const Isa* const found =
      std::find_if(std::begin(isas), std::end(isas), [&](const Isa& i) { return i.name == name; });
  return found == std::end(isas) ? nullptr : found;
}

std::string isa_names(bool of_this_processor) {
  std::string names;
  for (const Isa& isa : isas) {
    if (of_this_processor && isa.target == 0) continue;
    names += names.empty() ? "" : ", ";
    names += isa.name;
  }
  return names;
}

// CONVOY_ISA keeps run-time dispatch from going above an instruction set: it lets one machine test
// what another runs.
void limit_isa() {
  const char* text = std::getenv("CONVOY_ISA");
  if (!text || !*text) return;
  const Isa* const isa = find_isa(text);
  if (!isa || isa->target == 0)
    throw Error(
        fmt::format("CONVOY_ISA={}: expected one of {}. Unset it to use the best available.",
                    std::string_view(text).substr(0, 32), isa_names(true)));
  if ((hwy::SupportedTargets() & HWY_TARGETS & isa->target) == 0)
    throw Error(fmt::format(
        "CONVOY_ISA={}: this CPU or this build has no {}. Unset it to use the best available.",
        text, text));
  // Highway's bits are ordered: a lower bit is a better target.
  // Not DisableTargets: in Highway 1.0.3 the next question after the targets undoes it.
  hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~((isa->target & -isa->target) - 1));
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// What /proc/cpuinfo says of the first core, empty where it says nothing.
std::string cpu_fact(std::string_view name) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(name, 0) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (begin == std::string::npos) continue;
    return line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  }
  return {};
}

enum class Vendor { amd, intel, other };
// As /proc/cpuinfo numbers them.
struct Model {
  Vendor vendor = Vendor::other;
  unsigned family = 0, model = 0, stepping = 0;
};

Model read_model() {
  Model model;
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(0, &eax, &ebx, &ecx, &edx)) return model;
  if (ebx == signature_AMD_ebx) model.vendor = Vendor::amd;
  if (ebx == signature_INTEL_ebx) model.vendor = Vendor::intel;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return model;
  model.family = (eax >> 8) & 15;
  model.model = (eax >> 4) & 15;
  model.stepping = eax & 15;
  if (model.family == 6 || model.family == 15) model.model += (eax >> 12) & 0xf0;
  if (model.family == 15) model.family += (eax >> 20) & 255;
#endif
  return model;
}

// Family, model and stepping; of an Arm core implementer, part, variant and revision.
std::string cpu_model() {
#if defined(__x86_64__)
  const Model model = read_model();
  if (model.family == 0) return "unknown";
  return fmt::format("{}-{}-{}", model.family, model.model, model.stepping);
#else
  std::string text;
  for (const char* name : {"CPU implementer", "CPU part", "CPU variant", "CPU revision"}) {
    const std::string fact = cpu_fact(name);
    if (!fact.empty()) text += (text.empty() ? "" : "-") + fact;
  }
  return text.empty() ? "unknown" : text;
#endif
}

std::string cpu_name() {
  if (std::string name = cpu_fact("model name"); !name.empty()) return name;
#if defined(__aarch64__)
  return "64-bit ARM CPU";
#elif defined(__x86_64__)
  return "x86-64 CPU";
#else
  return "CPU";
#endif
}

// Zen 4 executes a 512-bit FMA as two halves: its peak is AVX2's.
bool splits_avx512(const Model& model) {
  return model.vendor == Vendor::amd && model.family <= 0x19;
}

// AMD's L3 belongs to at most eight neighbouring cores, that of Intel's desktops to a ring; Intel's
// servers since Skylake spread theirs over a mesh. Of other processors its size tells.
bool has_mesh(const Model& model, std::size_t l3_bytes) {
  if (model.vendor == Vendor::amd) return false;
  if (model.vendor == Vendor::intel && model.family == 6) {
    constexpr unsigned servers[] = {
        0x55,        // Skylake, Cascade Lake, Cooper Lake
        0x6a, 0x6c,  // Ice Lake
        0x8f, 0xcf,  // Sapphire Rapids, Emerald Rapids
        0xad, 0xae,  // Granite Rapids
        0xaf         // Sierra Forest
    };
    if (std::find(std::begin(servers), std::end(servers), model.model) != std::end(servers))
      return true;
  }
  return l3_bytes > std::size_t{96} << 20;
}

// "1024K" or "32M" as sysfs writes it.
std::size_t parse_bytes(const std::string& text) {
  std::size_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return 0;
  if (stop != text.data() + text.size()) {
    if (*stop == 'K') value <<= 10;
    if (*stop == 'M') value <<= 20;
  }
  return value;
}

struct Caches {
  std::size_t l1 = 0, l2 = 0, l3 = 0;
};

// Containers may hide sysfs, and cpuid has no answer on every vendor: each level that neither
// names keeps a size that nearly every core of the last ten years has.
Caches read_caches() {
  Caches caches;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const std::string type = read_line(folder + "type");
    if (type.empty()) break;
    if (type == "Instruction") continue;
    const std::size_t size = parse_bytes(read_line(folder + "size"));
    const std::string level = read_line(folder + "level");
    if (level == "1") caches.l1 = size;
    if (level == "2") caches.l2 = size;
    if (level == "3") caches.l3 = size;
  }
#if defined(__x86_64__)
  // Leaf 4 is Intel's, 0x8000001D AMD's; both enumerate caches in the same format.
  for (const unsigned leaf : {4U, 0x8000001DU}) {
    for (unsigned index = 0; index < 8; ++index) {
      unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
      if (!__get_cpuid_count(leaf, index, &eax, &ebx, &ecx, &edx)) break;
      const unsigned type = eax & 31;
      if (type == 0) break;
      if (type == 2) continue;
      const std::size_t size = static_cast<std::size_t>((ebx >> 22) + 1) *
                               (((ebx >> 12) & 1023) + 1) * ((ebx & 4095) + 1) * (ecx + 1UL);
      const unsigned level = (eax >> 5) & 7;
      if (level == 1 && !caches.l1) caches.l1 = size;
      if (level == 2 && !caches.l2) caches.l2 = size;
      if (level == 3 && !caches.l3) caches.l3 = size;
    }
  }
#endif
  if (!caches.l1) caches.l1 = 32 << 10;
  if (!caches.l2) caches.l2 = 512 << 10;
  if (!caches.l3) caches.l3 = 8 << 20;
  return caches;
}

// One that Linux can't have: the kernel refuses a mask that is too short for its cores.
constexpr std::size_t most_cores = 1 << 16;
using Mask = std::array<std::uint64_t, most_cores / 64>;

bool mask_of(::pid_t process, std::size_t bytes, void* mask) noexcept {
  return ::sched_getaffinity(process, bytes, static_cast<cpu_set_t*>(mask)) == 0;
}

Machine read_facts() {
  limit_isa();
  Machine machine;
  machine.name = cpu_name();
  machine.cpu_model = cpu_model();
  const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  const Isa* chosen = std::end(isas) - 1;
  for (const Isa& isa : isas) {
    if (targets & isa.target) {
      chosen = &isa;
      break;
    }
  }
  set_isa(machine, chosen->name);
  const Caches caches = read_caches();
  machine.l1_bytes = caches.l1;
  machine.l2_bytes = caches.l2;
  machine.l3_bytes = caches.l3;
  const Model model = read_model();
  machine.halves = machine.isa == "avx512" && splits_avx512(model);
  machine.mesh = has_mesh(model, machine.l3_bytes);
  return machine;
}

}  // namespace

const Machine& cpu_facts() {
  static constinit Immortal<Machine> facts;
  return facts.get(read_facts);
}

void set_isa(Machine& machine, std::string_view name) {
  const Isa* const isa = find_isa(name);
  if (!isa)
    throw Error(fmt::format("instruction set \"{}\": expected one of {}", name, isa_names(false)));
  machine.isa = isa->name;
  machine.vector_floats = isa->vector_floats;
  machine.vector_registers = isa->vector_registers;
}

int cores_in_mask(bool (*ask)(std::size_t bytes, void* mask)) noexcept {
  Mask mask{};
  int cores = 0;
  if (ask(sizeof mask, mask.data()))
    for (const std::uint64_t word : mask) cores += std::popcount(word);
  return std::max(1, cores);
}

int cores_of_process() noexcept {
  return cores_in_mask(
      [](std::size_t bytes, void* mask) { return mask_of(::getpid(), bytes, mask); });
}

void use_cores_of_process() noexcept {
  Mask mask{};
  if (mask_of(::getpid(), sizeof mask, mask.data()))
    static_cast<void>(
        ::sched_setaffinity(0, sizeof mask, reinterpret_cast<const cpu_set_t*>(mask.data())));
}

int quota_cores(const std::string& membership, const std::string& mounted) {
  std::istringstream lines(membership);
  double least = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",cpu,") == std::string::npos) continue;
    // A quota of any group above holds too. A container sees its own group as the root, whatever
    // path is named here.
    for (std::string path = line.substr(second + 1);;) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      double quota = 0, period = 0;
      if (unified) {
        std::istringstream text(read_line(mounted + path + "/cpu.max"));
        if (!(text >> quota >> period)) quota = 0;
      } else {
        const std::string folder = mounted + "/cpu" + path;
        std::istringstream quota_text(read_line(folder + "/cpu.cfs_quota_us"));
        std::istringstream period_text(read_line(folder + "/cpu.cfs_period_us"));
        if (!(quota_text >> quota && period_text >> period)) quota = 0;
      }
      if (quota > 0 && period > 0)
        least = least > 0 ? std::min(least, quota / period) : quota / period;
      if (path.empty()) break;
      const std::size_t slash = path.rfind('/');
      path.resize(slash == std::string::npos ? 0 : slash);
    }
  }
  return least > 0 ? std::max(1, static_cast<int>(least + 0.5)) : 0;
}

int usable_cores() {
  const int cores =
      cores_in_mask([](std::size_t bytes, void* mask) { return mask_of(0, bytes, mask); });
  std::ifstream file("/proc/self/cgroup");
  std::ostringstream membership;
  membership << file.rdbuf();
  const int quota = quota_cores(membership.str(), "/sys/fs/cgroup");
  return quota > 0 ? std::min(cores, quota) : cores;
}

}  // namespace convoy
