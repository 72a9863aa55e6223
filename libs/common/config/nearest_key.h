// "did you mean": private to config.
#pragma once

#include <string>
#include <vector>

namespace lathe {

// ", did you mean 'x'?" with the candidate of the smallest edit distance; "" when none is near.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace lathe
