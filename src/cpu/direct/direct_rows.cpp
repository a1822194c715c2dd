// Rows of the output wide enough for tiles of neighbouring pixels, which skip the index list: a
// pitch says where each pixel lies. Where x is fp32 and dense, such tiles read x itself, and only
// the input of pixels at its edges is packed. Pixels that the tiles of a row leave over are listed.
#include <algorithm>

#include "cpu/direct/direct_prepared.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {
using math::ceil_div;

void DirectPrepared::plan_rows() {
  by_rows_ = packed_ && pooling_ != Pooling::registers && parts_.size() == 1 &&
             shapes_.q >= min_row_pixels;
  if (!by_rows_ || rows_.pixel_pitch != stage_.c || stage_.dtype != DType::f32 || stage_.norm)
    return;
  // The first pixel whose taps begin at column 0 or later, and the first that reaches beyond the
  // last column.
  const Index reach = (stage_.s - 1) * stage_.dil.w, room = stage_.w + stage_.pad.left - 1 - reach;
  inner_begin_ = std::min(shapes_.q, ceil_div(stage_.pad.left, stage_.stride.w));
  inner_end_ = room < 0 ? 0 : std::min(shapes_.q, room / stage_.stride.w + 1);
  if (inner_end_ - inner_begin_ < min_row_pixels) return;
  const auto in_x = [&](Index packed) {
    return packed / rows_.row_pitch * stage_.w * stage_.c + packed % rows_.row_pitch;
  };
  for (const Index offset : offsets_) x_offsets_.push_back(in_x(offset));
  for (const Run& run : runs_) x_runs_.push_back({in_x(run.offset), run.length, run.depth});
}

bool DirectPrepared::reads_x(const RunArgs& args) const {
  return x_offsets_.size() + x_runs_.size() > 0 && args.x_stride.w == stage_.c &&
         args.x_stride.h == stage_.w * stage_.c;
}

DirectPrepared::RowTiles DirectPrepared::row_tiles(const FilterBlock& block, bool from_x) const {
  const Index pixels = loops_.row_pixels[static_cast<std::size_t>(block.vectors)];
  const Index begin = from_x ? inner_begin_ : 0, end = from_x ? inner_end_ : shapes_.q;
  const Index tiles = (end - begin) / pixels, rest = (end - begin) % pixels;
  // One more tile, over pixels that are done already, costs less than many in a list.
  const bool again = 4 * rest >= 3 * pixels;
  return {begin, tiles, pixels, again ? end : begin + tiles * pixels};
}

// Those of the convolution's rows whose taps all lie in the image.
DirectPrepared::Rows DirectPrepared::rows_inside(const math::PoolSpan& rows) const {
  const Index room = stage_.h + stage_.pad.top - 1 - (stage_.r - 1) * stage_.dil.h;
  const Index begin = std::clamp(ceil_div(stage_.pad.top, stage_.stride.h), rows.begin, rows.end);
  const Index end = room < 0 ? 0 : room / stage_.stride.h + 1;
  return {begin, std::clamp(end, begin, rows.end)};
}

// Packs what tiles that read x itself leave to others: all of the rows that meet the padding, of
// the rest what pixels at either end see.
void DirectPrepared::pack_edges(const RunArgs& args, const Piece& piece, float* to) const {
  const Rows inside = rows_inside(piece.rows);
  const Index stride = stage_.stride.h, tail = (stage_.r - 1) * stage_.dil.h + 1;
  const Index first = piece.rows.begin * stride - stage_.pad.top, count = packed_rows(piece.rows);
  const Index top =
      inside.begin > piece.rows.begin ? (inside.begin - 1 - piece.rows.begin) * stride + tail : 0;
  const Index bottom =
      inside.end < piece.rows.end ? std::max(top, (inside.end - piece.rows.begin) * stride) : count;
  const auto pack = [&](Index begin, Index end, Index left, Index right) {
    rows_.pack(args, piece.image, first + begin, end - begin, left, right,
               to + begin * rows_.row_pitch);
  };
  pack(0, top, 0, rows_.columns);
  Index rest = shapes_.q;
  for (const FilterBlock& block : blocks_) rest = std::min(rest, row_tiles(block, true).end);
  if (inner_begin_ > 0)
    pack(top, bottom, 0, (inner_begin_ - 1) * stage_.stride.w + (stage_.s - 1) * stage_.dil.w + 1);
  if (rest < shapes_.q) pack(top, bottom, rest * stage_.stride.w, rows_.columns);
  pack(bottom, count, 0, rows_.columns);
}

