#include "libs/common/object_store/s3_xml.h"

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <sstream>
#include <utility>

namespace lathe {

struct XmlElement::Node {
  boost::property_tree::ptree tree;
};

XmlElement XmlElement::Parse(const std::string& text) {
  XmlElement root;
  try {
    std::istringstream stream(text);
    boost::property_tree::ptree document;
    boost::property_tree::read_xml(stream, document,
                                   boost::property_tree::xml_parser::trim_whitespace);
    for (auto& [name, child] : document) {
      if (name.empty() || name[0] == '<') continue;  // comments and attributes
      root.name_ = name;
      root.text_ = child.data();
      root.node_ = std::make_shared<const Node>(Node{child});
      break;
    }
  } catch (const boost::property_tree::xml_parser_error&) {
    return {};
  }
  return root;
}

std::vector<XmlElement> XmlElement::Children(const std::string& name) const {
  std::vector<XmlElement> found;
  if (node_ == nullptr) return found;
  const auto [begin, end] = node_->tree.equal_range(name);
  for (auto it = begin; it != end; ++it) {
    XmlElement element;
    element.name_ = name;
    element.text_ = it->second.data();
    element.node_ = std::make_shared<const Node>(Node{it->second});
    found.push_back(std::move(element));
  }
  return found;
}

XmlElement XmlElement::Child(const std::string& name) const {
  if (node_ == nullptr) return {};
  const auto it = node_->tree.find(name);
  if (it == node_->tree.not_found()) return {};
  XmlElement element;
  element.name_ = name;
  element.text_ = it->second.data();
  element.node_ = std::make_shared<const Node>(Node{it->second});
  return element;
}

}  // namespace lathe
