// What a comparison prints. In JSON the summary goes to stderr: every line of stdout is a row.
#include "comparison.hpp"

#include <nlohmann/json.hpp>

#include <cstdio>

namespace chorale::bench::versus {
namespace {

std::string names_of(const std::vector<std::string>& labels) {
  std::string all;
  for (const std::string& label : labels) all += (all.empty() ? "" : ", ") + label;
  return all;
}

}  // namespace

void comparison::head() const {
  if (options_.common.format == report_format::json) return;
  std::vector<std::string> labels;
  for (std::size_t i = 1; i < sides_.size(); ++i)
    labels.push_back(sides_[i].who->plan().label() + " [" + sides_[i].who->name() + "]");
  const std::string what{options_.what.what->name};
  if (options_.common.format == report_format::markdown) {
    std::printf("\n%s, %d ranks, %s, beside %s:\n\n", what.c_str(), options_.what.ranks,
                options_.what.transport.c_str(), names_of(labels).c_str());
    std::printf("| bytes | chorale, µs | best peer, µs | ratio | |\n|---|---|---|---|---|\n");
  } else {
    std::printf("# %s of f32 on %d ranks over %s, beside %s\n", what.c_str(), options_.what.ranks,
                options_.what.transport.c_str(), names_of(labels).c_str());
    std::printf("# medians of %d samples taken in turn; ratio: the best peer's time over ours\n",
                options_.alternations);
    std::printf("# %10s %12s %10s %10s %8s %8s %7s %10s %7s %-5s %s\n", "size", "count", "time", "p99",
                "algbw", "busbw", "#wrong", "peer", "ratio", "", "by");
    std::printf("# %10s %12s %10s %10s %8s %8s %7s %10s\n", "(B)", "(elements)", "(us)", "(us)", "(GB/s)",
                "(GB/s)", "", "(us)");
  }
  std::fflush(stdout);
}

void comparison::line(const row& r) const {
  const double ratio = r.peer_us / r.time_us;
  const std::string verdict{name_of(outcome_of(ratio))};
  const std::string peer = r.peer->who->plan().label();
  const double algbw = static_cast<double>(r.bytes) / r.time_us / 1e3;
  switch (options_.common.format) {
    case report_format::json:
      json(r);
      break;
    case report_format::markdown:
      std::printf("| %s | %.2f | %.2f | %s | %s |\n", text_of_bytes(r.bytes).c_str(), r.time_us, r.peer_us,
                  (outcome_of(ratio) == outcome::won ? "**" + std::to_string(ratio).substr(0, 4) + "**"
                                                     : std::to_string(ratio).substr(0, 4))
                      .c_str(),
                  peer.c_str());
      break;
    case report_format::table:
      std::printf("  %10llu %12llu %10.2f %10.2f %8.3f %8.3f %7s %10.2f %7.2f %-5s %s\n",
                  static_cast<unsigned long long>(r.bytes), static_cast<unsigned long long>(r.count),
                  r.time_us, r.p99_us, algbw, algbw * options_.what.what->bus_factor(options_.what.ranks),
                  options_.common.check ? std::to_string(r.wrong).c_str() : "N/A", r.peer_us, ratio,
                  verdict.c_str(), peer.c_str());
      break;
  }
  std::fflush(stdout);
}

void comparison::json(const row& r) const {
  const benched_collective& what = *options_.what.what;
  const double algbw = static_cast<double>(r.bytes) / r.time_us / 1e3;
  nlohmann::ordered_json object;
  object["collective"] = what.name;
  object["bytes"] = r.bytes;
  object["count"] = r.count;
  object["dtype"] = chorale::name_of(options_.common.type);
  object["op"] = chorale::name_of(reduces(what.kind) ? options_.common.op : reduction::none);
  object["in_place"] = false;
  object["ranks"] = options_.what.ranks;
  object["transport"] = options_.what.transport;
  object["algorithm"] = own_plan_.setting.empty() ? "auto" : own_plan_.setting;
  object["time_us"] = r.time_us;
  object["p99_us"] = r.p99_us;
  object["algbw"] = algbw;
  object["busbw"] = algbw * what.bus_factor(options_.what.ranks);
  object["wrong"] = options_.common.check ? nlohmann::ordered_json(r.wrong) : nlohmann::ordered_json(nullptr);
  object["peer"] = r.peer->who->plan().label();
  object["peer_time_us"] = r.peer_us;
  object["ratio"] = r.peer_us / r.time_us;
  for (std::size_t i = 1; i < sides_.size(); ++i)
    object["peers"][sides_[i].who->plan().label()] = median(sides_[i].times);
  std::printf("%s\n", object.dump().c_str());
}

void comparison::end() const {
  if (verdict_.empty()) return;
  const std::string title = std::string{options_.what.what->name} + " over " + options_.what.transport +
                            ", " + std::to_string(options_.what.ranks) + " ranks: ";
  const std::string losses = verdict_.losses();
  switch (options_.common.format) {
    case report_format::json:
      std::fprintf(stderr, "# %s%s\n", title.c_str(), verdict_.summary().c_str());
      if (!losses.empty()) std::fprintf(stderr, "# %s\n", losses.c_str());
      break;
    case report_format::markdown:
      std::printf("\n%s%s\n", verdict_.summary().c_str(),
                  losses.empty() ? "." : ("; " + losses + ".").c_str());
      break;
    case report_format::table:
      std::printf("# %s%s\n", title.c_str(), verdict_.summary().c_str());
      if (!losses.empty()) std::printf("# %s\n", losses.c_str());
      break;
  }
  std::fflush(stdout);
}

}  // namespace chorale::bench::versus
