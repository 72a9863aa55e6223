// Metrics that are computed when a page is requested.
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

  // Declares a counter that may have no values.
  void DeclareCounter(const std::string& name, const std::string& help);
  void AddCounter(const std::string& name, const std::string& help, double value,
                  const Labels& labels = {});
  // Declares a gauge that may have no values.
  void DeclareGauge(const std::string& name, const std::string& help);
  void AddGauge(const std::string& name, const std::string& help, double value,
                const Labels& labels = {});
  // Adds memory, file descriptors, processor time and start time of this process under the usual
  // names, and `lathe_build_info`.
  void AddProcess();

  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  // Values with one name and different labels form one family if they are added consecutively.
  prometheus::MetricFamily& Family(const std::string& name, const std::string& help,
                                   prometheus::MetricType type);
  prometheus::ClientMetric& Add(const std::string& name, const std::string& help,
                                prometheus::MetricType type, const Labels& labels);

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace lathe
