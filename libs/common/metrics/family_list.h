// Metrics that are read when a page is asked for, instead of being kept.
#pragma once

#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <vector>

namespace lathe {

// Collects families in the form that prometheus::Collectable gives them.
class FamilyList {
 public:
  using Labels = std::map<std::string, std::string>;

  // There may be no values of it.
  void DeclareCounter(const std::string& name, const std::string& help);
  void AddCounter(const std::string& name, const std::string& help, double value,
                  const Labels& labels = {});
  void AddGauge(const std::string& name, const std::string& help, double value,
                const Labels& labels = {});
  // Memory, file descriptors, processor time and start of this process, under the usual names, and
  // `lathe_build_info`.
  void AddProcess();

  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  // Values of one name that differ in labels are one family, if they are added one after the other.
  prometheus::MetricFamily& Family(const std::string& name, const std::string& help,
                                   prometheus::MetricType type);
  prometheus::ClientMetric& Add(const std::string& name, const std::string& help,
                                prometheus::MetricType type, const Labels& labels);

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace lathe
