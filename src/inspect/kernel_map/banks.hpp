// Shared memory's 32 banks of 4 bytes: how many wavefronts a warp's access takes, and what it would
// take at least.
//
// A wavefront moves at most 128 bytes, a word of each bank. Lanes that access 16 bytes go in four
// phases of eight lanes, those that access 8 bytes in two of sixteen, ldmatrix and stmatrix in one
// a block of eight rows. Within a phase, different words of one bank take a wavefront each; one
// word that several lanes read is read once. Of LDS, two phases of one half of the warp (of lanes
// of 8 bytes, of the whole warp) are one where in each, lanes i and i ^ 1, or lanes i and i ^ 2,
// read the same place: nobody documents it, and ncu counts it so to the last wavefront
// (docs/learn/banks.md).
#pragma once

#include <string>
#include <vector>

namespace convoy::inspect {

constexpr int banks = 32, bank_bytes = 4;

/// One phase: lanes that go together, in a line of 32 characters, a bank each: the lane's number in
/// the phase (0-9, a-v), '.' for none, '#' where different words collide.
struct BankPhase {
  std::string picture;
  int wavefronts = 0;  // the most words of a bank
};
/// A warp's access as it lies.
struct BankUse {
  std::vector<BankPhase> phases;
  int wavefronts = 0;  // of all phases
  int least = 0;       // phases that access anything: without conflicts
  int conflicts() const { return wavefronts - least; }
};

/// `address`: of each lane, bytes from any multiple of 128; -1: the lane accesses nothing. `width`:
/// bytes of each, 4, 8 or 16. `joins`: phases may be joined, as LDS does.
BankUse bank_use(const std::vector<int>& address, int width, bool joins = false);

}  // namespace convoy::inspect
