//! A command on a hundred names, and on a thousand, beside GNU parallel with ssh, pssh, parallel-ssh,
//! pyinfra and ansible, as far as they are on PATH.

use std::fmt::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::report::{Curve, Line, Report, is_installed};
use crate::support::Sshd;
use crate::support::login_shell::sshd_with_login_shell;

const AT_A_TIME: &str = "64";
const ROUNDS: usize = 3;
/// Lets hundreds of clients log in at the same time.
const MANY_STARTUPS: &str = "MaxStartups 1000:30:2000\n";
/// A megabyte in lines of a hundred characters.
const MEGABYTE: &str = "head -c 990000 /dev/zero | tr '\\0' x | fold -w 99";

/// A tool: its name, its command line, and variables for it.
struct Tool {
    name: &'static str,
    line: String,
    env: &'static [(&'static str, &'static str)],
}

/// Time and memory of a run.
pub(crate) struct Figures {
    pub(crate) seconds: f64,
    cpu_seconds: f64,
    /// Of the largest process.
    mebibytes: f64,
}

impl Figures {
    pub(crate) fn shown(&self) -> String {
        let Self {
            seconds,
            cpu_seconds,
            mebibytes,
        } = self;
        format!("{seconds:.2} s, {cpu_seconds:.2} s of CPU, {mebibytes:.0} MiB")
    }
}

/// A command on a hundred names, from nothing and warm.
pub(crate) async fn fleets(report: &mut Report) {
    let sshd = fleet(100).await;
    rows(
        report,
        "uptime on 100 hosts, from nothing",
        &tools(&sshd, "uptime"),
    );
    rows(
        report,
        "1 MB each on 100 hosts, from nothing",
        &tools(&sshd, MEGABYTE),
    );
    let server = serve(&sshd);
    rows(
        report,
        "uptime on 100 hosts, warm (of sshjobs the client's memory)",
        &warm_tools(&sshd, "uptime"),
    );
    rows(
        report,
        "1 MB each on 100 hosts, warm (of sshjobs the client's memory)",
        &warm_tools(&sshd, MEGABYTE),
    );
    drop(server);
    let sshd = sshd_with_login_shell("/bin/bash", 0.2, MANY_STARTUPS).await;
    configure(&sshd, 100);
    rows(
        report,
        "uptime on 100 hosts whose login shell takes 200 ms, from nothing",
        &tools(&sshd, "uptime"),
    );
}

/// The time that `uptime` takes on ever more hosts, from nothing, with each tool.
pub(crate) async fn curve(report: &mut Report) {
    let mut lines: Vec<Line> = Vec::new();
    for hosts in [1, 10, 100, 1000] {
        let sshd = fleet(hosts).await;
        for tool in &tools(&sshd, "uptime") {
            // The slow ones take minutes on a thousand, and a line of two points is enough to see it.
            if hosts == 1000 && tool.name.starts_with("ansible") {
                continue;
            }
            let Some(figures) = best_of(tool, 1) else {
                continue;
            };
            let point = (f64::from(hosts), figures.seconds);
            match lines.iter_mut().find(|line| line.name == tool.name) {
                Some(line) => line.points.push(point),
                None => lines.push(Line {
                    name: tool.name.to_owned(),
                    points: vec![point],
                }),
            }
        }
    }
    report.curve(Curve {
        name: "hosts",
        title: "`uptime` on many hosts, 64 at a time, from nothing",
        x: "hosts",
        y: "seconds",
        lines,
    });
}

/// A row for each tool; the first is ours.
fn rows(report: &mut Report, title: &str, tools: &[Tool]) {
    let (ours, others) = tools.split_first().unwrap();
    let ours = best_of(ours, ROUNDS).expect("sshjobs runs");
    for tool in others {
        let what = format!("{title}: {}", tool.name);
        match best_of(tool, ROUNDS) {
            Some(theirs) => report.row(
                &what,
                &ours.shown(),
                &theirs.shown(),
                Some(ours.seconds / theirs.seconds),
                if tool.name.starts_with("parallel-ssh") {
                    "≤ 0.67"
                } else {
                    "–"
                },
            ),
            None => report.row(&what, &ours.shown(), "not installed, or failed", None, "–"),
        }
    }
}

