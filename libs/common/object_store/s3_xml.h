// Reads the XML of an object store's answers.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace lathe {

// An element. Text that is no XML, and a child that is missing, give an element without text and
// children.
class XmlElement {
 public:
  // Returns the root element of a document.
  static XmlElement Parse(const std::string& text);

  const std::string& name() const { return name_; }
  // Returns the first child of that name.
  XmlElement Child(const std::string& name) const;
  std::vector<XmlElement> Children(const std::string& name) const;
  // Returns the text of the first child of that name.
  std::string Text(const std::string& name) const { return Child(name).text_; }
  const std::string& text() const { return text_; }

 private:
  struct Node;
  std::string name_;
  std::string text_;
  std::shared_ptr<const Node> node_;
};

}  // namespace lathe
