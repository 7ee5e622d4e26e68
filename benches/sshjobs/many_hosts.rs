//! `uptime` on up to ten thousand hosts, beside the tools that people use for many.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::fleet::{ANSIBLE_WITHOUT_REUSE, Figures, Serving, timed};
use crate::many_hosts_rig::ManyHosts;
use crate::report::{Report, is_installed};

/// Numbers of hosts. Tools that start a process for each host are measured up to `MOST_PROCESSES`.
const HOSTS: [usize; 4] = [100, 1000, 3000, 10_000];
const MOST_PROCESSES: usize = 1000;
/// asyncssh fails near 850 connections at a time.
const AT_A_TIME: usize = 64;

const ASYNCSSH: &str = "
import asyncio, asyncssh, sys
hosts, key = [line.strip() for line in open(sys.argv[1])], sys.argv[2]
# Once: for each host anew, it would take minutes.
known = asyncssh.read_known_hosts(sys.argv[3])
async def one(host, room):
    async with room, asyncssh.connect(host, 2222, username='root', client_keys=[key], known_hosts=known, config=None, agent_path=None) as connection:
        print(host, (await connection.run('uptime')).stdout, end='')
async def all():
    room = asyncio.Semaphore(64)
    await asyncio.gather(*(one(host, room) for host in hosts))
asyncio.run(all())
";

const PARALLEL_SSH: &str = "
import sys
from pssh.clients import ParallelSSHClient
hosts = [line.strip() for line in open(sys.argv[1])]
client = ParallelSSHClient(hosts, port=2222, user='root', pkey=sys.argv[2], pool_size=64)
for host in client.run_command('uptime'):
    for line in host.stdout:
        print(host.host, line)
";

/// A row for each number of hosts and each tool.
pub(crate) fn rows(report: &mut Report) {
    for hosts in HOSTS {
        let rig = ManyHosts::start(hosts, 0);
        let cold = timed(&ours(&rig, "run"), &[]).expect("sshjobs runs");
        for (name, line) in peers(&rig, hosts) {
            let what = format!("uptime on {hosts} hosts, from nothing, against {name}");
            let theirs = timed(&line, ANSIBLE_WITHOUT_REUSE);
            let ratio = theirs.as_ref().map(|theirs| cold.seconds / theirs.seconds);
            let theirs = theirs.map_or_else(|| "failed".to_owned(), |theirs| theirs.shown());
            report.row(&what, &cold.shown(), &theirs, ratio, "–");
        }
        let bar = if hosts == 10_000 {
            "≤ 60 s, ≤ 75 s of CPU, ≤ 1 GiB"
        } else {
            "–"
        };
        let what = format!("uptime on {hosts} hosts, from nothing");
        report.row(&what, &cold.shown(), "–", None, bar);
        let warm = warm(&rig);
        let bar = if hosts == 10_000 { "≤ 5 s" } else { "–" };
        let what = format!(
            "uptime on {hosts} hosts, through a server that has connections (the client's CPU)"
        );
        report.row(&what, &warm.shown(), "–", None, bar);
        if hosts == 10_000 {
            drop(rig);
            with_silent_hosts(report, hosts, &cold);
        }
    }
}

/// The time with a tenth of the hosts silent, against that without.
fn with_silent_hosts(report: &mut Report, hosts: usize, without: &Figures) {
    let rig = ManyHosts::start(hosts, hosts / 10);
    // It fails on the silent ones.
    let line = format!("{} || true", ours(&rig, "run"));
    let figures = timed(&format!("sh -c \"{line}\""), &[]).expect("sshjobs runs");
    let what =
        format!("uptime on {hosts} hosts, of which a tenth never answer, against none of them");
    let ratio = figures.seconds / without.seconds;
    report.row(
        &what,
        &figures.shown(),
        &without.shown(),
        Some(ratio),
        "≤ 1.3",
    );
}

fn ours(rig: &ManyHosts, verb: &str) -> String {
    let directory = rig.directory.path().display();
    let sshjobs = env!("CARGO_BIN_EXE_sshjobs");
    format!(
        "{sshjobs} --ssh-config {directory}/ssh_config --state-dir {directory}/state {verb} @{directory}/hosts -- uptime"
    )
}

/// The second run through a server.
fn warm(rig: &ManyHosts) -> Figures {
    let directory = rig.directory.path().display().to_string();
    let sshjobs = env!("CARGO_BIN_EXE_sshjobs");
    let socket = rig.path("socket");
    let _serving = Serving(
        Command::new(sshjobs)
            .args(["--ssh-config", &format!("{directory}/ssh_config")])
            .args(["--state-dir", &format!("{directory}/state-of-server")])
            .args(["serve", "--no-auth", "--socket"])
            .arg(&socket)
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    while !socket.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let line = format!(
        "{sshjobs} --server {} run @{directory}/hosts -- uptime",
        socket.display()
    );
    timed(&line, &[]).expect("the first run");
    timed(&line, &[]).expect("the second run")
}

fn peers(rig: &ManyHosts, hosts: usize) -> Vec<(&'static str, String)> {
    let directory = rig.directory.path().display().to_string();
    std::fs::write(rig.path("with_asyncssh.py"), ASYNCSSH).unwrap();
    std::fs::write(rig.path("parallel_ssh.py"), PARALLEL_SSH).unwrap();
    let config = format!("{directory}/ssh_config");
    let names = std::fs::read_to_string(rig.path("hosts")).unwrap();
    let inventory: String = names
        .lines()
        .map(|name| format!("{name} ansible_ssh_common_args='-F {config}'\n"))
        .collect();
    std::fs::write(rig.path("inventory.ini"), inventory).unwrap();
    let mut peers = vec![
        (
            "asyncssh",
            format!(
                "python3 {directory}/with_asyncssh.py {directory}/addresses {directory}/id {directory}/known_hosts"
            ),
        ),
        (
            "parallel-ssh",
            format!("python3 {directory}/parallel_ssh.py {directory}/addresses {directory}/id"),
        ),
    ];
    if hosts <= MOST_PROCESSES {
        peers.extend([
            (
                "ansible -m raw",
                format!("ansible all -i {directory}/inventory.ini -f {AT_A_TIME} -m raw -a uptime"),
            ),
            (
                "ssh under xargs",
                format!(
                    "xargs -a {directory}/hosts -P {AT_A_TIME} -I HOST ssh -F {config} HOST uptime"
                ),
            ),
            (
                "clush",
                format!(
                    "clush -f {AT_A_TIME} --hostfile {directory}/hosts -o '-F {config}' uptime"
                ),
            ),
        ]);
    }
    let is_there =
        |(_, line): &(&str, String)| line.split_whitespace().next().is_some_and(is_installed);
    peers.into_iter().filter(is_there).collect()
}
