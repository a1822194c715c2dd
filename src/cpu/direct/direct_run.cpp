// A run: each task packs its rows, lists the pixels that tiles do not find by a pitch, and runs the
// register tiles of its blocks of filters.
#include <algorithm>

#include "cpu/direct/direct_prepared.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {
using math::ceil_div;

void DirectPrepared::pack_rows(const RunArgs& args, const Piece& piece, float* to) const {
  rows_.pack(args, piece.image, piece.rows.begin * stage_.stride.h - stage_.pad.top,
             packed_rows(piece.rows), to);
}

// Appends a piece's pixels to the task's list, window by window where registers pool; returns the
// new length. Results go to y, or with a scratch pool to the pixel's row of it.
Index DirectPrepared::list_pixels(const RunArgs& args, const Piece& piece, Index listed,
                                  const Scratch& s) const {
  Index origin = piece.scratch - piece.rows.begin * stage_.stride.h * rows_.row_pitch;
  Index row_step = stage_.stride.h * rows_.row_pitch;
  Index column_step = stage_.stride.w * rows_.pixel_pitch;
  if (!packed_) {
    origin = piece.image * args.x_stride.n;
    row_step = stage_.stride.h * args.x_stride.h;
    column_step = stage_.stride.w * args.x_stride.w;
  }
  const Index y = piece.image * args.y_stride.n;
  const bool skip = skips();
  if (pooling_ == Pooling::registers) {
    Index window = listed / 4;
    for (Index o = piece.rows.out_begin; o < piece.rows.out_end; ++o) {
      Index at = origin + 2 * o * row_step;
      Index to = y + o * args.y_stride.h;
      for (Index column = 0; column < shapes_.out_w; ++column) {
        Index* four = s.at + 4 * window;
        four[0] = at;
        four[1] = at + column_step;
        four[2] = at + row_step;
        four[3] = at + row_step + column_step;
        if (skip) {
          Index* place = s.place + 4 * window;
          place[0] = 2 * o * shapes_.q + 2 * column;
          place[1] = place[0] + 1;
          place[2] = place[0] + shapes_.q;
          place[3] = place[2] + 1;
        }
        s.to[window++] = to;
        at += 2 * column_step;
        to += args.y_stride.w;
      }
    }
    return 4 * window;
  }
  for (Index row = piece.rows.begin; row < piece.rows.end; ++row) {
    const Index before = (row - piece.rows.begin) * shapes_.q;
    const Index first = std::clamp<Index>(piece.first - before, 0, shapes_.q);
    const Index count = std::clamp<Index>(piece.last - before, first, shapes_.q) - first;
    const Index at = origin + row * row_step + first * column_step;
    const Index to_step = args.y_stride.w;
    const Index to = y + row * args.y_stride.h + first * to_step;
    Index* const first_at = s.at + listed;
    Index* const first_to = s.to + listed;
    for (Index i = 0; i < count; ++i) first_at[i] = at + i * column_step;
    for (Index i = 0; i < count; ++i) first_to[i] = to + i * to_step;
    if (skip)
      for (Index i = 0; i < count; ++i) s.place[listed + i] = row * shapes_.q + first + i;
    listed += count;
  }
  return listed;
}

// The input of `rows` output rows from `row`, counted over all images: as much of it as lies in the
// first one's image.
DirectPrepared::Ahead DirectPrepared::input_of(const RunArgs& args, Index row, Index rows) const {
  const auto* const x = static_cast<const float*>(args.x);
  if (stage_.dtype != DType::f32 || skipped_ != Extent{1}) return {x};
  const Index image = row / shapes_.out_h, out = row % shapes_.out_h;
  const Index last = std::min(out + rows, shapes_.out_h) - 1;
  const Index begin = pool_rows_.lowest(out) * stage_.stride.h - stage_.pad.top;
  const Index end = (pool_rows_.end(last) - 1) * stage_.stride.h - stage_.pad.top +
                    (stage_.r - 1) * stage_.dil.h + 1;
  const Index first = std::clamp<Index>(begin, 0, stage_.h);
  const Index count = std::clamp<Index>(end, first, stage_.h) - first;
  return {x + image * args.x_stride.n + first * args.x_stride.h, count * args.x_stride.h};
}

