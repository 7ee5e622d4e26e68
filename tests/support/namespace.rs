use std::cell::RefCell;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Sshd, eventually};

/// An sshd with its own mounts and processes, started by a script that prepares its host. It takes
/// root. Dropping it ends all of its processes.
pub struct Namespace(Child);

/// Attempts to find a port.
const MOST_ATTEMPTS: usize = 5;

impl Namespace {
    /// Runs a script of sh that prepares the host and ends with `exec /usr/sbin/sshd -D -e -p "$1"
    /// -f "$2"`. Other arguments follow. The ssh_config of `sshd` then leads to this server.
    pub async fn start(sshd: &Sshd, script: &str, arguments: &[&Path]) -> Self {
        // Another program may take the port before the server does.
        for _ in 0..MOST_ATTEMPTS {
            if let Some(namespace) = Self::try_to_start(sshd, script, arguments).await {
                return namespace;
            }
        }
        panic!("no port was free in {MOST_ATTEMPTS} attempts, or the host can't be prepared");
    }

    /// `None` if the server has ended at once.
    async fn try_to_start(sshd: &Sshd, script: &str, arguments: &[&Path]) -> Option<Self> {
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let log = sshd.path("namespace-log");
        let child = Command::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                script,
                "sh",
            ])
            .arg(port.to_string())
            .arg(sshd.path("sshd_config"))
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .expect("unshare (util-linux) can be started");
        let child = RefCell::new(Self(child));
        let listens = format!("port {port}.");
        let is_up = || std::fs::read_to_string(&log).unwrap_or_default().contains(&listens);
        let has_ended = || child.borrow_mut().0.try_wait().unwrap().is_some();
        eventually("the host is up, or its server has ended", async || {
            is_up() || has_ended()
        })
        .await;
        if has_ended() {
            return None;
        }
        let namespace = child.into_inner();

        let text = std::fs::read_to_string(sshd.ssh_config()).unwrap();
        let own = format!("Port {}", sshd.port());
        std::fs::write(
            sshd.ssh_config(),
            text.replace(&own, &format!("Port {port}")),
        )
        .unwrap();
        let known = std::fs::read_to_string(sshd.path("host.pub")).unwrap();
        sshd.write_known_hosts(&format!("[127.0.0.1]:{port} {known}"));
        Some(namespace)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The first process of the namespace: the others end with it.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
