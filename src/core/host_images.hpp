// Images on the host that a GPU's kernel may take along with its launch.
#pragma once

namespace convoy {

/// While it lives, the page-locked memory at `x` holds complete images, whatever the stream still
/// has to do: a kernel that this thread launches may copy them instead of the pointer.
class HostImages {
 public:
  explicit HostImages(const void* x) { current() = x; }
  ~HostImages() { current() = nullptr; }
  HostImages(const HostImages&) = delete;
  HostImages& operator=(const HostImages&) = delete;

  static bool at(const void* x) { return x == current(); }

 private:
  static const void*& current() {
    thread_local const void* x = nullptr;
    return x;
  }
};

}  // namespace convoy
