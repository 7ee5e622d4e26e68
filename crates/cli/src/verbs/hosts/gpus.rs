//! `sshjobs hosts --gpus`: the GPUs of a host, or of all hosts.

use futures_util::{FutureExt, StreamExt, stream};
use serde_json::json;

use crate::args::HostsArgs;
use crate::exit::print;
use crate::json::pretty_json;
use crate::terminal::in_columns;
use crate::{ProgramExit, note, report};
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Error, GpuEntry, HostEntry, HostsRequest};

/// Hosts asked at the same time.
const AT_A_TIME: usize = 16;

/// Lists GPUs. Fails if a host can't be reached.
pub(super) async fn gpus(api: &Api, args: HostsArgs) -> ProgramExit {
    let exit = match list(api, args).await {
        Ok(exit) => exit,
        Err(error) => {
            report(&error);
            ProgramExit::of_error(&error)
        }
    };
    api.shutdown().await;
    exit
}

async fn list(api: &Api, args: HostsArgs) -> Result<ProgramExit, Error> {
    let names = match args.host {
        Some(name) => vec![name],
        None => {
            let request = HostsRequest {
                tag: args.tag,
                ..HostsRequest::default()
            };
            let listed = api.hosts(request).await?;
            listed.hosts.into_iter().map(|host| host.name).collect()
        }
    };
    let asked: Vec<_> = names.into_iter().map(|name| one(api, name).boxed()).collect();
    let hosts: Vec<HostEntry> = stream::iter(asked).buffered(AT_A_TIME).concat().await;
    let printed = if args.json {
        let listed = hosts.iter().map(|host| json!({"name": host.name, "gpus": host.gpus}));
        print(&pretty_json(&listed.collect::<Vec<_>>()))
    } else {
        print(table(&hosts).trim_end())
    };
    let unreached: Vec<&str> = hosts
        .iter()
        .filter(|host| !host.connected)
        .map(|host| host.name.as_str())
        .collect();
    if !unreached.is_empty() {
        note(&format!(
            "not reached: {}",
            printable(&unreached.join(", "))
        ));
        return Ok(printed.or(ProgramExit::CONNECTION));
    }
    if hosts.iter().all(|host| host.gpus.is_empty()) {
        note("no GPUs found: neither nvidia-smi nor rocm-smi lists one");
    }
    Ok(printed)
}

/// A host with its GPUs. One that can't be asked counts as not reached.
async fn one(api: &Api, name: String) -> Vec<HostEntry> {
    let request = HostsRequest {
        host: Some(name.clone()),
        gpus: true,
        ..HostsRequest::default()
    };
    match api.hosts(request).await {
        Ok(reply) => reply.hosts,
        Err(error) => {
            report(&error);
            vec![HostEntry {
                name,
                ..HostEntry::default()
            }]
        }
    }
}

fn table(hosts: &[HostEntry]) -> String {
    let header = ["HOST", "GPU", "MODEL", "MEMORY", "USE", "STATE"].map(str::to_owned);
    let rows = hosts.iter().flat_map(|host| {
        host.gpus.iter().map(|gpu| {
            [
                printable(&host.name),
                printable(&short(&gpu.id)),
                printable(&gpu.model),
                format!("{}/{} MiB", gpu.memory_used_mib, gpu.memory_mib),
                gpu.used_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent}%")),
                printable(&state(gpu)),
            ]
        })
    });
    in_columns(&std::iter::once(header).chain(rows).collect::<Vec<_>>()).join("\n")
}

/// The start of a UUID.
fn short(id: &str) -> String {
    id.chars().take("GPU-01234567".len()).collect()
}

fn state(gpu: &GpuEntry) -> String {
    match &gpu.job_id {
        Some(job) => job.clone(),
        None if gpu.free => "free".to_owned(),
        None if gpu.processes.is_empty() => "in use".to_owned(),
        None => {
            let processes: Vec<String> = gpu.processes.iter().map(ToString::to_string).collect();
            format!("in use by process {}", processes.join(", "))
        }
    }
}