TileArgs DirectPrepared::tile_of(const RunArgs& args, const FilterBlock& block, const float* bias,
                                 const Scratch& scratch) const {
  TileArgs tile;
  tile.x = packed_ ? scratch.pack : static_cast<const float*>(args.x);
  tile.x += block.group * c_group_;
  tile.w = weights().packed.data() + block.weights;
  tile.bias = bias;
  tile.epilogue = epilogue_;
  tile.valid = block.count;
  if (pooling_ == Pooling::scratch) {
    tile.y = scratch.pool;
    tile.valid = block.width;
  } else {
    tile.y = static_cast<float*>(args.y) + block.first;
  }
  if (skips()) return tile;
  tile.offsets = offsets_.empty() ? nullptr : offsets_.data();
  tile.depth = depth_;
  tile.runs = runs_.data();
  tile.run_count = parts_.front().count;
  return tile;
}

void DirectPrepared::run_block(TileArgs tile, const FilterBlock& block, Index count,
                               const Scratch& scratch, const Ahead& ahead) const {
  if (skips()) {
    run_block_skipping(tile, block, count, scratch);
    return;
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    tile.runs = runs_.data() + part.first;
    tile.run_count = part.count;
    tile.resume = i > 0;
    tile.suspend = i + 1 < parts_.size();
    tile.depth = part.depth;
    // The next part's, or the next block's first's: tiles fetch less than twice this part's.
    const auto floats = static_cast<std::size_t>(part.depth * block.width);
    const std::size_t end =
        block.weights + static_cast<std::size_t>(part.begin * block.width) + floats;
    const bool fetch = fetch_weights_ && end + 2 * floats <= weight_floats_;
    tile.next = fetch ? weights().packed.data() + end : nullptr;
    run_part(tile, block, count, scratch, tile.suspend ? ahead.nothing() : ahead);
  }
}

void DirectPrepared::run_part(TileArgs& tile, const FilterBlock& block, Index count,
                              const Scratch& scratch, const Ahead& ahead) const {
  const auto vectors = static_cast<std::size_t>(block.vectors);
  const bool pool = pooling_ == Pooling::registers;
  // Tiles of equal size, or one more: a last tile of one pixel would cost as much as a full one.
  const Index unit = pool ? 4 : 1;
  const Index units = count / unit;
  const Index most = pool ? loops_.max_windows[vectors] : loops_.max_pixels[vectors];
  const Index tiles = ceil_div(units, most);
  const Index size = tiles > 0 ? units / tiles : 0, larger = tiles > 0 ? units % tiles : 0;
  const Index lines = ceil_div(ahead.floats, 16), portions = std::max<Index>(1, tile.run_count);
  const Index portion = tiles > 0 ? std::min<Index>(ceil_div(lines, tiles * portions), 32) : 0;
  tile.next_floats = tile.next && tiles > 0 ? ceil_div(block.width, tiles) : 0;
  for (Index i = 0, done = 0; i < tiles; ++i) {
    const Index now = size + (i < larger ? 1 : 0);
    const Index fetched = i * portions * portion;
    tile.ahead_lines = fetched < lines ? portion : 0;
    tile.ahead = tile.ahead_lines > 0 ? ahead.from + 16 * fetched : nullptr;
    tile.at = scratch.at + done * unit;
    tile.to = scratch.to + done;
    tile.next_to = scratch.to + std::min(done + now, units - now);
    tile.sums = scratch.sums + done * unit * block.width;
    const auto index = static_cast<std::size_t>(now);
    (pool ? loops_.pooled[vectors][index] : loops_.plain[vectors][index])(tile);
    done += now;
    if ((i + 1) * tile.next_floats < block.width) {
      tile.next += tile.next_floats * tile.depth;
    } else {
      tile.next = nullptr;
      tile.next_floats = 0;
    }
  }
}

// The taps of a pixel that lie inside the image.
Index DirectPrepared::runs_inside(Index place, Run* runs) const {
  const Index top = place / shapes_.q * stage_.stride.h - stage_.pad.top;
  const Index left = place % shapes_.q * stage_.stride.w - stage_.pad.left;
  Index count = 0;
  for (Index r = 0; r < stage_.r; ++r)
    for (Index s = 0; s < stage_.s; ++s) {
      const Index h = top + r * stage_.dil.h, w = left + s * stage_.dil.w;
      if (h >= 0 && h < stage_.h && w >= 0 && w < stage_.w)
        runs[count++] = tap_runs_[static_cast<std::size_t>(r * stage_.s + s)];
    }
  return count;
}

