#include "inspect/kernel_map/banks.hpp"

#include <algorithm>
#include <array>

namespace convoy::inspect {
namespace {

char sign_of(int lane) {
  return static_cast<char>(lane < 10 ? '0' + lane : 'a' + lane - 10);
}

BankPhase phase_of(const std::vector<int>& address, int first, int last, int width) {
  BankPhase phase{std::string(banks, '.'), 0};
  std::array<std::vector<int>, banks> words;
  for (int lane = first; lane < last; ++lane) {
    const int begin = address[static_cast<std::size_t>(lane)];
    if (begin < 0) continue;
    for (int word = begin / bank_bytes; word < (begin + width) / bank_bytes; ++word) {
      const auto bank = static_cast<std::size_t>(word % banks);
      std::vector<int>& of_bank = words[bank];
      if (std::find(of_bank.begin(), of_bank.end(), word) != of_bank.end()) continue;
      of_bank.push_back(word);
      phase.picture[bank] = of_bank.size() > 1 ? '#' : sign_of(lane - first);
      phase.wavefronts = std::max(phase.wavefronts, static_cast<int>(of_bank.size()));
    }
  }
  return phase;
}

/// Whether lanes that differ in `bit` of their number read the same place, or one of them nothing.
bool pairs_agree(const std::vector<int>& address, int first, int last, int bit) {
  for (int lane = first; lane < last; ++lane) {
    const int other = lane ^ bit;
    if (other >= last) continue;
    const int a = address[static_cast<std::size_t>(lane)],
              b = address[static_cast<std::size_t>(other)];
    if (a >= 0 && b >= 0 && a != b) return false;
  }
  return true;
}

}  // namespace

BankUse bank_use(const std::vector<int>& address, int width, bool joins) {
  const int lanes = static_cast<int>(address.size());
  const int together = std::max(1, std::min(lanes, banks * bank_bytes / width));
  BankUse use;
  for (int first = 0, last = 0; first < lanes; first = last) {
    last = std::min(lanes, first + together);
    const int both = std::min(lanes, first + 2 * together);
    if (joins && width > bank_bytes && first % (2 * together) == 0 &&
        (pairs_agree(address, first, both, 1) || pairs_agree(address, first, both, 2)))
      last = both;
    use.phases.push_back(phase_of(address, first, last, width));
    use.wavefronts += use.phases.back().wavefronts;
    use.least += use.phases.back().wavefronts > 0 ? 1 : 0;
  }
  return use;
}

}  // namespace convoy::inspect
