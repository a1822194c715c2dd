// An H200's facts, for whatever needs no GPU: tests, and fits to what was measured on one.
#pragma once

#include "cuda/device.hpp"
#include "cuda/known_gpus.hpp"
