//! Hosts behind other hosts (ProxyJump), against real sshds: the way is the one that ssh would
//! take, and each host on it must show its key.

use std::path::PathBuf;

use crate::support::{HOST, Sshd, canonical_loop, run, spawn};
use sshjobs_core::jobs::{Access, Config, HostSettings};
use sshjobs_wire::{Code, Error, HostsRequest, JobState, Service, SpawnRequest};

/// An ssh_config in which the host has `jumps` before it, and each of `bastions` has a name of its
/// own: b0, b1 …
fn config(host: &Sshd, bastions: &[&Sshd], jumps: &str) -> PathBuf {
    let mut text =
        std::fs::read_to_string(host.ssh_config()).unwrap() + &format!("  ProxyJump {jumps}\n");
    for (index, bastion) in bastions.iter().enumerate() {
        let own = std::fs::read_to_string(bastion.ssh_config()).unwrap();
        text += &own.replace("Host web1", &format!("Host b{index}"));
    }
    let file = host.path("jump_config");
    std::fs::write(&file, text).unwrap();
    file
}

fn service(host: &Sshd, bastions: &[&Sshd], jumps: &str) -> Service {
    crate::support::service(&config(host, bastions, jumps), Default::default())
}

async fn error(host: &Sshd, bastions: &[&Sshd], jumps: &str) -> Error {
    service(host, bastions, jumps)
        .spawn(SpawnRequest::new(HOST, "true"))
        .await
        .unwrap_err()
}

fn logins(sshd: &Sshd) -> usize {
    sshd.log().matches("Accepted publickey").count()
}

#[tokio::test]
async fn a_host_is_reached_through_its_jump_host() {
    let (host, bastion) = (Sshd::start().await, Sshd::start().await);
    let service = service(&host, &[&bastion], "b0");
    assert_eq!(run(&service, "echo here").await.unwrap().head, ["here"]);
    assert_eq!((logins(&host), logins(&bastion)), (1, 1));
    let hosts = service
        .hosts(HostsRequest {
            host: Some(HOST.to_owned()),
            ..HostsRequest::default()
        })
        .await
        .unwrap();
    assert_eq!(
        (hosts.hosts[0].via.as_slice(), hosts.hosts[0].connected),
        (&["b0".to_owned()][..], true)
    );
    // Without the jump host there is no way.
    let job = spawn(&service, "echo before; sleep 1000").await;
    crate::support::eventually("it has begun", async || {
        service
            .tail(sshjobs_wire::TailRequest::new(&job, 0, 100))
            .await
            .unwrap()
            .total_lines
            == 1
    })
    .await;
    bastion.cut();
    let story = canonical_loop(&service, &job).await;
    assert_eq!(
        (story.lines.join(""), story.state()),
        ("before".to_owned(), JobState::Lost)
    );
    // And the next job finds it again.
    assert_eq!(run(&service, "echo again").await.unwrap().head, ["again"]);
    service.shutdown().await;
}

#[tokio::test]
async fn a_chain_of_jump_hosts_is_gone_in_its_order() {
    let (host, first, second) = (
        Sshd::start().await,
        Sshd::start().await,
        Sshd::start().await,
    );
    let service = service(&host, &[&first, &second], "b0,b1");
    assert_eq!(run(&service, "echo here").await.unwrap().head, ["here"]);
    assert_eq!((logins(&first), logins(&second), logins(&host)), (1, 1, 1));
    let entry = service
        .hosts(Default::default())
        .await
        .unwrap()
        .hosts
        .into_iter()
        .find(|host| host.name == HOST);
    assert_eq!(entry.unwrap().via, ["b1", "b0"]);
}

#[tokio::test]
async fn a_jump_hosts_own_jump_host_is_found_in_the_configuration() {
    let (host, first, second) = (
        Sshd::start().await,
        Sshd::start().await,
        Sshd::start().await,
    );
    second.append("  ProxyJump b0\n");
    let service = service(&host, &[&first, &second], "b1");
    assert_eq!(run(&service, "echo here").await.unwrap().head, ["here"]);
    assert_eq!((logins(&first), logins(&second), logins(&host)), (1, 1, 1));
}

