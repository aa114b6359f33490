// One run of an algorithm over real memory, judged against the collective's definition: any collective, any
// form of call, blocks of any length at any place, elements folded in a wider type where the plan says so.
//
// Inputs are arbitrary floats, so that every order of additions gives other bits. Around and between the
// blocks of every buffer lie marks that must survive, as must the inputs and outputs of ranks that have none.
#pragma once

#include "reference_executor.hpp"
#include <chorale/schedule/lowering.hpp>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace trials {

namespace cs = chorale::schedule;
using chorale::rank_t;

enum class layout {
  even,    ///< blocks cut from one count
  packed,  ///< lengths of their own, one behind the other
  spread,  ///< and in any order, with gaps
};

struct trial {
  std::uint64_t count = 0;  ///< elements per unit, or the longest block
  std::uint32_t pieces = 1;
  cs::placement form = cs::placement::out_of_place;
  layout blocks = layout::even;
  std::uint64_t seed = 0;
  bool wide = false;
};

std::string describe(const cs::algorithm& a, const trial& t);

/// Empty, or what went wrong. `left_fold`: sums must be the fold in rank order to the bit.
std::string attempt(const cs::algorithm& a, const trial& t, bool left_fold);

}  // namespace trials
