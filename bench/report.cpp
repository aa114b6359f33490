#include "report.hpp"

#include <nlohmann/json.hpp>

#include <cstdio>

namespace chorale::bench {

std::string transport_of(const communicator& comm) {
  std::string found;
  for (rank_t r = 0; r < comm.size(); ++r)
    if (r != comm.rank())
      found = found.empty() || found == comm.transport_to(r) ? std::string{comm.transport_to(r)}
                                                             : std::string{"mixed"};
  return found.empty() ? "self" : found;
}

double report::algbw(const row& r, const measurement& m) const {
  return static_cast<double>(r.bytes) / m.took.time_us / 1e3;
}
double report::busbw(const row& r, const measurement& m) const {
  return algbw(r, m) * what_.bus_factor(ranks_);
}

void report::head() const {
  if (options_.format == report_format::json) return;
  std::string of = " of " + std::string{name_of(options_.type)};
  if (reduces(what_.kind)) of += ", " + std::string{name_of(options_.op)};
  if (has_root(what_.kind)) of += ", root " + std::to_string(options_.root);
  if (what_.kind == collective_kind::barrier) of.clear();
  std::printf("# %s%s, on %d rank%s over %s; warm-up %d calls, check %s\n", std::string{what_.name}.c_str(),
              of.c_str(), ranks_, ranks_ == 1 ? "" : "s", transport_.c_str(), options_.warmup,
              options_.check ? "on" : "off");
  const int blocks = what_.has_in_place_form ? 2 : 1;
  std::printf("# %10s %12s", "", "");
  for (int b = 0; b < blocks; ++b) std::printf(" %47s ", b == 0 ? "out-of-place" : "in-place");
  std::printf("\n# %10s %12s", "size", "count");
  for (int b = 0; b < blocks; ++b)
    std::printf(" %10s %10s %8s %8s %7s ", "time", "p99", "algbw", "busbw", "#wrong");
  std::printf("\n# %10s %12s", "(B)", "(elements)");
  for (int b = 0; b < blocks; ++b)
    std::printf(" %10s %10s %8s %8s %7s ", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
  std::printf("\n");
}

void report::line(const row& r) const {
  if (options_.format == report_format::json) {
    json(r, r.out_of_place, false);
    if (r.in_place) json(r, *r.in_place, true);
  } else {
    std::printf("  %10llu %12llu", static_cast<unsigned long long>(r.bytes),
                static_cast<unsigned long long>(r.count));
    for (const measurement* m : {&r.out_of_place, r.in_place ? &*r.in_place : nullptr})
      if (m)
        std::printf(" %10.2f %10.2f %8.3f %8.3f %7s ", m->took.time_us, m->took.p99_us, algbw(r, *m),
                    busbw(r, *m), options_.check ? std::to_string(m->wrong).c_str() : "N/A");
    std::printf("\n");
  }
  std::fflush(stdout);
}

void report::json(const row& r, const measurement& m, bool in_place) const {
  nlohmann::ordered_json object;
  object["collective"] = what_.name;
  object["bytes"] = r.bytes;
  object["count"] = r.count;
  object["dtype"] = name_of(options_.type);
  object["op"] = reduces(what_.kind) ? name_of(options_.op) : name_of(reduction::none);
  object["in_place"] = in_place;
  object["ranks"] = ranks_;
  object["transport"] = transport_;
  object["algorithm"] = options_.algorithm.empty() ? "auto" : options_.algorithm;
  object["time_us"] = m.took.time_us;
  object["p99_us"] = m.took.p99_us;
  object["algbw"] = algbw(r, m);
  object["busbw"] = busbw(r, m);
  object["wrong"] = options_.check ? nlohmann::ordered_json(m.wrong) : nlohmann::ordered_json(nullptr);
  std::printf("%s\n", object.dump().c_str());
}

void report::end(std::uint64_t wrong) const {
  if (options_.format == report_format::table && options_.check)
    std::printf("# wrong values: %llu%s\n", static_cast<unsigned long long>(wrong), wrong == 0 ? ", OK" : "");
}

}  // namespace chorale::bench
