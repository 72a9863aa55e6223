// "did you mean".
#pragma once

#include <string>
#include <vector>

namespace lathe {

// The candidate of the smallest edit distance; "" when none is near.
std::string NearestKey(const std::string& word, const std::vector<std::string>& candidates);

// ", did you mean 'x'?" with NearestKey; "" when there is none.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace lathe
