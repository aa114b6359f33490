// Reads algorithms in the XML dialect of MSCCL (algo / gpu / tb / step) into chorale's representation.
//
// A thread block becomes a chain of steps on its channel; `depid`/`deps` become dependencies on the step of
// another thread block of the same GPU; a `nop` only carries dependencies on to the next step. Buffers i, o,
// s are in, out, scratch; scratch blocks get their sizes by following the data. Nothing is judged beyond
// form: run the checker on what comes out, with memory_ordering::through_messages if the file leans on it.
//
// Errors are errc::invalid_argument (errc::unsupported for collectives outside chorale's definitions) and
// name file, line and element. The text may come from anywhere: it is limited in size, never trusted.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/schedule/schedule.hpp>

#include <filesystem>
#include <string_view>

namespace chorale::schedule {

/// `origin` names the text in errors.
[[nodiscard]] result<algorithm> parse_msccl(std::string_view xml, std::string_view origin);
[[nodiscard]] result<algorithm> load_msccl(const std::filesystem::path& file);

}  // namespace chorale::schedule
