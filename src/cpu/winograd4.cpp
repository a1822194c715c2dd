// 3x3 stride 1 by Winograd's F(4x4, 3x3).
#include "cpu/families.hpp"
#include "cpu/winograd.hpp"

namespace convoy::cpu {
namespace {

class Winograd4 final : public Kernel {
 public:
  std::string_view name() const override { return "winograd4"; }
  std::string_view arithmetic() const override { return "winograd f4"; }
  bool exact() const override { return false; }
  DeviceKind device() const override { return DeviceKind::cpu; }
  std::vector<std::string> refusals(const Stage& stage, const Machine& machine) const override {
    return winograd::refusals(stage, machine, 4);
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    return winograd::tiles(stage, machine, 4);
  }
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    return winograd::cost(stage, tile, machine, 4);
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return winograd::prepare(stage, tile, machine, 4);
  }
};

}  // namespace

const Kernel& winograd4() {
  static const Winograd4 kernel;
  return kernel;
}

}  // namespace convoy::cpu
