// Open MPI as the driver of a comparison meets it: openmpi_peer FOLDER, started by mpirun. protocol.hpp says
// what it reads and writes; which of Open MPI's ways is taken is mpirun's parameters' affair.
#include "binding.hpp"
#include "session.hpp"

#include <mpi.h>

#include <cstdio>
#include <cstdlib>

namespace {

using namespace chorale;
using namespace chorale::bench;

class openmpi final : public peers::peer {
 public:
  std::string prepare(const subject& about, std::byte* in, std::byte* out) override {
    kind_ = about.what->kind;
    in_ = in;
    out_ = out;
    count_ = static_cast<int>(about.count);
    return about.count == static_cast<std::uint64_t>(count_) ? "" : "MPI 3 counts elements in int";
  }

  void call() override {
    const MPI_Comm all = MPI_COMM_WORLD;
    switch (kind_) {
      case collective_kind::all_reduce:
        MPI_Allreduce(in_, out_, count_, MPI_FLOAT, MPI_SUM, all);
        break;
      case collective_kind::reduce:
        MPI_Reduce(in_, out_, count_, MPI_FLOAT, MPI_SUM, 0, all);
        break;
      case collective_kind::broadcast:
        MPI_Bcast(in_, count_, MPI_FLOAT, 0, all);
        break;
      case collective_kind::all_gather:
        MPI_Allgather(in_, count_, MPI_FLOAT, out_, count_, MPI_FLOAT, all);
        break;
      case collective_kind::reduce_scatter:
        MPI_Reduce_scatter_block(in_, out_, count_, MPI_FLOAT, MPI_SUM, all);
        break;
      case collective_kind::all_to_all:
        MPI_Alltoall(in_, count_, MPI_FLOAT, out_, count_, MPI_FLOAT, all);
        break;
      case collective_kind::gather:
        MPI_Gather(in_, count_, MPI_FLOAT, out_, count_, MPI_FLOAT, 0, all);
        break;
      case collective_kind::scatter:
        MPI_Scatter(in_, count_, MPI_FLOAT, out_, count_, MPI_FLOAT, 0, all);
        break;
      case collective_kind::scan:
        MPI_Scan(in_, out_, count_, MPI_FLOAT, MPI_SUM, all);
        break;
      case collective_kind::exscan:
        MPI_Exscan(in_, out_, count_, MPI_FLOAT, MPI_SUM, all);
        break;
      case collective_kind::message:
        exchange();
        break;
      default:
        MPI_Barrier(all);
        break;
    }
  }

  [[nodiscard]] bool answers_in_place() const override { return kind_ == collective_kind::broadcast; }
  void meet() override { MPI_Barrier(MPI_COMM_WORLD); }
  double largest(double mine) override { return over_all(mine, MPI_MAX); }
  double sum(double mine) override { return over_all(mine, MPI_SUM); }

 private:
  void exchange() {
    int rank = 0;
    int ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Sendrecv(in_, count_, MPI_FLOAT, (rank + 1) % ranks, 0, out_, count_, MPI_FLOAT,
                 (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  static double over_all(double mine, MPI_Op op) {
    double made = mine;
    MPI_Allreduce(MPI_IN_PLACE, &made, 1, MPI_DOUBLE, op, MPI_COMM_WORLD);
    return made;
  }
  collective_kind kind_ = collective_kind::none;
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  int count_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const char* const local = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  const char* const of = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (argc != 2 || !local || !of) {
    std::fprintf(stderr, "openmpi_peer FOLDER: to be started by mpirun, by chorale bench --vs openmpi\n");
    return 2;
  }
  peers::bind_to_share(std::atoi(local), std::atoi(of));
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  {
    openmpi library;
    peers::session serving{library, rank, ranks};
    serving.serve("Open MPI " + std::to_string(OMPI_MAJOR_VERSION) + "." +
                      std::to_string(OMPI_MINOR_VERSION) + "." + std::to_string(OMPI_RELEASE_VERSION),
                  argv[1]);
  }
  MPI_Finalize();
  return 0;
}
