//! A GPU of a host, in the reply of the verb hosts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use sshjobs_core::jobs::Gpu;

/// A GPU of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct GpuEntry {
    /// Its UUID.
    pub id: String,
    /// Its model.
    pub model: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Memory in use.
    pub memory_used_mib: u64,
    /// Use in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_percent: Option<u64>,
    /// Temperature in °C.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<u64>,
    /// Processes on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<u32>,
    /// The job that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// Whether a job can have it now.
    pub free: bool,
}

impl From<Gpu> for GpuEntry {
    fn from(gpu: Gpu) -> Self {
        Self {
            free: gpu.is_free(),
            id: gpu.id,
            model: gpu.model,
            memory_mib: gpu.memory,
            memory_used_mib: gpu.memory_used,
            used_percent: gpu.used_percent,
            temperature: gpu.temperature,
            processes: gpu.processes,
            job_id: gpu.job,
        }
    }
}
