//! GPUs: those of a host, and those that a job needs.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// GPUs that a job needs: a number and, if it matters, a model or the memory of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GpuRequest {
    /// How many.
    pub count: usize,
    /// What each of them must be.
    pub kind: GpuKind,
}

/// What a GPU must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GpuKind {
    /// Anything.
    Any,
    /// Its model has this in its name, in upper or lower case.
    Model(String),
    /// It has at least this much memory, in GB of 10⁹ bytes, as models are named.
    MinMemory(u64),
}

/// A text that says no number of GPUs.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no number of GPUs from 1 to {MOST_GPUS}, with a model or a memory")]
pub struct BadGpuRequest(String);

const MOST_GPUS: usize = 64;

impl FromStr for GpuRequest {
    type Err = BadGpuRequest;

    /// Parses `N`, `N:MODEL` and `N:40GB`.
    fn from_str(text: &str) -> Result<Self, BadGpuRequest> {
        let bad = || BadGpuRequest(text.to_owned());
        let (count, kind) = match text.split_once(':') {
            None => (text, GpuKind::Any),
            Some((count, kind)) => {
                let memory = kind.to_ascii_uppercase();
                let memory = memory.strip_suffix("GB").and_then(|number| number.parse().ok());
                let kind = match memory {
                    Some(memory) => GpuKind::MinMemory(memory),
                    None => GpuKind::Model(kind.to_owned()),
                };
                (count, kind)
            }
        };
        let count = count.parse().map_err(|_| bad())?;
        let is_empty = matches!(&kind, GpuKind::Model(model) if model.trim().is_empty());
        if is_empty || !(1..=MOST_GPUS).contains(&count) {
            return Err(bad());
        }
        Ok(Self { count, kind })
    }
}

/// As it is parsed.
impl fmt::Display for GpuRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count;
        match &self.kind {
            GpuKind::Any => write!(f, "{count}"),
            GpuKind::Model(model) => write!(f, "{count}:{model}"),
            GpuKind::MinMemory(memory) => write!(f, "{count}:{memory}GB"),
        }
    }
}

impl TryFrom<String> for GpuRequest {
    type Error = BadGpuRequest;

    fn try_from(text: String) -> Result<Self, BadGpuRequest> {
        text.parse()
    }
}

impl From<GpuRequest> for String {
    fn from(request: GpuRequest) -> Self {
        request.to_string()
    }
}

/// A GPU of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Its id for a job: the UUID, or `rocm-N` for device N of ROCm.
    pub id: String,
    /// Its model.
    pub model: String,
    /// Memory in MiB.
    pub memory: u64,
    /// Memory in use, in MiB.
    pub memory_used: u64,
    /// Use in percent, if it is known.
    pub used_percent: Option<u64>,
    /// Temperature in °C, if it is known.
    pub temperature: Option<u64>,
    /// Processes on it, where the driver tells.
    pub processes: Vec<u32>,
    /// The job that has it.
    pub job: Option<String>,
}

/// Prefix of ids of ROCm.
const ROCM: &str = "rocm-";

impl Gpu {
    /// Whether no process and no job has it. ROCm does not tell the device of a process: there, memory in use counts.
    pub fn is_free(&self) -> bool {
        let is_used = if self.id.starts_with(ROCM) {
            self.memory_used > self.memory / 20
        } else {
            !self.processes.is_empty()
        };
        self.job.is_none() && !is_used
    }

    /// Whether a job could use it.
    pub fn fits(&self, kind: &GpuKind) -> bool {
        match kind {
            GpuKind::Any => true,
            GpuKind::Model(model) => self.model.to_lowercase().contains(&model.to_lowercase()),
            GpuKind::MinMemory(gigabytes) => {
                // A model with 40 GB may report some less.
                self.memory.saturating_mul(1 << 20) >= gigabytes.saturating_mul(970_000_000)
            }
        }
    }
}