/// The fastest round; none when the tool is not there or fails.
fn best_of(tool: &Tool, rounds: usize) -> Option<Figures> {
    let program = tool.line.split_whitespace().next().unwrap();
    if !is_installed(program) {
        return None;
    }
    let rounds = (0..rounds).filter_map(|_| timed(&tool.line, tool.env));
    rounds.min_by(|one, other| one.seconds.total_cmp(&other.seconds))
}

/// A server whose connections stay open. Killed when dropped.
pub(crate) struct Serving(pub(crate) Child);

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
async fn fleet(hosts: u32) -> Sshd {
    let sshd = Sshd::with(MANY_STARTUPS).await;
    configure(&sshd, hosts);
    sshd
}

/// The names, for ssh, and as the inventories that the others want.
fn configure(sshd: &Sshd, hosts: u32) {
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
pub(crate) const ANSIBLE_WITHOUT_REUSE: &[(&str, &str)] = &[
    ("ANSIBLE_HOST_KEY_CHECKING", "True"),
    ("ANSIBLE_SSH_ARGS", "-o ControlMaster=no"),
];
const ANSIBLE_WITH_REUSE: &[(&str, &str)] = &[
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
        Tool {
            name: "sshjobs",
            line: format!(
                "{sshjobs} --ssh-config {config} --state-dir {dir}/state run -j {AT_A_TIME} @{dir}/hosts -- {command}"
            ),
            env: &[],
        },
        Tool {
            name: "GNU parallel + ssh",
            line: format!(
                "parallel -q -j {AT_A_TIME} --tag -a {dir}/hosts ssh -F {config} {{}} {command}"
            ),
            env: &[],
        },
        Tool {
            name: "pssh",
            line: format!("pssh -p {AT_A_TIME} -i -t 0 -x '-F {config}' -h {dir}/hosts {command}"),
            env: &[],
        },
        Tool {
            name: "parallel-ssh (library)",
            line: format!("python3 {dir}/parallel_ssh.py {dir}/hosts {port} {dir}/id {command}"),
            env: &[],
        },
        Tool {
            name: "pyinfra",
            line: format!(
                "pyinfra -y --parallel {AT_A_TIME} {dir}/pyinfra_inventory.py exec -- {command}"
            ),
            env: &[],
        },
        Tool {
            name: "ansible -m raw",
            line: format!("ansible all -i {dir}/inventory.ini -f {AT_A_TIME} -m raw -a {command}"),
            env: ANSIBLE_WITHOUT_REUSE,
        },
    ]
}

/// Tools that keep connections between command lines. Each name has a master of its own.
fn warm_tools(sshd: &Sshd, command: &str) -> Vec<Tool> {
    let (dir, command) = (sshd.path("").display().to_string(), quoted(command));
    let (config, sshjobs) = (format!("{dir}/ssh_config"), env!("CARGO_BIN_EXE_sshjobs"));
    let master = format!("-o ControlMaster=auto -o ControlPersist=60 -o ControlPath={dir}/%n");
    vec![
        Tool {
            name: "sshjobs --server",
            line: format!(
                "{sshjobs} --server {dir}/socket run -j {AT_A_TIME} @{dir}/hosts -- {command}"
            ),
            env: &[],
        },
        Tool {
            name: "GNU parallel + ssh with ControlPersist",
            line: format!(
                "parallel -q -j {AT_A_TIME} --tag -a {dir}/hosts ssh -F {config} {master} {{}} {command}"
            ),
            env: &[],
        },
        Tool {
            name: "ansible -m raw with ControlPersist",
            line: format!("ansible all -i {dir}/inventory.ini -f {AT_A_TIME} -m raw -a {command}"),
            env: ANSIBLE_WITH_REUSE,
        },
    ]
}

/// Runs a command line; none when it fails.
pub(crate) fn timed(line: &str, env: &[(&str, &str)]) -> Option<Figures> {
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
    output.status.success().then(|| Figures {
        seconds: numbers[0],
        cpu_seconds: numbers[1] + numbers[2],
        mebibytes: numbers[3] / 1024.0,
    })
}