// Infinite or NaN weights must not meet the zeros that stand for taps outside the image: pixel by
// pixel, with only the taps inside.
void DirectPrepared::run_block_skipping(TileArgs tile, const FilterBlock& block, Index count,
                                        const Scratch& scratch) const {
  const auto loop = loops_.plain[static_cast<std::size_t>(block.vectors)][1];
  tile.runs = scratch.runs;
  if (pooling_ != Pooling::registers) {
    for (Index i = 0; i < count; ++i) {
      tile.run_count = runs_inside(scratch.place[i], scratch.runs);
      tile.at = scratch.at + i;
      tile.to = tile.next_to = scratch.to + i;
      loop(tile);
    }
    return;
  }
  alignas(64) float four[4 * 16 * max_tile_vectors + 16];
  WindowArgs window{four, 1, 4, 0, block.width, nullptr, block.count};
  float* y = tile.y;
  tile.y = four;
  tile.valid = block.width;
  for (Index i = 0; i < count; ++i) {
    const Index to = i % 4 * block.width;
    tile.run_count = runs_inside(scratch.place[i], scratch.runs);
    tile.at = scratch.at + i;
    tile.to = tile.next_to = &to;
    loop(tile);
    if (i % 4 != 3) continue;
    window.to = y + scratch.to[i / 4];
    loops_.window(window);
  }
}

DirectPrepared::Task DirectPrepared::task_of(const Cut& cut, Index n, Index index) const {
  const Index rows = n * shapes_.out_h, pixels = rows * shapes_.q;
  const Index band = index / cut.splits, split = index % cut.splits;
  const Index blocks = static_cast<Index>(blocks_.size());
  Task task;
  task.begin = rows * band / cut.bands;
  task.end = rows * (band + 1) / cut.bands;
  if (cut.by_images) {
    task.begin = band * cut.rows;
    task.end = std::min(rows, task.begin + cut.rows);
  }
  task.first = task.begin * shapes_.q;
  task.last = task.end * shapes_.q;
  if (cut.by_pixels) {
    task.first = pixels * band / cut.bands;
    task.last = pixels * (band + 1) / cut.bands;
    task.begin = task.first / shapes_.q;
    task.end = ceil_div(task.last, shapes_.q);
  }
  task.by_pixels = cut.by_pixels;
  task.first_block = blocks * split / cut.splits;
  task.last_block = blocks * (split + 1) / cut.splits;
  return task;
}

// Calls body(piece, pixels of the pieces before it) for the task's rows of each image.
template <class Body>
void DirectPrepared::each_piece(const Task& task, const Body& body) const {
  Index before = 0, floats_used = 0;
  for (Index row = task.begin; row < task.end;) {
    Piece piece;
    piece.image = row / shapes_.out_h;
    const Index out = row % shapes_.out_h;
    const Index count = std::min(task.end - row, shapes_.out_h - out);
    piece.rows = math::span_of(pool_rows_, shapes_.out_h, out, out + count);
    piece.rows.end = pool_rows_.end(out + count - 1);  // not what no window needs
    piece.scratch = floats_used;
    const Index all = (piece.rows.end - piece.rows.begin) * shapes_.q;
    piece.last = all;
    if (task.by_pixels) {
      piece.first = std::max<Index>(0, task.first - row * shapes_.q);
      piece.last = std::min(all, task.last - row * shapes_.q);
    }
    body(piece, before);
    before += all;
    if (packed_) floats_used += packed_rows(piece.rows) * rows_.row_pitch;
    row += count;
  }
}

// Packs the task's input and lists its pixels, where tiles need that; returns how many are listed.
Index DirectPrepared::load_task(const RunArgs& args, const Task& task,
                                const Scratch& scratch) const {
  const bool by_rows = by_rows_ && !skips(), listing = !by_rows && !contiguous(args);
  Index listed = 0;
  each_piece(task, [&](const Piece& piece, Index) {
    float* const packed = scratch.pack + piece.scratch;
    if (by_rows && reads_x(args))
      pack_edges(args, piece, packed);
    else if (packed_)
      pack_rows(args, piece, packed);
    if (listing) listed = list_pixels(args, piece, listed, scratch);
  });
  return listed;
}

