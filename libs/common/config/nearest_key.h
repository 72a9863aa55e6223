// Suggestions for misspelled keys.
#pragma once

#include <string>
#include <vector>

namespace lathe {

// Returns the candidate with the smallest edit distance, or "" when none is near.
std::string NearestKey(const std::string& word, const std::vector<std::string>& candidates);

// Returns ", did you mean 'x'?" with NearestKey, or "" when there is none.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace lathe
