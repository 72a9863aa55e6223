#include "libs/common/metrics/family_list.h"

#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "libs/common/memory/process_memory.h"
#include "libs/common/version.h"

namespace lathe {
namespace {

// Time at which this library was loaded, close enough to the start of the process.
const auto kStartedAt = std::chrono::system_clock::now();

double OpenFiles() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  if (error) return 0;
  return static_cast<double>(std::distance(files, std::filesystem::directory_iterator()));
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

prometheus::MetricFamily& FamilyList::Family(const std::string& name, const std::string& help,
                                             prometheus::MetricType type) {
  if (families_.empty() || families_.back().name != name) {
    families_.push_back({name, help, type, {}});
  }
  return families_.back();
}

prometheus::ClientMetric& FamilyList::Add(const std::string& name, const std::string& help,
                                          prometheus::MetricType type, const Labels& labels) {
  prometheus::ClientMetric& metric = Family(name, help, type).metric.emplace_back();
  for (const auto& [label, value] : labels) metric.label.push_back({label, value});
  return metric;
}

void FamilyList::DeclareCounter(const std::string& name, const std::string& help) {
  Family(name, help, prometheus::MetricType::Counter);
}

void FamilyList::DeclareGauge(const std::string& name, const std::string& help) {
  Family(name, help, prometheus::MetricType::Gauge);
}

void FamilyList::AddCounter(const std::string& name, const std::string& help, double value,
                            const Labels& labels) {
  Add(name, help, prometheus::MetricType::Counter, labels).counter.value = value;
}

void FamilyList::AddGauge(const std::string& name, const std::string& help, double value,
                          const Labels& labels) {
  Add(name, help, prometheus::MetricType::Gauge, labels).gauge.value = value;
}

void FamilyList::AddProcess() {
  AddGauge("lathe_build_info", "1, labelled with what runs", 1,
           {{"version", std::string(kVersion)}});
  AddGauge("process_resident_memory_bytes", "memory that is in use",
           static_cast<double>(ResidentMemoryBytes()));
  AddGauge("process_open_fds", "open file descriptors", OpenFiles());
  AddCounter("process_cpu_seconds_total", "processor time", CpuSeconds());
  AddGauge("process_start_time_seconds", "start, Unix time",
           std::chrono::duration<double>(kStartedAt.time_since_epoch()).count());
}

}  // namespace lathe
