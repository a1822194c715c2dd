// The tuning cache: which kernel and tile were measured to be the fastest, for a stage on a
// machine.
//
// It is a hint and nothing else: a row chooses among tiles whose bits are equal. So a file that is
// missing, cut short, of another version, commit or compiler, or plain wrong is ignored, never an
// error. A row holds for a machine's name, a CPU's model too, the instruction set and the threads.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/chain.hpp"
#include "core/machine.hpp"

namespace convoy {

struct TunedTile {
  std::string kernel, tile;
  double seconds = 0;     // median of the runs that were timed
  bool shipped = false;   // from a table that came with the library
  std::string date = {};  // of the measurement, "2026-11-24T08:30:00Z"; may be empty
  bool operator==(const TunedTile&) const = default;
};

class TuningCache {
 public:
  /// The row for this chain on this machine with its number of threads; null if there is none. A
  /// bf16 chain without one of its own takes that of the same one in f16: it moves the same bytes
  /// and multiplies at the same rate.
  const TunedTile* find(const Machine& machine, const Chain& chain) const;
  void set(const Machine& machine, const Chain& chain, TunedTile row);
  std::size_t size() const { return rows_.size(); }
  /// Rows of `other` replace equal keys here.
  void merge(const TuningCache& other);

  /// Reads JSON text. Anything unexpected, and text of another build of the library, whose tiles
  /// may mean something else, gives an empty cache and says what it was in `warning`.
  static TuningCache parse(std::string_view text, std::string& warning);
  std::string to_json() const;

 private:
  friend const TuningCache& shipped_tuning();
  std::map<std::string, TunedTile> rows_;  // by key(): ordered, so that the file diffs well
};

/// $CONVOY_CACHE/tuning.json, else $XDG_CACHE_HOME/convoy/tuning.json, else ~/.cache/convoy/...;
/// empty where none of the three variables is set.
std::string tuning_cache_path();

/// Reads the file of that path. A missing file, or an empty path, is an empty cache and no warning.
TuningCache load_tuning_cache(const std::string& path, std::string& warning);

/// Texts of the tables that ship with the library (src/plan/tuned), one a known device.
std::vector<std::string_view> shipped_tuning_tables();

/// Their rows.
const TuningCache& shipped_tuning();

/// The shipped rows and over them the user's cache, read again only when the file has changed.
/// Never null. Safe from any thread.
std::shared_ptr<const TuningCache> user_tuning_cache(std::string& warning);

/// Merges `rows` into the file under a lock file: written to a temporary name, flushed to disk and
/// renamed, so that a reader sees the old file or the new one. Waits up to `wait` seconds for
/// others who do the same. Throws Error when that can't be done.
void save_tuning_cache(const std::string& path, const TuningCache& rows, double wait = 10);

}  // namespace convoy