// The task's results of one block of filters.
void DirectPrepared::run_block_of(const RunArgs& args, const Task& task, const FilterBlock& block,
                                  const float* bias, Index listed, const Scratch& scratch,
                                  Ahead ahead) const {
  const TileArgs tile = tile_of(args, block, bias, scratch);
  if (pooling_ == Pooling::scratch) {
    each_piece(task, [&](const Piece& piece, Index first_pixel) {
      run_pooled(args, tile, block, piece, first_pixel, scratch, ahead);
    });
    return;
  }
  if (by_rows_ && !skips()) {
    listed = 0;
    each_piece(task, [&](const Piece& piece, Index) {
      const Rows rows{piece.rows.begin, piece.rows.end};
      listed = run_rows(args, tile, block, piece, rows, listed, scratch, ahead);
    });
  } else if (contiguous(args)) {
    listed = 0;
    each_piece(task, [&](const Piece& piece, Index) {
      listed = run_contiguous(args, tile, block, piece, listed, scratch, ahead);
    });
  }
  run_block(tile, block, listed, scratch, ahead);
}

// What follows bias and clamp of a task's results, pooled in registers or not at all. All filters
// at once: where they are neighbours, caches are read ahead.
void DirectPrepared::finish_task(const RunArgs& args, const Task& task) const {
  if (post_.none() || pooling_ == Pooling::scratch) return;
  const FilterBlock& last_block = blocks_[static_cast<std::size_t>(task.last_block - 1)];
  const Index filter = blocks_[static_cast<std::size_t>(task.first_block)].first;
  const Index filters = last_block.first + last_block.count - filter;
  each_piece(task, [&](const Piece& piece, Index) {
    float* y = static_cast<float*>(args.y) + piece.image * args.y_stride.n + filter;
    const Index rows = piece.rows.out_end - piece.rows.out_begin, columns = shapes_.out_w;
    y += piece.rows.out_begin * args.y_stride.h;
    for (Index row = 0; row < rows; ++row, y += args.y_stride.h) {
      const Index first = std::clamp<Index>(piece.first - row * columns, 0, columns);
      const Index last = std::clamp<Index>(piece.last - row * columns, first, columns);
      finish_rows(post_,
                  {y + first * args.y_stride.w, 1, 0, last - first, args.y_stride.w, filters});
    }
  });
}

// Of each block, padded with zeros to its width.
void DirectPrepared::copy_biases(const RunArgs& args, float* to) const {
  for (const FilterBlock& block : blocks_)
    for (Index i = 0; i < block.width; ++i)
      to[block.bias + static_cast<std::size_t>(i)] =
          args.bias && i < block.count ? args.bias[block.first + i] : 0.0F;
}

Status DirectPrepared::run(const RunArgs& given) const noexcept {
  RunArgs args = given;
  args.x_stride.h *= skipped_.h;
  args.x_stride.w *= skipped_.w;
  float* const bias = reinterpret_cast<float*>(args.workspace);
  copy_biases(args, bias);
  const Cut cut = this->cut(args.n);
  const Index rows = args.n * shapes_.out_h, blocks = static_cast<Index>(blocks_.size());
  args.threads->for_each(cut.bands * cut.splits, [&](Index index, int slot) {
    const Task task = task_of(cut, args.n, index);
    const Scratch scratch = scratch_of(bias + bias_floats_ + slot * slot_floats());
    const Index listed = load_task(args, task, scratch);
    for (Index i = task.first_block; i < task.last_block; ++i) {
      const FilterBlock& block = blocks_[static_cast<std::size_t>(i)];
      Ahead ahead{static_cast<const float*>(args.x)};
      if (i + 1 == blocks && task.end < rows) ahead = input_of(args, task.end, cut.rows);
      run_block_of(args, task, block, bias + block.bias, listed, scratch, ahead);
    }
    finish_task(args, task);
  });
  return Status();
}

}  // namespace convoy::cpu
