// Files that CMake builds into the gateway.
#pragma once

#include <string_view>

namespace lathe::gateway {

// Files of services/api-gateway/docs_page/.
std::string_view OpenApiJson();
std::string_view DocsIndexHtml();
std::string_view DocsPageJs();
std::string_view DocsPageCss();

}  // namespace lathe::gateway
