//! Requests of agents, and the configuration.

use std::path::Path;

use sshjobs_core::jobs::{Access, Config};
use sshjobs_wire::{
    ForgetRequest, HostsRequest, JobsRequest, ReadRequest, RunRequest, SearchRequest, Service,
    SignalRequest, SpawnRequest, TailRequest, WaitRequest, WireRequest, WriteRequest, parse_config,
};

/// Arguments of all verbs, as JSON.
pub fn arguments(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(call_everything(bytes));
}

/// Whatever can be parsed is called. There is no such host and no such job, so everything ends in
/// an error with a hint.
async fn call_everything(bytes: &[u8]) {
    let ssh_config = Some(Path::new("/dev/null").to_owned());
    let service = Service::new(
        Config {
            ssh_config,
            store: false,
            ..Config::default()
        },
        Access::Listed,
    );
    let object: serde_json::Map<_, _> = serde_json::from_slice(bytes).unwrap_or_default();
    macro_rules! call {
        ($($request:ty => $verb:ident),*) => {$(
            if let Ok(request) = <$request>::parse(object.clone()) {
                let error = service.$verb(request).await.err().expect("there is no such job");
                assert!(!error.hint.is_empty(), "{error}");
            }
        )*};
    }
    call!(
        SpawnRequest => spawn, RunRequest => run, TailRequest => tail, ReadRequest => read, WriteRequest => write,
        SignalRequest => signal, SearchRequest => search, WaitRequest => wait, ForgetRequest => forget
    );
    if let Ok(request) = serde_json::from_slice::<JobsRequest>(bytes) {
        service.jobs(request.clone()).await.ok();
    }
    if let Ok(request) = serde_json::from_slice::<HostsRequest>(bytes) {
        service.hosts(request).await.ok();
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        parse_config(Path::new("config.toml"), text).ok();
        text.parse::<sshjobs_job::Signal>().ok();
        assert!(
            sshjobs_job::key_bytes(text, b'\n', Default::default())
                .is_none_or(|keys| keys.len() <= 8)
        );
    }
}
