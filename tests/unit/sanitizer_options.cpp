// An allocation that is too large fails under a sanitizer too, as it does without one: it must end
// in an Error. By itself a sanitizer ends the program.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}
