// The least that a launch can cost.
#pragma once

namespace convoy {

/// Enqueues a kernel that does nothing on the default stream.
void launch_nothing();

}  // namespace convoy
