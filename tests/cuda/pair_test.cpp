// The pair family's index maps and layouts, checked on the host.
#include <gtest/gtest.h>

#include <set>

#include "bench/fit/h200.hpp"
#include "core/shape_list.hpp"
#include "cuda/families.hpp"
#include "cuda/sm90/pair_map.hpp"
#include "cuda/sm90/pair_tile.hpp"
#include "cuda/tensor_map.hpp"
#include "verify/source_path.hpp"

namespace convoy::cuda::sm90 {
namespace {

std::vector<OwnedChain> pairs() {
  return read_chain_list(source_path("tests/cuda/pair-stages.txt"), true);
}

template <class Check>
void for_each_tile(Check check) {
  for (const OwnedChain& chain : pairs()) {
    SCOPED_TRACE(to_text(chain));
    const Stage &first = chain.stages[0], &second = chain.stages[1];
    ASSERT_EQ(pair().refusals(chain, machine_of(h200())), Reasons());
    const std::vector<HaloTile> tiles = pair_tiles(first, second, h200());
    ASSERT_FALSE(tiles.empty());
    for (const HaloTile& tile : tiles) {
      SCOPED_TRACE(tile.name());
      check(first, second, tile, pair_layout(first, second, tile, h200()));
    }
  }
}

// A run has n images of one time step.
TEST(Pair, RefusesTimeStepsAndTheirMean) {
  const Machine machine = machine_of(h200());
  OwnedChain chain = pairs().front();
  EXPECT_EQ(pair().refusals(chain, machine), std::vector<std::string>{});
  chain.x_steps = 3;
  EXPECT_EQ(pair().refusals(chain, machine).front(),
            "the number of time steps in x is 3, expected 1");
  chain.x_steps = 1;
  chain.mean = true;
  EXPECT_EQ(pair().refusals(chain, machine).front(),
            "a mean over the time steps is asked for, expected none");
}

// Walks as the kernel does: which middle pixel each fragment and column of the first stage writes
// to which row, which rows a window of the second stage reads, and which row of the stored tile
// gets it.
TEST(Pair, PixelsKeepTheirPlace) {
  for_each_tile([](const Stage&, const Stage& second, const HaloTile& tile, const PairLayout& l) {
    const int rows = tile.bh / 2, across = tile.bw / 2, per_instruction = rows / 2;
    std::vector<int> pixel_at(static_cast<std::size_t>(l.second.columns), -1);
    for (int i = 0; i < tile.instructions(); ++i) {
      for (int j = 0; j < per_instruction; ++j) {
        for (int c = 0; c < 8; ++c) {
          // What halo would store there: row 2j + c%2 of the instruction's box, column c/2.
          const int y = 2 * j + (c & 1), x = (c >> 1) + (tile.bw > 8 ? 4 * i : 0);
          const int image = tile.bw > 8 ? 0 : i;
          const int row = middle_row(i * l.second.window_i + j * l.second.window_j, c);
          ASSERT_LT(row, l.second.columns);
          ASSERT_EQ(pixel_at[static_cast<std::size_t>(row)], -1) << "two pixels in one row";
          pixel_at[static_cast<std::size_t>(row)] = (image * rows + y) * across + x;
        }
      }
    }
    const int windows = tile.bw * tile.bh * tile.bn / 16;
    if (second.pool) {
      std::set<int> seen;
      for (int u = 0; u < (l.second.columns / 16 + 1) / 2; ++u) {
        for (int c = 0; c < 8; ++c) {
          const int w = pooled_row(u, c);
          ASSERT_LT(w * 128, l.second.staging);
          if (w >= windows) continue;
          seen.insert(w);
          // Columns 2*(w%4), +1 of two neighbouring groups of eight: Fragments<..., pixels>::value.
          const int x = w % (across / 2), y = w / (across / 2);  // images stand below each other
          const auto top = static_cast<std::size_t>(16 * (2 * u + (c & 1)) + 2 * (c >> 1));
          EXPECT_EQ(pixel_at[top], 2 * y * across + 2 * x);
          EXPECT_EQ(pixel_at[top + 1], 2 * y * across + 2 * x + 1);
          EXPECT_EQ(pixel_at[top + 8], (2 * y + 1) * across + 2 * x);
          EXPECT_EQ(pixel_at[top + 9], (2 * y + 1) * across + 2 * x + 1);
        }
      }
      EXPECT_EQ(static_cast<int>(seen.size()), windows);
    } else {
      for (int row = 0; row < l.second.columns; ++row) {
        const int stored = unpooled_row(row, tile.bw > 8 ? 2 : 1);
        ASSERT_LT(stored * 128, l.second.staging);
        if (pixel_at[static_cast<std::size_t>(row)] >= 0) {
          EXPECT_EQ(stored, pixel_at[static_cast<std::size_t>(row)]);
        }
      }
    }
  });
}

TEST(Pair, FitsIntoSharedMemory) {
  for_each_tile([](const Stage& first, const Stage&, const HaloTile&, const PairLayout& l) {
    EXPECT_LE(l.shared_bytes, static_cast<int>(h200().shared_bytes));
    EXPECT_GE(l.first.staging, l.second.columns * 128)
        << "a staging area holds 64 channels of the tile";
    EXPECT_EQ(l.second.areas * 64, (first.k + 63) / 64 * 64);
    EXPECT_LE(8 * (2 * (l.first.x_slots + l.first.w_slots) + 6 + 2 * l.second.w_slots), 1024);
    if (l.first.sharers == 2) {
      EXPECT_GT(l.first.x_slots, l.first.chunks * l.first.boxes)
          << "a tile's boxes and the next one";
    }
    EXPECT_EQ(l.first.tiles() % l.first.sharers, 0);
  });
}

TEST(Pair, MapsAreLegal) {
  for_each_tile([](const Stage&, const Stage& second, const HaloTile& tile, const PairLayout&) {
    EXPECT_EQ(problems(pair_w_map(second), nullptr), std::vector<std::string>{});
    EXPECT_EQ(problems(pair_y_map(second, tile, second.k), nullptr), std::vector<std::string>{});
  });
}

TEST(Pair, SaysWhyNot) {
  const Stage first = parse_stage("f16:n2h28w28c64k256r3pad1+bias+relu"),
              second = parse_stage("f16:n2h14w14c64k64r3pad1+bias+relu");
  Reasons why;
  refuse_pair(first, second, h200(), why);
  const Reasons expected = {
      "the first stage does not pool: its tile would not fit beside the second's",
      "the first stage has 256 output channels, a CTA holds at most 128",
      "the second stage is 3x3, not 1x1", "the second stage is padded",
      "the second stage's input is not the first's output"};
  EXPECT_EQ(why, expected);
}

}  // namespace
}  // namespace convoy::cuda::sm90
