#include "io/idx.hpp"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <array>

#include "convoy/error.hpp"
#include "core/failure.hpp"
#include "core/file.hpp"
#include "core/printable.hpp"

namespace convoy::io {
namespace {

// Deflate can't shrink anything to less than 1/1032: a header that claims more than that lies.
constexpr std::uint64_t max_deflate_ratio = 1032;

/// The bytes of a file one after the other, inflated on the way if they are gzip.
class Source {
 public:
  Source(std::span<const unsigned char> bytes, const std::string& name)
      : bytes_(bytes),
        name_(name),
        gzip_(bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) {
    if (bytes.empty())
      throw InvalidFile(name + ": empty, expected an IDX file. Was the download cut short?");
    if (!gzip_) return;
    stream_.next_in = const_cast<Bytef*>(bytes.data());
    stream_.avail_in = static_cast<uInt>(std::min<std::size_t>(bytes.size(), UINT32_MAX));
    if (inflateInit2(&stream_, 15 + 16) != Z_OK)
      throw NoMemory(name + ": zlib could not be started. Free some memory.");
  }
  ~Source() {
    if (gzip_) inflateEnd(&stream_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  /// The most bytes that can still come, for all that is known without inflating them.
  std::uint64_t most_left() const {
    return gzip_ ? std::uint64_t{bytes_.size()} * max_deflate_ratio : bytes_.size() - at_;
  }

  bool inflates() const { return gzip_; }

  /// Fills `to` as far as there are bytes; returns how many there were.
  std::size_t take(std::span<unsigned char> to) {
    if (!gzip_) {
      const std::size_t count = std::min(to.size(), bytes_.size() - at_);
      std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at_), count, to.begin());
      at_ += count;
      return count;
    }
    std::size_t done = 0;
    while (done < to.size() && !ended_) {
      const auto want = static_cast<uInt>(std::min<std::size_t>(to.size() - done, 1U << 30));
      stream_.next_out = to.data() + done;
      stream_.avail_out = want;
      const int result = inflate(&stream_, Z_NO_FLUSH);
      done += want - stream_.avail_out;
      if (result == Z_STREAM_END) {
        // gzip: files put one behind the other are one file.
        const bool more =
            stream_.avail_in >= 2 && stream_.next_in[0] == 0x1f && stream_.next_in[1] == 0x8b;
        ended_ = !more || inflateReset(&stream_) != Z_OK;
      } else if (result == Z_BUF_ERROR ||
                 (result == Z_OK && stream_.avail_in == 0 && stream_.avail_out)) {
        throw InvalidFile(name_ + ": the gzip data ends early. Was the download cut short?");
      } else if (result != Z_OK) {
        throw InvalidFile(fmt::format("{}: broken gzip data ({}). Fetch the file again.", name_,
                                      stream_.msg ? stream_.msg : "damaged"));
      }
    }
    return done;
  }

  /// Throws unless all bytes were taken, and, for gzip, the checksum was right. `total` is how many
  /// the header promised.
  void expect_end(std::uint64_t total) {
    unsigned char one = 0;
    if (take({&one, 1}) != 0)
      throw InvalidFile(
          fmt::format("{}: found more bytes than the {} of its header. Is it one whole IDX file?",
                      name_, total));
    if (gzip_ && stream_.avail_in != 0)
      throw InvalidFile(
          name_ +
          ": found bytes after the end of the gzip data, expected none. Is it one whole file?");
  }

 private:
  std::span<const unsigned char> bytes_;
  const std::string& name_;
  bool gzip_, ended_ = false;
  std::size_t at_ = 0;
  z_stream stream_{};
};

std::uint32_t big_endian(const unsigned char* at) {
  return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 |
         at[3];
}

std::uint32_t read_number(Source& source, const std::string& name, const char* what) {
  std::array<unsigned char, 4> bytes{};
  if (source.take(bytes) != 4)
    throw InvalidFile(fmt::format("{}: ends before its {}. Was the file cut short?", name, what));
  return big_endian(bytes.data());
}

/// The bytes behind the header; `sizes` are those in it.
std::vector<std::uint8_t> read_body(Source& source, const std::string& name,
                                    std::span<const std::uint32_t> sizes) {
  std::uint64_t total = 1;
  std::string text;
  for (const std::uint32_t size : sizes) {
    text += (text.empty() ? "" : " x ") + std::to_string(size);
    if (size == 0)
      throw InvalidFile(fmt::format(
          "{}: found a size of 0 in its header ({}), expected 1 or more. Use another file.", name,
          text));
    if (total > (std::uint64_t{1} << 40) / size)
      throw InvalidFile(
          fmt::format("{}: its header gives more than {} bytes, expected fewer. The file is "
                      "damaged: fetch it again.",
                      name, text));
    total *= size;
  }
  if (total > source.most_left())
    throw InvalidFile(
        fmt::format("{}: its header gives {} = {} bytes, but the file can hold at most {}. "
                    "Was the file cut short?",
                    name, text, total, source.most_left()));
  // What a gzip file claims is not believed: memory grows with what comes out of it.
  constexpr std::uint64_t at_first = 1 << 20;
  std::vector<std::uint8_t> data;
  std::uint64_t got = 0;
  for (std::uint64_t size = 0; got == size && size < total;) {
    size = source.inflates() ? std::min(total, std::max(at_first, 2 * size)) : total;
    data.resize(size);
    got += source.take(std::span(data).subspan(got));
  }
  if (got != total)
    throw InvalidFile(
        fmt::format("{}: {} bytes after the header, expected {} = {}. Was the file cut short?",
                    name, got, text, total));
  source.expect_end(total);
  return data;
}

}  // namespace

Images parse_images(std::span<const unsigned char> bytes, const std::string& name) {
  Source source(bytes, name);
  const std::uint32_t magic = read_number(source, name, "magic number");
  if (magic != 0x803 && magic != 0x804)
    throw InvalidFile(fmt::format(
        "{}: magic number 0x{:08x}, expected 0x00000803 (u8 images N,H,W) or "
        "0x00000804 (N,H,W,C){}",
        name, magic,
        magic == 0x801 ? ". These are labels: give the images." : ". Is it an IDX file?"));
  std::array<std::uint32_t, 4> sizes{0, 0, 0, 1};
  const std::size_t rank = magic & 0xff;
  for (std::size_t i = 0; i < rank; ++i) sizes[i] = read_number(source, name, "sizes");
  Images images{sizes[0], sizes[1], sizes[2], sizes[3], {}};
  images.data = read_body(source, name, {sizes.data(), rank});
  return images;
}

Images read_images(const std::string& path) {
  return parse_images(read_file(path), printable_path(path));
}

std::vector<std::uint8_t> parse_labels(std::span<const unsigned char> bytes,
                                       const std::string& name) {
  Source source(bytes, name);
  const std::uint32_t magic = read_number(source, name, "magic number");
  if (magic != 0x801)
    throw InvalidFile(
        fmt::format("{}: magic number 0x{:08x}, expected 0x00000801 (u8 labels){}", name, magic,
                    magic == 0x803 || magic == 0x804 ? ". These are images: give the labels."
                                                     : ". Is it an IDX file?"));
  const std::array<std::uint32_t, 1> sizes{read_number(source, name, "size")};
  return read_body(source, name, sizes);
}

std::vector<std::uint8_t> read_labels(const std::string& path) {
  return parse_labels(read_file(path), printable_path(path));
}

}  // namespace convoy::io
