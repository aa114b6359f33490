#include "shard.hpp"

#include <algorithm>

namespace parameter_server {

shard::shard(std::span<const float> initial, rules by)
    : rules_{by},
      parameters_{std::make_shared<const std::vector<float>>(initial.begin(), initial.end())},
      sum_(initial.size()),
      velocity_(initial.size()) {}

joined shard::join(std::uint32_t worker) {
  member& m = members_[worker];
  m.record.worker = worker;
  ++m.record.sessions;
  return {m.record.sessions, m.last_number};
}

pushed shard::push(const pushing& what, std::span<const float> gradient) {
  const auto found = members_.find(what.worker);
  if (found == members_.end() || found->second.record.sessions != what.session)
    return {verdict::superseded, version_};
  member& m = found->second;
  if (what.number <= m.last_number) {
    ++m.record.again;
    return {verdict::again, version_};
  }
  // A restarted worker may find that its former self has contributed to this version already.
  if (what.version != version_ || m.contributed || over()) {
    ++m.record.late;
    return {verdict::late, version_};
  }
  for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += gradient[i];
  m.last_number = what.number;
  m.contributed = true;
  ++m.record.applied;
  ledger_.push_back({what.worker, what.number, what.version});
  if (++contributions_ == rules_.close_at) close_version();
  return {verdict::applied, version_};
}

void shard::close_version() {
  auto next = std::make_shared<std::vector<float>>(*parameters_);
  const float mean = 1.0F / static_cast<float>(contributions_);
  for (std::size_t i = 0; i < sum_.size(); ++i) {
    velocity_[i] = rules_.momentum * velocity_[i] + sum_[i] * mean;
    (*next)[i] -= rules_.rate * velocity_[i];
  }
  parameters_ = std::move(next);
  std::ranges::fill(sum_, 0.0F);
  contributions_ = 0;
  ++version_;
  for (auto& [worker, m] : members_) m.contributed = false;
}

std::vector<worker_record> shard::records() const {
  std::vector<worker_record> all;
  for (const auto& [worker, m] : members_) all.push_back(m.record);
  return all;
}

}  // namespace parameter_server
