// Copies on a GPU in a build without any.
#include "core/gpu_rows.hpp"

namespace convoy::gpu {

Status copy_rows(Device, const Rows&, void*) noexcept {
  return {StatusCode::internal_error, "copying on a GPU: this build of Convoy has no GPU code."};
}

}  // namespace convoy::gpu