/// The variable that shows a job its GPUs, and its value.
pub fn visible_gpus(ids: &[String]) -> Vec<(&'static str, String)> {
    let numbers: Option<Vec<&str>> = ids.iter().map(|id| id.strip_prefix(ROCM)).collect();
    match numbers {
        Some(numbers) if !numbers.is_empty() => {
            let numbers = numbers.join(",");
            vec![
                ("HIP_VISIBLE_DEVICES", numbers.clone()),
                ("ROCR_VISIBLE_DEVICES", numbers),
            ]
        }
        Some(_) | None => vec![("CUDA_VISIBLE_DEVICES", ids.join(","))],
    }
}

/// Processes of a host that run or wait for a processor, for each processor, from the output of
/// [`spool::capacity`](crate::spool::capacity).
pub fn parse_load(printed: &str) -> Option<f64> {
    let line = printed.lines().find_map(|line| line.strip_prefix("load "))?;
    let (load, processors) = line.split_once(' ')?;
    let (load, processors): (f64, f64) = (load.parse().ok()?, processors.parse().ok()?);
    (load.is_finite() && processors >= 1.0).then(|| load / processors)
}

/// The exit status of a driver that did not list its GPUs, from the output of [`spool::capacity`](crate::spool::capacity).
pub fn parse_gpu_failure(printed: &str) -> Option<u32> {
    printed.lines().find_map(|line| line.strip_prefix("failed ")?.parse().ok())
}

/// The GPUs of a host, from the output of [`spool::capacity`](crate::spool::capacity).
pub fn parse_gpus(printed: &str) -> Vec<Gpu> {
    let mut gpus: BTreeMap<String, Gpu> = BTreeMap::new();
    let mut order = Vec::new();
    for line in printed.lines() {
        let Some((kind, rest)) = line.split_once(' ') else { continue };
        let fields: Vec<&str> = rest.split(',').map(str::trim).collect();
        match (kind, fields.as_slice()) {
            ("gpu", [id, model, memory, used, percent, temperature]) if is_id(id) => {
                order.push((*id).to_owned());
                let gpu = Gpu {
                    id: (*id).to_owned(),
                    model: (*model).to_owned(),
                    memory: memory.parse().unwrap_or_default(),
                    memory_used: used.parse().unwrap_or_default(),
                    used_percent: percent.parse().ok(),
                    temperature: temperature.parse().ok(),
                    ..Gpu::default()
                };
                gpus.insert(gpu.id.clone(), gpu);
            }
            ("app", [id, process]) => {
                if let (Some(gpu), Ok(process)) = (gpus.get_mut(*id), process.parse()) {
                    gpu.processes.push(process);
                }
            }
            ("rocm", _) => {
                for gpu in rocm_gpus(rest) {
                    order.push(gpu.id.clone());
                    gpus.insert(gpu.id.clone(), gpu);
                }
            }
            ("claim", _) => {
                if let Some((id, job)) = rest.split_once(' ')
                    && let Some(gpu) = gpus.get_mut(id)
                {
                    gpu.job = Some(job.to_owned());
                }
            }
            _ => {}
        }
    }
    order.iter().filter_map(|id| gpus.remove(id)).collect()
}

/// Whether a text can be a part of a path and of a variable.
fn is_id(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter))
}

