// 3x3 by Winograd's F(2x2, 3x3), and with stride 2 by F(2, 2) of its even inputs.
#include "cpu/families.hpp"
#include "cpu/winograd.hpp"

namespace convoy::cpu {
namespace {

class Winograd2 final : public Kernel {
 public:
  std::string_view name() const override { return "winograd2"; }
  std::string_view arithmetic() const override { return "winograd f2"; }
  bool exact() const override { return true; }
  DeviceKind device() const override { return DeviceKind::cpu; }
  std::vector<std::string> refusals(const Stage& stage, const Machine& machine) const override {
    return winograd::refusals(stage, machine, 2);
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    return winograd::tiles(stage, machine, 2);
  }
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    return winograd::cost(stage, tile, machine, 2);
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return winograd::prepare(stage, tile, machine, 2);
  }
};

}  // namespace

const Kernel& winograd2() {
  static const Winograd2 kernel;
  return kernel;
}

}  // namespace convoy::cpu
