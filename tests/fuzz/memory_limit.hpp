// An allocation of more than 1 GiB fails, as it may anywhere: it must end in an Error.
#pragma once

extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=1024";
}