/// The devices in the output of `rocm-smi --json`. Its names differ between versions.
fn rocm_gpus(json: &str) -> Vec<Gpu> {
    let Ok(Value::Object(cards)) = serde_json::from_str(json) else {
        return Vec::new();
    };
    let cards = cards.iter().filter_map(|(card, facts)| {
        let number: u32 = card.strip_prefix("card")?.parse().ok()?;
        let text = |names: &[&str]| {
            let found = names.iter().find_map(|name| facts.get(*name)?.as_str());
            found.unwrap_or_default().to_owned()
        };
        let number_of = |names: &[&str]| text(names).parse::<f64>().ok();
        let whole = |value: f64| format!("{value:.0}").parse::<u64>().ok();
        let mebibytes = |names: &[&str]| text(names).parse::<u64>().map_or(0, |bytes| bytes >> 20);
        Some((
            number,
            Gpu {
                id: format!("{ROCM}{number}"),
                model: text(&["Device Name", "Card Series", "Card series"]),
                memory: mebibytes(&["VRAM Total Memory (B)"]),
                memory_used: mebibytes(&["VRAM Total Used Memory (B)"]),
                used_percent: number_of(&["GPU use (%)"]).and_then(whole),
                temperature: number_of(&[
                    "Temperature (Sensor edge) (C)",
                    "Temperature (Sensor junction) (C)",
                ])
                .and_then(whole),
                ..Gpu::default()
            },
        ))
    });
    let mut cards: Vec<(u32, Gpu)> = cards.collect();
    cards.sort_by_key(|(number, _)| *number);
    cards.into_iter().map(|(_, gpu)| gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_and_shown() {
        for text in ["1", "8", "2:A100", "1:40GB"] {
            assert_eq!(text.parse::<GpuRequest>().unwrap().to_string(), text);
        }
        for text in ["", "0", "65", "x", "1:", "1: ", "-1"] {
            assert!(text.parse::<GpuRequest>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn devices_are_read_with_their_processes_and_jobs() {
        let gpus = parse_gpus(
            "motd\ngpu GPU-aa, NVIDIA A100-SXM4-40GB, 40960, 3, 0, 31\n\
             gpu GPU-bb, NVIDIA A100-SXM4-40GB, 40960, 30000, 97, [N/A]\napp GPU-bb, 4242\n\
             claim GPU-bb web1-1234\nclaim GPU-zz web1-1\ngpu ../x, a, 1, 1, 1, 1\n",
        );
        assert_eq!(gpus.len(), 2);
        assert!(gpus[0].is_free() && !gpus[1].is_free());
        assert_eq!((gpus[0].temperature, gpus[1].temperature), (Some(31), None));
        assert_eq!(gpus[1].processes, [4242]);
        assert_eq!(gpus[1].job.as_deref(), Some("web1-1234"));
        for (kind, fits) in [
            (GpuKind::Any, true),
            (GpuKind::Model("a100".to_owned()), true),
            (GpuKind::Model("H100".to_owned()), false),
            (GpuKind::MinMemory(40), true),
            (GpuKind::MinMemory(80), false),
        ] {
            assert_eq!(gpus[0].fits(&kind), fits, "{kind:?}");
        }
    }

    #[test]
    fn devices_of_rocm_are_read() {
        let gpus = parse_gpus(concat!(
            r#"rocm {"card1": {"Card Series": "MI300X", "VRAM Total Memory (B)": "206141652992", "#,
            r#""VRAM Total Used Memory (B)": "297971712", "GPU use (%)": "0"}, "#,
            r#""card0": {"Device Name": "MI300X", "VRAM Total Memory (B)": "206141652992", "#,
            r#""VRAM Total Used Memory (B)": "100000000000", "Temperature (Sensor edge) (C)": "41.0"}, "system": {}}"#,
        ));
        assert_eq!(
            gpus.iter().map(|gpu| gpu.id.as_str()).collect::<Vec<_>>(),
            ["rocm-0", "rocm-1"]
        );
        assert!(!gpus[0].is_free() && gpus[1].is_free());
        assert_eq!(gpus[0].temperature, Some(41));
    }

    #[test]
    fn load_is_for_each_processor() {
        assert_eq!(parse_load("load 3.00 4\ngpu x\n"), Some(0.75));
        assert_eq!(parse_gpu_failure("load 1 2\nfailed 124\n"), Some(124));
        for unknown in ["", "load 3.00 ", "load 3.00 0", "load x 4", "load inf 4"] {
            assert_eq!(parse_load(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_job_sees_its_devices_only() {
        let ids = |ids: &[&str]| ids.iter().map(|&id| id.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            visible_gpus(&ids(&["GPU-aa", "GPU-bb"])),
            [("CUDA_VISIBLE_DEVICES", "GPU-aa,GPU-bb".to_owned())]
        );
        assert_eq!(
            visible_gpus(&ids(&["rocm-1"])),
            [
                ("HIP_VISIBLE_DEVICES", "1".to_owned()),
                ("ROCR_VISIBLE_DEVICES", "1".to_owned())
            ]
        );
    }
}
