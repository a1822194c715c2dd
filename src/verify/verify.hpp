// The driver of `convoy verify` and of the parity tests: stages in, failures and coverage out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verify/coverage.hpp"
#include "verify/fields.hpp"
#include "verify/parity.hpp"

namespace convoy::verify {

struct VerifyOptions {
  Device device{};
  std::vector<OwnedChain> stages;  // given ones, each a chain, most often of one stage, and
  Index random = 0;                // so many drawn ones, every tenth a chain of several; these must
                                   // fill the coverage table
  Index fill = 5;                  // draw more until each cell of the table has so many; 0: no more
  bool non_finite = false;  // put NaN, infinities and 1e37 into the given chains of one stage
  std::uint64_t seed = 1;
  std::string kernel, tile;  // only these; empty: every one that fits
  std::function<void(Index done, Index all, Index failures)> progress;  // may be empty
};

struct Failure {
  OwnedChain chain;
  std::string kernel, tile, what;
  std::string repro;  // a command that shows it
};

struct Report {
  Index stages = 0;  // chains of one stage, and
  Index chains = 0;  // of several, or of spikes
  Index checks = 0;  // one of them by one kernel with one tile
  Tally tally;
  std::vector<Failure> failures;
  std::vector<std::string> large;  // runs too large for the oracle (large.hpp), a line each
  Coverage coverage;
  FieldPairs fields;  // of the former
  Index least = 0;  // counts that each cell of the table and pair of fields must reach; 0: none was
                    // asked for
  double seconds = 0;
  std::vector<Cell> gaps() const;
  /// Pairs of fields that stages can have together and that were met too rarely.
  std::vector<std::string> field_gaps() const;
  bool passed() const { return failures.empty() && gaps().empty() && field_gaps().empty(); }
};

/// Throws Error when a stage, kernel or tile does not exist or does not fit, and when nothing is
/// left to check.
Report verify(const VerifyOptions& options);

}  // namespace convoy::verify
