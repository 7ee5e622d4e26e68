//! Use of GPUs, processors and memory by a job, over time.

use serde::{Deserialize, Serialize};

/// Use of resources by a job at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSample {
    /// The time by the host's clock, in seconds since 1970.
    pub at: u64,
    /// Processor time since the sample before, in percent of one processor.
    pub cpu_percent: u32,
    /// Memory of its processes, in KiB.
    pub memory_kib: u64,
    /// Its GPUs together. `None` if the host does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpuUsage>,
}

/// Use of a job's GPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUsage {
    /// Mean of their use, in percent.
    pub percent: u32,
    /// Memory in use on all of them, in MiB.
    pub memory_mib: u64,
    /// Temperature of the hottest, in °C.
    pub temperature: u32,
}

/// Samples of a job in the order of their times. Those of a long job stand for longer and longer times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UsageSeries(Vec<UsageSample>);

/// Number of samples at which two become one.
const MOST_SAMPLES: usize = 480;

impl UsageSample {
    /// Parses the words of a line of the host: `AT CPU_PERCENT MEMORY_KIB`, then `PERCENT,MEMORY_MIB,TEMPERATURE` of each GPU.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let [at, cpu, memory, gpus @ ..] = words else { return None };
        let gpus: Vec<GpuUsage> = gpus.iter().filter_map(|gpu| GpuUsage::parse(gpu)).collect();
        Some(Self {
            at: at.parse().ok()?,
            cpu_percent: cpu.parse().ok()?,
            memory_kib: memory.parse().ok()?,
            gpus: GpuUsage::together(&gpus),
        })
    }
}

impl GpuUsage {
    fn parse(words: &str) -> Option<Self> {
        let mut words = words.split(',');
        Some(Self {
            percent: words.next()?.parse().ok()?,
            memory_mib: words.next()?.parse().ok()?,
            temperature: words.next()?.parse().ok()?,
        })
    }

    fn together(gpus: &[Self]) -> Option<Self> {
        let count = u32::try_from(gpus.len()).ok().filter(|count| *count > 0)?;
        let percent: u32 = gpus.iter().map(|gpu| gpu.percent.min(100)).sum();
        Some(Self {
            percent: percent / count,
            memory_mib: gpus.iter().fold(0, |sum, gpu| gpu.memory_mib.saturating_add(sum)),
            temperature: gpus.iter().map(|gpu| gpu.temperature).max().unwrap_or_default(),
        })
    }
}

impl UsageSeries {
    /// The samples.
    pub fn samples(&self) -> &[UsageSample] {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a sample. One that is not newer than the last is known already.
    pub fn add(&mut self, sample: UsageSample) {
        if self.0.last().is_some_and(|last| sample.at <= last.at) {
            return;
        }
        self.0.push(sample);
        if self.0.len() >= MOST_SAMPLES {
            self.0 = self.0.chunks(2).map(highest).collect();
        }
    }

    /// Since when its GPUs have been idle, and for how many seconds up to the last sample. `None` if they are in use, or not known.
    pub fn idle_gpus(&self) -> Option<(u64, u64)> {
        let is_idle = |sample: &&UsageSample| sample.gpus.is_some_and(|gpus| gpus.percent == 0);
        let last = self.0.last()?;
        let first_idle = self.0.iter().rev().take_while(is_idle).last()?;
        Some((first_idle.at, last.at - first_idle.at))
    }
}

/// One sample for several, in their order: the time of the last, and the highest figures.
fn highest(samples: &[UsageSample]) -> UsageSample {
    let gpus = samples.iter().filter_map(|sample| sample.gpus).reduce(|one, other| GpuUsage {
        percent: one.percent.max(other.percent),
        memory_mib: one.memory_mib.max(other.memory_mib),
        temperature: one.temperature.max(other.temperature),
    });
    UsageSample {
        at: samples.last().map_or(0, |last| last.at),
        cpu_percent: samples.iter().map(|sample| sample.cpu_percent).max().unwrap_or_default(),
        memory_kib: samples.iter().map(|sample| sample.memory_kib).max().unwrap_or_default(),
        gpus,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(at: u64, percent: u32) -> UsageSample {
        let words = format!("{at} 150 2048 {percent},1000,60 {percent},3000,70");
        UsageSample::parse(&words.split(' ').collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_line_of_the_host_has_one_job_and_its_gpus_together() {
        let expected = UsageSample {
            at: 5,
            cpu_percent: 150,
            memory_kib: 2048,
            gpus: Some(GpuUsage {
                percent: 80,
                memory_mib: 4000,
                temperature: 70,
            }),
        };
        assert_eq!(sample(5, 80), expected);
        assert_eq!(UsageSample::parse(&["5", "0", "8"]).unwrap().gpus, None);
        for wrong in [&["5"][..], &["x", "0", "8"], &["5", "-1", "8"], &[]] {
            assert_eq!(UsageSample::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn idle_time_counts_from_the_first_idle_sample_after_use() {
        let mut series = UsageSeries::default();
        assert_eq!(series.idle_gpus(), None);
        for (at, percent, idle) in [
            (5, 90, None),
            (10, 0, Some((10, 0))),
            (15, 0, Some((10, 5))),
            (20, 3, None),
            (25, 0, Some((25, 0))),
        ] {
            series.add(sample(at, percent));
            assert_eq!(series.idle_gpus(), idle, "{at}");
        }
    }

    proptest! {
        #[test]
        fn a_series_is_bounded_ordered_and_keeps_the_newest_and_the_highest_sample(
            times in proptest::collection::vec(0u64..5000, 1..2000)
        ) {
            let mut series = UsageSeries::default();
            let (mut newest, mut highest) = (None, 0);
            for at in &times {
                if newest < Some(*at) {
                    (newest, highest) = (Some(*at), highest.max(at % 100));
                }
                series.add(sample(*at, u32::try_from(at % 100).unwrap()));
            }
            let kept = series.samples();
            prop_assert!(kept.len() < MOST_SAMPLES);
            prop_assert!(kept.windows(2).all(|pair| pair[0].at < pair[1].at));
            prop_assert_eq!(kept.last().map(|sample| sample.at), newest);
            let percents = kept.iter().filter_map(|sample| sample.gpus).map(|gpus| gpus.percent);
            prop_assert_eq!(percents.max().map(u64::from), Some(highest));
        }
    }
}
