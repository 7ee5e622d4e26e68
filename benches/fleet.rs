//! A command on a hundred names, and on a thousand, beside GNU parallel with ssh, pssh,
//! parallel-ssh, pyinfra and ansible, as far as they are on PATH. Prints tables; asserts nothing.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::fmt::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::Sshd;
use support::login_shell::sshd_with_login_shell;

const AT_A_TIME: &str = "64";
const ROUNDS: usize = 3;
/// Lets hundreds of clients log in at the same time.
const MANY_STARTUPS: &str = "MaxStartups 1000:30:2000\n";
/// A megabyte in lines of a hundred characters.
const MEGABYTE: &str = "head -c 990000 /dev/zero | tr '\\0' x | fold -w 99";

#[tokio::main]
async fn main() {
    // `cargo test` runs benches too; there is nothing to test here.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let sshd = fleet(100).await;
    table("uptime on 100 hosts, from nothing", &tools(&sshd, "uptime"));
    table(
        "1 MB each on 100 hosts, from nothing",
        &tools(&sshd, MEGABYTE),
    );
    let server = serve(&sshd);
    table(
        "uptime on 100 hosts, warm (of sshjobs the client's memory)",
        &warm_tools(&sshd, "uptime"),
    );
    table(
        "1 MB each on 100 hosts, warm (of sshjobs the client's memory)",
        &warm_tools(&sshd, MEGABYTE),
    );
    drop(server);
    let sshd = sshd_with_login_shell("/bin/bash", 0.2, MANY_STARTUPS).await;
    configure(&sshd, 100);
    table(
        "uptime on 100 hosts whose login shell takes 200 ms, from nothing",
        &tools(&sshd, "uptime"),
    );
    let sshd = fleet(1000).await;
    table(
        "uptime on 1,000 hosts, from nothing",
        &tools(&sshd, "uptime"),
    );
}

/// A tool, its command line, and variables for it.
type Tool = (
    &'static str,
    String,
    &'static [(&'static str, &'static str)],
);

fn table(title: &str, tools: &[Tool]) {
    println!("\n{title}; {AT_A_TIME} at a time\n");
    println!("| tool | s | CPU s | MiB | time / ours | memory / ours |\n|---|---|---|---|---|---|");
    let mut ours = None;
    for (tool, line, env) in tools {
        let program = line.split_whitespace().next().unwrap();
        if !is_there(program) {
            println!("| {tool} | not installed | | | | |");
            continue;
        }
        let rounds: Vec<_> = (0..ROUNDS).filter_map(|_| timed(line, env)).collect();
        let Some(best) = rounds.iter().min_by(|a, b| a.0.total_cmp(&b.0)).copied() else {
            println!("| {tool} | failed | | | | |");
            continue;
        };
        let (seconds, cpu, memory) = best;
        let (of_seconds, of_memory) = *ours.get_or_insert((seconds, memory));
        println!(
            "| {tool} | {seconds:.2} | {cpu:.2} | {memory:.0} | {:.1} | {:.1} |",
            seconds / of_seconds,
            memory / of_memory
        );
    }
}

/// A server whose connections stay open. Killed when dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn serve(sshd: &Sshd) -> Serving {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sshjobs"));
    command
        .arg("--ssh-config")
        .arg(sshd.ssh_config())
        .arg("--state-dir")
        .arg(sshd.path("state"));
    command
        .args(["serve", "--no-auth", "--socket"])
        .arg(sshd.path("socket"))
        .stderr(Stdio::null());
    let serving = Serving(command.spawn().unwrap());
    while !sshd.path("socket").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    serving
}

/// A server with this number of names.
async fn fleet(hosts: usize) -> Sshd {
    let sshd = Sshd::with(MANY_STARTUPS).await;
    configure(&sshd, hosts);
    sshd
}

/// The names, for ssh, and as the inventories that the others want.
fn configure(sshd: &Sshd, hosts: usize) {
    let names: Vec<String> = (1..=hosts).map(|n| format!("web{n}")).collect();
    let (dir, user) = (sshd.path("").display().to_string(), "root");
    let mut config = format!("Host {}\n", names.join(" "));
    writeln!(
        config,
        "  HostName 127.0.0.1\n  Port {}\n  User {user}\n  IdentityFile {dir}/id\n  IdentitiesOnly yes\n  IdentityAgent none\n  \
         HostKeyAlias fleet\n  UserKnownHostsFile {dir}/known_hosts\n  GlobalKnownHostsFile none",
        sshd.port()
    )
    .unwrap();
    std::fs::write(sshd.ssh_config(), config).unwrap();
    sshd.write_known_hosts(&format!(
        "fleet {}",
        std::fs::read_to_string(sshd.path("host.pub")).unwrap()
    ));
    std::fs::write(sshd.path("hosts"), names.join("\n") + "\n").unwrap();
    let inventory: String = names
        .iter()
        .map(|name| format!("{name} ansible_ssh_common_args='-F {dir}/ssh_config'\n"))
        .collect();
    std::fs::write(sshd.path("inventory.ini"), inventory).unwrap();
    let script = "import sys\nfrom pssh.clients import ParallelSSHClient\nfrom pssh.config import HostConfig\n\
         hosts = ['127.0.0.1'] * len(open(sys.argv[1]).readlines())\nport, key, command = int(sys.argv[2]), sys.argv[3], sys.argv[4]\n\
         configs = [HostConfig(port=port, user='root', private_key=key) for _ in hosts]\n\
         client = ParallelSSHClient(hosts, host_config=configs, pool_size=64)\n\
         for host in client.run_command(command):\n    for line in host.stdout:\n        print(host.host, line)\n";
    std::fs::write(sshd.path("parallel_ssh.py"), script).unwrap();
    let deploy = format!(
        "hosts = [('web%d' % n, {{'ssh_config_file': '{dir}/ssh_config'}}) for n in range(1, {hosts} + 1)]\n"
    );
    std::fs::write(sshd.path("pyinfra_inventory.py"), deploy).unwrap();
}

