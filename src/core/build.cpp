#include "core/build.hpp"

#include <fmt/core.h>

#include "commit.hpp"
#include "core/process.hpp"

namespace convoy {

std::string Build::text() const {
  return fmt::format("{}{}, {}", commit.empty() ? "unknown commit" : commit,
                     dirty ? " (dirty)" : "", compiler);
}

const Build& build() {
  static constinit Immortal<Build> the_build;
  return the_build.get([] {
    return Build{CONVOY_COMMIT, CONVOY_DIRTY, CONVOY_COMPILER, CONVOY_CUDA_COMPILER, CONVOY_FLAGS};
  });
}

}  // namespace convoy
