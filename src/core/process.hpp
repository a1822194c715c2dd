// What a process goes through while plans are at work: the end, whose handlers and detached threads
// may still use plans, and forks, whose children have the memory of all threads but run only one.
#pragma once

#include <atomic>
#include <mutex>

namespace convoy {

namespace process {
extern constinit std::atomic<int> forks;
}

/// 0 in the first process, one more in a child that fork() made, before fork() returns there.
inline int fork_generation() noexcept {
  return process::forks.load(std::memory_order_relaxed);
}

/// Something that is made when first asked for and never destroyed. A static of this type has no
/// destructor that could run too early, and no lock that a forked child could find taken.
template <class T>
class Immortal {
 public:
  /// Calls `make` when nothing is kept yet; threads that meet there may each do so, one wins.
  template <class Make>
  const T& get(const Make& make) {
    const T* kept = kept_.load(std::memory_order_acquire);
    if (kept) return *kept;
    const T* const made = new T(make());
    if (kept_.compare_exchange_strong(kept, made, std::memory_order_acq_rel,
                                      std::memory_order_acquire))
      return *made;
    delete made;
    return *kept;
  }

 private:
  std::atomic<const T*> kept_{nullptr};
};

/// A member that is made when first asked for, without a lock that a forked child could find taken,
/// and destroyed with its owner.
template <class T>
class MadeOnce {
 public:
  MadeOnce() = default;
  ~MadeOnce() { delete kept_.load(std::memory_order_acquire); }
  MadeOnce(const MadeOnce&) = delete;
  MadeOnce& operator=(const MadeOnce&) = delete;

  /// Calls `make`, which gives a std::unique_ptr, when nothing is kept yet; threads that meet there
  /// may each do so, one wins.
  template <class Make>
  T& get(const Make& make) {
    if (T* const kept = kept_.load(std::memory_order_acquire)) return *kept;
    auto made = make();
    T* there = nullptr;
    if (kept_.compare_exchange_strong(there, made.get(), std::memory_order_acq_rel,
                                      std::memory_order_acquire))
      return *made.release();
    return *there;
  }

 private:
  std::atomic<T*> kept_{nullptr};
};

/// A value that threads share under a lock, never destroyed. A forked child begins with a new one:
/// the lock may be held, and the value half changed, by a thread that is not there.
template <class T>
class Shared {
  struct State {
    int generation;
    State* before_fork;  // still reachable: no leak
    std::mutex mutex{};
    T value{};
  };

 public:
  /// The value, locked as long as this lives.
  class Locked {
   public:
    explicit Locked(State& state) : state_(state), lock_(state.mutex) {}
    T* operator->() const { return &state_.value; }
    T& operator*() const { return state_.value; }

   private:
    State& state_;
    std::lock_guard<std::mutex> lock_;
  };
  Locked lock() {
    const int now = fork_generation();
    State* state = state_.load(std::memory_order_acquire);
    if (!state || state->generation != now) {
      auto* const fresh = new State{now, state};
      if (state_.compare_exchange_strong(state, fresh, std::memory_order_acq_rel,
                                         std::memory_order_acquire))
        state = fresh;
      else
        delete fresh;
    }
    return Locked(*state);
  }

 private:
  std::atomic<State*> state_{nullptr};
};

/// Held by one at a time. What another thread held when the process forked is free in the child.
class Claim {
 public:
  bool take() noexcept {
    const int mine = fork_generation() + 1;
    int seen = owner_.load(std::memory_order_relaxed);
    return seen != mine && owner_.compare_exchange_strong(seen, mine, std::memory_order_acquire,
                                                          std::memory_order_relaxed);
  }
  void give() noexcept { owner_.store(0, std::memory_order_release); }

 private:
  std::atomic<int> owner_{0};  // 0: nobody
};

}  // namespace convoy