#[tokio::test]
async fn hosts_behind_one_jump_host_share_the_connection_to_it() {
    let (host, bastion) = (Sshd::start().await, Sshd::start().await);
    let file = config(&host, &[&bastion], "b0");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("Host web1", "Host web1 web2")).unwrap();
    let service = crate::support::service(&file, Default::default());
    let (one, two) = tokio::join!(
        service.spawn(SpawnRequest::new("web1", "true")),
        service.spawn(SpawnRequest::new("web2", "true"))
    );
    assert!(one.is_ok() && two.is_ok());
    assert_eq!((logins(&host), logins(&bastion)), (2, 1));
}

#[tokio::test]
async fn each_host_on_the_way_must_show_its_key() {
    let (host, bastion) = (Sshd::start().await, Sshd::start().await);
    bastion.trust("other");
    let changed = error(&host, &[&bastion], "b0").await;
    assert_eq!(changed.code, Code::JumpHostKeyChanged, "{changed}");
    assert_eq!(
        logins(&host) + logins(&bastion),
        0,
        "no login happens through an unknown host"
    );
    bastion.write_known_hosts("");
    assert_eq!(
        error(&host, &[&bastion], "b0").await.code,
        Code::HostKeyUnknown
    );
    bastion.trust("host");
    host.trust("other");
    assert_eq!(
        error(&host, &[&bastion], "b0").await.code,
        Code::HostKeyChanged
    );
    host.trust("host");
    assert!(run(&service(&host, &[&bastion], "b0"), "true").await.is_ok());
}

#[tokio::test]
async fn a_jump_host_that_does_not_lead_there_says_so() {
    let (host, bastion) = (
        Sshd::start().await,
        Sshd::with("AllowTcpForwarding no").await,
    );
    let refused = error(&host, &[&bastion], "b0").await;
    assert_eq!(refused.code, Code::Unreachable);
    assert!(
        refused.message.contains("jump host b0 does not lead there"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_way_without_end_is_refused() {
    let (host, bastion) = (Sshd::start().await, Sshd::start().await);
    bastion.append("  ProxyJump b0\n");
    assert_eq!(
        error(&host, &[&bastion], "b0").await.code,
        Code::InvalidArgument
    );
    assert_eq!(
        error(&host, &[&bastion], "b0:port").await.code,
        Code::UnknownHost,
        "ssh itself refuses this"
    );
}

/// Reaches an address with nothing but a shell.
const NETCAT: &str = "bash -c 'exec 3<>/dev/tcp/%h/%p; cat <&3 & exec cat >&3'";

#[tokio::test]
async fn a_proxy_command_is_run_only_when_the_configuration_allows_it() {
    let host = Sshd::start().await;
    host.append(&format!("  ProxyCommand {NETCAT}\n"));
    let refused = run(
        &crate::support::service(&host.ssh_config(), Default::default()),
        "true",
    )
    .await
    .unwrap_err();
    assert_eq!(refused.code, Code::Unsupported);
    assert!(refused.hint.contains("allow_proxy_command"), "{refused}");
    assert_eq!(logins(&host), 0);
    let config = Config {
        ssh_config: Some(host.ssh_config()),
        allow_proxy_command: true,
        ..crate::support::unstored()
    };
    let service = Service::new(config, Access::Listed);
    assert_eq!(run(&service, "echo here").await.unwrap().head, ["here"]);
    service.shutdown().await;
}

#[tokio::test]
async fn the_configuration_goes_over_ssh_config_for_jump_hosts_too() {
    let (host, bastion) = (Sshd::start().await, Sshd::start().await);
    bastion.configure("other");
    let file = config(&host, &[&bastion], "b0");
    let table = HostSettings {
        identity_file: Some(bastion.path("id")),
        ..HostSettings::default()
    };
    let hosts = std::collections::BTreeMap::from([("b0".to_owned(), table)]);
    let config = Config {
        ssh_config: Some(file),
        hosts,
        ..crate::support::unstored()
    };
    assert_eq!(
        run(&Service::new(config, Access::Listed), "echo here").await.unwrap().head,
        ["here"]
    );
}