/// For ansible: as ssh does it by itself.
const COLD: &[(&str, &str)] = &[
    ("ANSIBLE_HOST_KEY_CHECKING", "True"),
    ("ANSIBLE_SSH_ARGS", "-o ControlMaster=no"),
];
const WARM: &[(&str, &str)] = &[
    ("ANSIBLE_HOST_KEY_CHECKING", "True"),
    (
        "ANSIBLE_SSH_ARGS",
        "-o ControlMaster=auto -o ControlPersist=60",
    ),
];

fn quoted(command: &str) -> String {
    format!("'{}'", command.replace('\'', "'\\''"))
}

fn tools(sshd: &Sshd, command: &str) -> Vec<Tool> {
    let dir = sshd.path("").display().to_string();
    let (config, port) = (format!("{dir}/ssh_config"), sshd.port());
    let (sshjobs, command) = (env!("CARGO_BIN_EXE_sshjobs"), quoted(command));
    vec![
        (
            "sshjobs",
            format!(
                "{sshjobs} --ssh-config {config} --state-dir {dir}/state run -j {AT_A_TIME} @{dir}/hosts -- {command}"
            ),
            &[],
        ),
        (
            "GNU parallel + ssh",
            format!(
                "parallel -q -j {AT_A_TIME} --tag -a {dir}/hosts ssh -F {config} {{}} {command}"
            ),
            &[],
        ),
        (
            "pssh",
            format!("pssh -p {AT_A_TIME} -i -t 0 -x '-F {config}' -h {dir}/hosts {command}"),
            &[],
        ),
        (
            "parallel-ssh (library)",
            format!("python3 {dir}/parallel_ssh.py {dir}/hosts {port} {dir}/id {command}"),
            &[],
        ),
        (
            "pyinfra",
            format!(
                "pyinfra -y --parallel {AT_A_TIME} {dir}/pyinfra_inventory.py exec -- {command}"
            ),
            &[],
        ),
        (
            "ansible -m raw",
            format!("ansible all -i {dir}/inventory.ini -f {AT_A_TIME} -m raw -a {command}"),
            COLD,
        ),
    ]
}

/// Tools that keep connections between command lines. Each name has a master of its own.
fn warm_tools(sshd: &Sshd, command: &str) -> Vec<Tool> {
    let (dir, command) = (sshd.path("").display().to_string(), quoted(command));
    let (config, sshjobs) = (format!("{dir}/ssh_config"), env!("CARGO_BIN_EXE_sshjobs"));
    let master = format!("-o ControlMaster=auto -o ControlPersist=60 -o ControlPath={dir}/%n");
    vec![
        (
            "sshjobs --server",
            format!("{sshjobs} --server {dir}/socket run -j {AT_A_TIME} @{dir}/hosts -- {command}"),
            &[],
        ),
        (
            "GNU parallel + ssh with ControlPersist",
            format!(
                "parallel -q -j {AT_A_TIME} --tag -a {dir}/hosts ssh -F {config} {master} {{}} {command}"
            ),
            &[],
        ),
        (
            "ansible -m raw with ControlPersist",
            format!("ansible all -i {dir}/inventory.ini -f {AT_A_TIME} -m raw -a {command}"),
            WARM,
        ),
    ]
}

fn is_there(program: &str) -> bool {
    Path::new(program).is_absolute()
        || Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
}

/// Wall-clock seconds, CPU seconds and mebibytes of the largest process; none when it fails.
fn timed(line: &str, env: &[(&str, &str)]) -> Option<(f64, f64, f64)> {
    let output = Command::new("/usr/bin/time")
        .args([
            "-f",
            "@ %e %U %S %M",
            "sh",
            "-c",
            &format!("exec {line} > /dev/null 2>&1"),
        ])
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("GNU time");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = told.lines().find_map(|line| line.strip_prefix("@ "))?.to_owned();
    let numbers: Vec<f64> = told.split_whitespace().map(|number| number.parse().unwrap()).collect();
    output
        .status
        .success()
        .then(|| (numbers[0], numbers[1] + numbers[2], numbers[3] / 1024.0))
}
