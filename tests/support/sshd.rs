use std::collections::HashMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A private OpenSSH sshd on a random loopback port, with keys of its own. Dropping it kills it and everything that it
/// started.
pub struct Sshd {
    directory: tempfile::TempDir,
    port: u16,
    child: Child,
}

impl Sshd {
    pub async fn start() -> Self {
        Self::with("").await
    }

    /// With more lines in its sshd_config.
    pub async fn with(options: &str) -> Self {
        Self::prepared(options, |_| {}).await
    }

    /// With more lines in its sshd_config, in which DIR is its directory, and more files there.
    pub async fn prepared(options: &str, prepare: impl FnOnce(&Path)) -> Self {
        let directory =
            tempfile::Builder::new().prefix("sshjobs-sshd").tempdir().expect("a temporary directory");
        for key in ["host", "id", "other"] {
            keygen(&directory.path().join(key), &["-t", "ed25519"]);
        }
        let public = std::fs::read_to_string(directory.path().join("id.pub")).expect("a public key");
        std::fs::write(directory.path().join("authorized_keys"), public).expect("written");
        prepare(directory.path());
        let options = options.replace("DIR", &directory.path().display().to_string());
        for _ in 0..5 {
            let port = free_port();
            if let Some(child) = launch(directory.path(), port, &options).await {
                let sshd = Self { directory, port, child };
                sshd.trust("host");
                sshd.configure("id");
                return sshd;
            }
        }
        panic!(
            "sshd does not start: {}",
            std::fs::read_to_string(directory.path().join("log")).unwrap_or_default()
        );
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// What a durable job has on the host.
    pub fn spool(&self, job: &str) -> PathBuf {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        self.path("on-the-host/sshjobs/spool").join(machine.trim()).join(job)
    }

    pub fn ssh_config(&self) -> PathBuf {
        self.path("ssh_config")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Lists `key` ("host", or "other" for a wrong one) as the server's in known_hosts.
    pub fn trust(&self, key: &str) {
        let public = std::fs::read_to_string(self.path(&format!("{key}.pub"))).expect("a public key");
        self.write_known_hosts(&format!("[127.0.0.1]:{} {public}", self.port));
    }

    pub fn write_known_hosts(&self, text: &str) {
        std::fs::write(self.path("known_hosts"), text).expect("written");
    }

    /// Writes the ssh_config through which the tests' host is reached with `key`.
    pub fn configure(&self, key: &str) {
        let (port, user, dir) = (self.port, user(), self.directory.path().display());
        let text = format!(
            "Host web1\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n  IdentityFile {dir}/{key}\n  \
             IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile {dir}/known_hosts\n  \
             GlobalKnownHostsFile none\n  ServerAliveInterval 1\n"
        );
        std::fs::write(self.ssh_config(), text).expect("written");
    }

    /// Adds to the ssh_config; indented lines belong to the tests' host.
    pub fn append(&self, lines: &str) {
        let text = std::fs::read_to_string(self.ssh_config()).expect("an ssh_config");
        std::fs::write(self.ssh_config(), text + lines).expect("written");
    }

    /// Kills every session, as if the network had gone; the server goes on.
    pub fn cut(&self) {
        self.signal_sessions(Signal::SIGKILL);
    }

    /// Stops every session where it stands: the connections live, and nothing answers.
    pub fn freeze(&self) {
        self.signal_sessions(Signal::SIGSTOP);
    }

    /// Lets the sessions go on.
    pub fn thaw(&self) {
        self.signal_sessions(Signal::SIGCONT);
    }

    fn signal_sessions(&self, signal: Signal) {
        for pid in sessions(self.child.id()) {
            kill(Pid::from_raw(pid.cast_signed()), signal).ok();
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let mut all = descendants(self.child.id());
        all.push(self.child.id());
        all.extend(left_behind(self.port));
        for pid in all {
            kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).ok();
        }
        self.child.wait().ok();
    }
}

/// Processes of jobs whose session is gone, which nobody is the parent of any more.
fn left_behind(port: u16) -> Vec<u32> {
    let end = format!(" 127.0.0.1 {port}");
    let is_ours = |environ: &[u8]| {
        environ
            .split(|byte| *byte == 0)
            .any(|variable| variable.starts_with(b"SSH_CONNECTION=") && variable.ends_with(end.as_bytes()))
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|process| {
            std::fs::read(process.path().join("environ")).is_ok_and(|environ| is_ours(&environ))
        })
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .collect()
}

async fn launch(directory: &Path, port: u16, options: &str) -> Option<Child> {
    let (dir, sshd) = (directory.display(), sshd_program());
    // SHLVL: bash then does not read the startup files of whoever runs the tests.
    let config = format!(
        "{options}\nListenAddress 127.0.0.1\nPort {port}\nHostKey {dir}/host\nPidFile none\nUsePAM no\nStrictModes no\n\
         PermitRootLogin yes\nAuthorizedKeysFile {dir}/authorized_keys\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nUseDNS no\nSetEnv SHLVL=1 XDG_STATE_HOME={dir}/on-the-host\n"
    );
    std::fs::write(directory.join("sshd_config"), config).expect("written");
    // The privilege separation directory; only root's sshd wants it, and only root can make it.
    std::fs::create_dir_all("/run/sshd").ok();
    let mut child = Command::new(sshd)
        .args(["-D", "-E"])
        .arg(directory.join("log"))
        .arg("-f")
        .arg(directory.join("sshd_config"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("sshd can be started");
    // Not by connecting: newer servers hold that against us.
    for _ in 0..500 {
        let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
        if log.contains(&format!("port {port}.")) {
            return Some(child);
        }
        if child.try_wait().expect("a child").is_some() {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    child.kill().ok();
    child.wait().ok();
    None
}

fn sshd_program() -> &'static str {
    ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .expect("these tests need OpenSSH's sshd; `make test` installs it (package openssh-server)")
}

/// Makes a key without a passphrase.
pub fn keygen(file: &Path, kind: &[&str]) {
    ssh_keygen(&[kind, &["-N", "", "-f", &file.display().to_string()]].concat());
}

/// Runs ssh-keygen, quietly.
pub fn ssh_keygen(arguments: &[&str]) {
    let status = Command::new("ssh-keygen")
        .arg("-q")
        .args(arguments)
        .stdout(Stdio::null())
        .status()
        .expect("these tests need ssh-keygen; `make test` installs it");
    assert!(status.success(), "ssh-keygen {arguments:?}");
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).expect("a port").local_addr().expect("an address").port()
}

fn user() -> String {
    let output = Command::new("id").arg("-un").output().expect("id");
    String::from_utf8(output.stdout).expect("a name").trim().to_owned()
}

fn parents() -> HashMap<u32, u32> {
    let pids = std::fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some((pid, parent))
    })
    .collect()
}

fn descendants(root: u32) -> Vec<u32> {
    let parents = parents();
    let mut found = vec![root];
    loop {
        let more: Vec<u32> = parents
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            found.retain(|pid| *pid != root);
            return found;
        }
        found.extend(more);
    }
}

/// The server's own processes that serve connections; what they started is not among them.
fn sessions(server: u32) -> Vec<u32> {
    let is_sshd = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with("sshd"))
    };
    descendants(server).into_iter().filter(is_sshd).collect()
}
