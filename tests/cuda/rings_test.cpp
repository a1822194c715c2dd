// The threads of a CTA of `halo` and `pair` with nothing but their waits and arrivals: whatever the
// layout, all come to their end, and none goes through a barrier a whole round early. A launch that
// never ends is seen on no machine without a GPU but here.
#include <gtest/gtest.h>

#include <coroutine>
#include <set>
#include <utility>

#include "bench/fit/h200.hpp"
#include "core/stage_text.hpp"
#include "cuda/families.hpp"
#include "cuda/sm90/pair_tile.hpp"
#include "cuda/wrap/inner_stage.hpp"
#include "verify/draw.hpp"
#include "verify/draw_chain.hpp"

namespace convoy::cuda::sm90 {
namespace {

struct Barrier {
  explicit Barrier(int of) : arrivals(of), missing(of) {}
  void arrive(int times = 1) {
    for (; times > 0; --times)
      if (--missing == 0) missing = arrivals, ++phase;
  }
  int arrivals, missing, phase = 0;  // phases that are complete
};

/// Until so many phases are complete: as the hardware does, by their parity alone.
struct Wait {
  const Barrier* barrier = nullptr;
  int phases = 0;
  bool over() const { return !barrier || (barrier->phase & 1) == (phases & 1); }
  bool early() const { return barrier && barrier->phase != phases; }
};

/// A thread, or a warpgroup whose threads do the same.
class Actor {
 public:
  struct promise_type {
    Wait wait;
    Actor get_return_object() { return Actor(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(Wait next) noexcept {
      wait = next;
      return {};
    }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  using Handle = std::coroutine_handle<promise_type>;

  explicit Actor(Handle handle) : handle_(handle) {}
  Actor(Actor&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Actor& operator=(Actor&&) = delete;
  ~Actor() {
    if (handle_) handle_.destroy();
  }
  bool done() const { return handle_.done(); }
  const Wait& wait() const { return handle_.promise().wait; }
  void go_on() { handle_.resume(); }

 private:
  Handle handle_;
};

/// Slots that are full after `fills` arrivals and empty after `reads`. Everyone counts the slots
/// that went by: number i is slot i % size, in round i / size.
struct Ring {
  Ring(int size, int fills, int reads)
      : full(static_cast<std::size_t>(size), Barrier(fills)),
        empty(static_cast<std::size_t>(size), Barrier(reads)) {}
  std::size_t slot(int i) const { return static_cast<std::size_t>(i) % full.size(); }
  int round(int i) const { return i / static_cast<int>(full.size()); }
  Wait filled(int i) const { return {&full[slot(i)], round(i) + 1}; }
  /// Of what is loaded once: the first round stays complete.
  Wait loaded(int i) const { return {&full[slot(i)], 1}; }
  Wait emptied(int i) const { return {&empty[slot(i)], round(i)}; }
  /// That number i - size was loaded.
  Wait filled_before(int i) const { return {&full[slot(i)], round(i)}; }
  std::vector<Barrier> full, empty;
};

constexpr int warps = 4;  // of a warpgroup, each of which arrives

/// One CTA's walk (halo_load.cuh, halo.cuh, pair.cuh). Without a second stage it is halo's.
class Cta {
 public:
  Cta(const HaloLayout& layout, const SecondLayout* second, int tiles, int block)
      : l_(layout),
        second_(second),
        tiles_(tiles),
        block_(block),
        grid_(std::min(layout.grid, tiles / layout.sharers)),
        x_(layout.x_slots, 1, readers() * layout.sharers),
        w_(layout.w_slots, 1, readers()),
        middle_(2, warps, warps),
        second_w_(second ? second->w_slots : 0, 1, warps) {}

  /// Who waits for ever, and who was early; empty: nobody. `lag`: how likely one that may go on
  /// lets the others go on before it.
  std::string run(verify::Random& random, double lag) {
    std::vector<std::pair<std::string, Actor>> actors;
    const int x_producers = second_ ? 1 : 2;
    for (int i = 0; i < x_producers; ++i)
      actors.emplace_back("pixels", load_pixels(i, x_producers));
    for (int i = 0; i < 2; ++i) actors.emplace_back("weights", load_weights(i));
    for (int g = 0; g < 2; ++g) actors.emplace_back("warpgroup " + std::to_string(g), multiply(g));
    if (second_) {
      actors.emplace_back("second weights", load_second_weights());
      actors.emplace_back("second stage", multiply_second());
    }
    std::string early;
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [name, actor] : actors) {
        while (!actor.done() && actor.wait().over()) {
          moved = true;
          if (random.chance(lag)) break;  // the others first
          if (actor.wait().early()) early += name + " a round early; ";
          actor.go_on();
        }
      }
    }
    for (const auto& [name, actor] : actors)
      if (!actor.done()) early += name + " waits for ever; ";
    return early;
  }

 private:
  int readers() const { return l_.pingpong ? warps : 2 * warps; }
  int step() const { return grid_ * l_.sharers; }

  Actor load_pixels(int which, int of) {
    int slot = 0;
    for (int t = block_ * l_.sharers; t < tiles_; t += step()) {
      for (int i = 0; i < l_.slots_a_tile(); ++i, ++slot) {
        if (slot % of != which) continue;
        if (l_.x_passes) co_yield x_.filled_before(slot);
        co_yield x_.emptied(slot);
        x_.full[x_.slot(slot)].arrive();
      }
    }
  }

  Actor load_weights(int which) {
    int slot = 0, early = l_.early_slabs;
    for (int t = block_ * l_.sharers; t < tiles_; t += step()) {
      for (int i = 0; i < l_.sharers * l_.slabs_a_tile(); ++i, ++slot) {
        if (early-- == 0) co_yield Wait{x_.full.data(), 1};
        if (slot % 2 != which) continue;
        if (l_.w_passes && !l_.resident) co_yield w_.filled_before(slot);
        if (!l_.resident) co_yield w_.emptied(slot);
        w_.full[w_.slot(slot)].arrive();
      }
      if (l_.resident) co_return;
    }
  }

  Actor load_second_weights() {
    int slot = 0;
    for (int t = block_ * l_.sharers; t < tiles_; t += step()) {
      for (int i = 0; i < second_->blocks; ++i, ++slot) {
        co_yield second_w_.emptied(slot);
        second_w_.full[second_w_.slot(slot)].arrive();
      }
      if (second_->w_resident) co_return;
    }
  }

  Actor multiply(int g) {
    const bool both = l_.sharers == 2;  // walks over every box, not only those of its tiles
    const int stride = l_.pingpong ? 2 * grid_ : grid_;
    const int first = both ? 2 * block_ + g : l_.pingpong ? block_ + g * grid_ : block_;
    const int slots = l_.slots_a_tile(), slabs = l_.slabs_a_tile();
    int x = l_.pingpong && !both && g == 1 ? slots : 0, w = l_.pingpong && g == 1 ? slabs : 0;
    int turn = 0;
    for (int t = first; t < tiles_; t += stride, ++turn) {
      if (l_.pingpong && (g == 1 || turn > 0)) co_yield Wait{&turns_[g], g == 1 ? turn + 1 : turn};
      int last_x = -1, last_w = -1, tap = 0;
      for (int slab = 0; slab < slabs; ++slab, ++w) {
        int box = last_x;
        if ((l_.tap_shift[tap] & opens_slot) != 0) {
          box = x++;
          co_yield x_.filled(box);
        }
        co_yield l_.resident ? w_.loaded(w) : w_.filled(w);
        tap = (tap + l_.slab_taps) % l_.slot_taps();
        if (l_.pingpong && slab + 1 == slabs) {
          turns_[1 - g].arrive(warps);
          co_yield Wait{};  // the other warpgroup may be through with its first slots before
        }
        if (slab > 0) give_back(box == last_x ? -1 : last_x, last_w);
        last_x = box;
        last_w = w;
      }
      co_yield Wait{};
      give_back(last_x, last_w);
      if (l_.pingpong && !both) x += slots;
      if (l_.pingpong) w += slabs;
      if (!second_) continue;
      co_yield middle_.emptied(2 * turn + g);
      middle_.full[static_cast<std::size_t>(g)].arrive(warps);
    }
  }
  void give_back(int x, int w) {
    if (x >= 0) x_.empty[x_.slot(x)].arrive(warps);
    if (!l_.resident) w_.empty[w_.slot(w)].arrive(warps);
  }

  Actor multiply_second() {
    int slot = 0, turn = 0;
    for (int t = block_ * l_.sharers; t < tiles_; t += step(), ++turn) {
      // Slots of the ring of two: a wide middle tile is both, a narrow one the next.
      const int begin = second_->areas * turn, end = begin + second_->areas;
      for (int area = begin; area < end; ++area) co_yield middle_.filled(area);
      for (int block = 0; block < second_->blocks; ++block, ++slot) {
        co_yield second_->w_resident ? second_w_.loaded(slot) : second_w_.filled(slot);
        // Both of a pair of blocks go back together; no wait lies between.
        if (!second_->w_resident && block % 2 == 1)
          for (const int i : {slot - 1, slot}) second_w_.empty[second_w_.slot(i)].arrive(warps);
      }
      for (int area = begin; area < end; ++area) middle_.empty[middle_.slot(area)].arrive(warps);
    }
  }

  const HaloLayout& l_;
  const SecondLayout* second_;
  int tiles_, block_, grid_;
  Ring x_, w_;
  Barrier turns_[2]{Barrier(warps), Barrier(warps)};
  Ring middle_, second_w_;
};

/// A CTA that takes most tiles, and one that takes fewest.
std::string walk(const HaloLayout& layout, const SecondLayout* second, int tiles) {
  const int grid = std::min(layout.grid, tiles / layout.sharers);
  verify::Random random(7);
  for (const int block : {0, grid - 1}) {
    for (const double lag : {0.0, 0.5, 0.9}) {
      std::string why = Cta(layout, second, tiles, block).run(random, lag);
      if (!why.empty()) return why;
    }
  }
  return {};
}

TEST(Rings, HaloComesToItsEnd) {
  verify::Random random(1);
  int walked = 0;
  for (int i = 0; i < 3000; ++i) {
    Stage stage = verify::draw_stage(random, DeviceKind::cuda);
    for (const Index n : {stage.n, Index{64}}) {
      stage.n = n;
      if (!halo_refusals(stage, h200()).empty()) break;
      // And its sums in f32, for a pass behind it.
      for (const Stage& one : {stage, stage_of_sums(stage)}) {
        for (const HaloTile& tile : halo_tiles(one, h200())) {
          const HaloLayout layout = halo_layout(one, tile, h200());
          const int tiles = halo_tiles_of(one, tile, layout, one.n);
          ++walked;
          EXPECT_EQ(walk(layout, nullptr, tiles), "") << to_text(one) << " " << tile.name();
        }
      }
    }
  }
  EXPECT_GT(walked, 5000);
}

TEST(Rings, PairComesToItsEnd) {
  verify::Random random(1);
  int walked = 0, several_turns = 0;
  for (int i = 0; i < 800; ++i) {
    const OwnedChain chain = verify::draw_chain(random, DeviceKind::cuda);
    if (chain.constants) continue;  // no chain for `pair`
    OwnedChain two;
    two.stages = {chain.stages[0], chain.stages[1]};
    Stage &first = two.stages[0], &second = two.stages[1];
    for (const Index n : {first.n, Index{64}}) {
      first.n = second.n = n;
      if (!pair().refusals(two, machine_of(h200())).empty()) break;
      for (const HaloTile& tile : pair_tiles(first, second, h200())) {
        const PairLayout layout = pair_layout(first, second, tile, h200());
        const int tiles = halo_tiles_of(first, tile, layout.first, n);
        ++walked;
        several_turns += tiles / layout.first.sharers > layout.first.grid;
        EXPECT_EQ(walk(layout.first, &layout.second, tiles), "")
            << to_text(first) << " > " << to_text(second) << " " << tile.name();
      }
    }
  }
  EXPECT_GT(walked, 3000);
  EXPECT_GT(several_turns, 300);
}

// Weights of two blocks that stay beside a ring with room for four, and CTAs of several tiles: the
// second tile waited for blocks that nobody loads.
TEST(Rings, SecondWeightsThatStayAreARingOfTheirOwn) {
  const Stage first = parse_stage("f16:n64h12w19c136k16r1+bias+max2"),
              second = parse_stage("f16:n64h6w9c16k88r1+bias+relu");
  for (const HaloTile& tile : pair_tiles(first, second, h200())) {
    const PairLayout layout = pair_layout(first, second, tile, h200());
    EXPECT_TRUE(layout.second.w_resident) << tile.name();
    const int tiles = halo_tiles_of(first, tile, layout.first, first.n);
    EXPECT_EQ(walk(layout.first, &layout.second, tiles), "") << tile.name();
  }
}

}  // namespace
}  // namespace convoy::cuda::sm90
