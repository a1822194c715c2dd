#pragma once

#include <cstddef>

namespace convoy::network {

/// Copies bytes to memory that no core is going to read: past the caches, whole lines at a time. A
/// GPU then reads it from memory, without asking them.
void copy_past_caches(const void* from, std::size_t bytes, void* to);

/// What this thread copied so is there for whoever learns of it from now on.
void end_copies_past_caches();

}  // namespace convoy::network
