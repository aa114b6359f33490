// What each rank does in the GPU tests. A scenario returns 0 when all it checked held.
#pragma once

#include <string>
#include <vector>

namespace chorale::gpu_test {

struct rank_setting {
  int rank = 0;
  int size = 1;
  int device = 0;
  bool one_gpu = false;     ///< all ranks on one GPU: right or wrong shows there too, speed does not
  std::vector<int> groups;  ///< this rank's ends of the hubs, one per device group that the scenario makes
  int control = -1;    ///< a socket to the parent, for the rank that tells it when and waits for its word
  bool small = false;  ///< few and small sizes: under compute-sanitizer
};

struct scenario {
  const char* name;
  int (*run)(const rank_setting&);
  bool victim;  ///< the parent kills rank 1, then tells rank 0 and starts rank 1 again
};
const std::vector<scenario>& all_scenarios();
/// The part of them that is about collectives other than the f32 sum.
const std::vector<scenario>& collective_scenarios();

}  // namespace chorale::gpu_test