// Computes rows of a piece but for the pixels that it appends to the list; returns the new length.
// Leaves in `ahead` what is still to be fetched.
Index DirectPrepared::run_rows(const RunArgs& args, TileArgs tile, const FilterBlock& block,
                               const Piece& piece, const Rows& rows, Index listed,
                               const Scratch& scratch, Ahead& ahead) const {
  const auto vectors = static_cast<std::size_t>(block.vectors);
  const Index x_step = stage_.stride.w * rows_.pixel_pitch;
  const Index y_step = pooling_ == Pooling::scratch ? block.width : args.y_stride.w;
  const Rows inside = reads_x(args) ? rows_inside(piece.rows) : Rows{};
  const Index origin = block.group * c_group_ + piece.image * args.x_stride.n -
                       stage_.pad.top * args.x_stride.h - stage_.pad.left * args.x_stride.w;
  const TileArgs listing = tile;
  tile.y_pitch = y_step;
  for (Index row = rows.begin; row < rows.end; ++row) {
    const bool from_x = inside.begin <= row && row < inside.end;
    const RowTiles tiles = row_tiles(block, from_x);
    const Index at = piece.scratch + (row - piece.rows.begin) * stage_.stride.h * rows_.row_pitch;
    const Index to = pooling_ == Pooling::scratch
                         ? (rows.pixel + (row - rows.begin) * shapes_.q) * block.width
                         : piece.image * args.y_stride.n + row * args.y_stride.h;
    if (from_x) {
      tile.x_pitch = stage_.stride.w * stage_.c;
      tile.x = static_cast<const float*>(args.x) + origin +
               row * stage_.stride.h * args.x_stride.h + tiles.begin * tile.x_pitch;
      tile.offsets = x_offsets_.empty() ? nullptr : x_offsets_.data();
      tile.runs = x_runs_.data();
    } else {
      tile.x_pitch = x_step;
      tile.x = listing.x + at;
      tile.offsets = listing.offsets;
      tile.runs = listing.runs;
    }
    tile.y = listing.y + to + tiles.begin * y_step;
    const Index portions = std::max<Index>(1, tiles.tiles * std::max<Index>(1, tile.run_count));
    tile.ahead = ahead.from;
    tile.ahead_lines =
        std::min<Index>(32, ceil_div(ceil_div(ahead.floats, 16), (rows.end - row) * portions));
    const Index fetched = std::min(ahead.floats, 16 * tile.ahead_lines * portions);
    ahead = {ahead.from + fetched, ahead.floats - fetched};
    loops_.row[vectors](tile, tiles.tiles);
    if (const Index last = tiles.end - tiles.pixels - tiles.begin;
        last > (tiles.tiles - 1) * tiles.pixels) {
      tile.ahead_lines = 0;
      tile.x += last * tile.x_pitch;
      tile.y += last * y_step;
      loops_.row[vectors](tile, 1);
    }
    const auto list = [&](Index begin, Index end) {
      for (Index column = begin; column < end; ++column, ++listed) {
        scratch.at[listed] = at + column * x_step;
        scratch.to[listed] = to + column * y_step;
      }
    };
    list(0, tiles.begin);
    list(tiles.end, shapes_.q);
  }
  return listed;
}

// Whether a piece's pixels lie at one pitch across rows, in x itself and in y: contiguous pixels
// skip the index list.
bool DirectPrepared::contiguous(const RunArgs& args) const {
  return !packed_ && pooling_ == Pooling::none && parts_.size() == 1 &&
         args.x_stride.h == shapes_.q * args.x_stride.w &&
         args.y_stride.h == shapes_.q * args.y_stride.w;
}

// run_rows for such a piece, as if it were one row.
Index DirectPrepared::run_contiguous(const RunArgs& args, TileArgs tile, const FilterBlock& block,
                                     const Piece& piece, Index listed, const Scratch& scratch,
                                     Ahead& ahead) const {
  const auto vectors = static_cast<std::size_t>(block.vectors);
  const Index pixels = loops_.row_pixels[vectors], count = piece.last - piece.first;
  Index tiles = count / pixels, rest = count % pixels;
  // A list is cut into tiles of even size, which counts where they are few.
  if (tiles < 8 && rest > 0) tiles = 0, rest = count;
  // A last tile of a pixel would cost as much as one of several.
  if (tiles > 0 && rest > 0) --tiles, rest += pixels;
  const Index first = piece.rows.begin * shapes_.q + piece.first;
  const Index at = piece.image * args.x_stride.n + first * args.x_stride.w;
  const Index to = piece.image * args.y_stride.n + first * args.y_stride.w;
  for (Index i = count - rest; i < count; ++i, ++listed) {
    scratch.at[listed] = at + i * args.x_stride.w;
    scratch.to[listed] = to + i * args.y_stride.w;
  }
  if (tiles == 0) return listed;
  tile.x += at;
  tile.x_pitch = args.x_stride.w;
  tile.y += to;
  tile.y_pitch = args.y_stride.w;
  const Index portions = tiles * std::max<Index>(1, tile.run_count);
  tile.ahead = ahead.from;
  tile.ahead_lines = std::min<Index>(32, ceil_div(ceil_div(ahead.floats, 16), portions));
  const Index fetched = std::min(ahead.floats, 16 * tile.ahead_lines * portions);
  ahead = {ahead.from + fetched, ahead.floats - fetched};
  loops_.row[vectors](tile, tiles);
  return listed;
}

}  // namespace convoy::cpu
