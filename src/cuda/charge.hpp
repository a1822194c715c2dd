// How a neuron is charged on the GPU: what kernels are told of it. Host and device.
#pragma once

#include <cmath>
#include <cstdint>

#include "convoy/stage.hpp"

namespace convoy::cuda {

/// How a membrane is charged: v + x, or v + (x - v)/tau, where 1/tau is a number or is not.
enum class Charge : std::uint8_t { add, scale, divide };

struct DeviceNeuron {
  float threshold, tau, by_tau;
  Charge charge;
  bool soft;
};

/// Of a stage with a neuron.
inline DeviceNeuron device_neuron(const Stage& stage) {
  const Activation& act = stage.act;
  int exponent = 0;
  const Charge charge = act.kind != Activation::Kind::lif          ? Charge::add
                        : std::frexp(act.tau(), &exponent) == 0.5F ? Charge::scale
                                                                   : Charge::divide;
  return {act.threshold(), act.tau(), 1 / act.tau(), charge, stage.soft};
}

}  // namespace convoy::cuda
