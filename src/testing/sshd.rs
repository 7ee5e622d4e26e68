//! A real OpenSSH server for tests.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use super::keygen;
use super::processes::{descendants, left_behind, sessions};
use crate::{Access, Error, Jobs, JobsBuilder};

/// A private OpenSSH sshd on a free loopback port, as the user who runs the test. Everything is in
/// its temporary directory, with three key files: `host`, the user's `id`, and `other`, which the
/// server does not know. Dropping it kills it and everything that it started, and removes the
/// directory.
#[derive(Debug)]
pub struct Sshd {
    directory: tempfile::TempDir,
    port: u16,
    /// None after [`kill`](Self::kill): the process id may belong to another process then.
    child: Option<Child>,
}

/// Why sshd could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SshdError {
    /// It is not installed.
    #[error("sshd is not installed; install the package openssh-server, or use testing::Demo")]
    Missing,
    /// Its directory or its keys can't be created, or it can't be run.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It ended, or did not listen in time.
    #[error("sshd does not start: {log}")]
    DoesNotStart {
        /// Its log.
        log: String,
    },
}

/// Interval and number of checks whether the server listens.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
const MOST_CHECKS: usize = 500;

impl Sshd {
    /// Its name in its ssh_config.
    pub const HOST: &str = "web1";

    /// Starts a server and waits until it listens.
    ///
    /// # Errors
    /// If OpenSSH is not installed, or sshd does not start.
    pub async fn start() -> Result<Self, SshdError> {
        Self::with("").await
    }

    /// Starts a server with more lines in its sshd_config, in which DIR stands for its directory.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn with(sshd_config: &str) -> Result<Self, SshdError> {
        Self::prepared(sshd_config, |_| {}).await
    }

    /// Like [`with`](Self::with), with more files: `prepare` gets the directory before the server
    /// starts.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn prepared(
        sshd_config: &str,
        prepare: impl FnOnce(&Path),
    ) -> Result<Self, SshdError> {
        let directory = tempfile::Builder::new().prefix("sshjobs-sshd").tempdir()?;
        for key in ["host", "id", "other"] {
            keygen(&directory.path().join(key), &["-t", "ed25519"])?;
        }
        fs::copy(
            directory.path().join("id.pub"),
            directory.path().join("authorized_keys"),
        )?;
        prepare(directory.path());
        let options = sshd_config.replace("DIR", &directory.path().display().to_string());
        // Another program may take the port before sshd does.
        for _ in 0..5 {
            let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
            write_sshd_config(directory.path(), port, &options)?;
            if let Some(child) = launch(directory.path(), port).await? {
                let sshd = Self {
                    directory,
                    port,
                    child: Some(child),
                };
                sshd.trust("host");
                sshd.configure("id");
                return Ok(sshd);
            }
        }
        Err(SshdError::DoesNotStart {
            log: fs::read_to_string(directory.path().join("log")).unwrap_or_default(),
        })
    }

    /// Jobs that know this host and no other. They store nothing and read none of the user's
    /// configuration.
    ///
    /// # Errors
    /// As [`JobsBuilder::start`].
    pub async fn jobs(&self) -> Result<Jobs, Error> {
        self.builder().start().await
    }

    /// The options of [`jobs`](Self::jobs), to be changed before they are used.
    pub fn builder(&self) -> JobsBuilder {
        Jobs::builder().ssh_config(self.ssh_config()).access(Access::Listed)
    }

    /// The port on which it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path of a file in its directory.
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// Its ssh_config, for `ssh -F`.
    pub fn ssh_config(&self) -> PathBuf {
        self.path("ssh_config")
    }

    /// Its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Lists the key in `key` ("host", or "other" for a wrong one) as the host's in known_hosts.
    ///
    /// # Panics
    /// If the files can't be read or written.
    pub fn trust(&self, key: &str) {
        let public = fs::read_to_string(self.path(&format!("{key}.pub"))).expect("a public key");
        self.write_known_hosts(&format!("[127.0.0.1]:{} {public}", self.port));
    }

    /// Replaces known_hosts.
    ///
    /// # Panics
    /// If it can't be written.
    pub fn write_known_hosts(&self, text: &str) {
        fs::write(self.path("known_hosts"), text).expect("known_hosts is written");
    }

    /// Replaces the ssh_config by one that logs in with the key in `key`.
    ///
    /// # Panics
    /// If it can't be written.
    pub fn configure(&self, key: &str) {
        let port = self.port;
        let dir = self.directory.path().display();
        // Without a User line, it is the user who runs the test.
        let text = format!(
            "Host {}\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {dir}/{key}\n  IdentitiesOnly yes\n  IdentityAgent none\n  \
             UserKnownHostsFile {dir}/known_hosts\n  GlobalKnownHostsFile none\n  ServerAliveInterval 1\n",
            Self::HOST
        );
        fs::write(self.ssh_config(), text).expect("ssh_config is written");
    }

    /// Adds to the ssh_config; indented lines belong to the last host in it.
    ///
    /// # Panics
    /// If it can't be written.
    pub fn append(&self, lines: &str) {
        let text = fs::read_to_string(self.ssh_config()).expect("an ssh_config");
        fs::write(self.ssh_config(), text + lines).expect("ssh_config is written");
    }

    /// Adds more names for it, as if each were a host.
    ///
    /// # Panics
    /// If the files can't be written.
    pub fn alias(&self, names: impl IntoIterator<Item = impl AsRef<str>>) {
        let text = fs::read_to_string(self.ssh_config()).expect("an ssh_config");
        let lines = text.lines().skip(1).collect::<Vec<_>>().join("\n");
        let names: Vec<String> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        self.append(&format!("Host {}\n{lines}\n", names.join(" ")));
    }

    /// Kills every session, as if the network had failed; the server keeps running.
    pub fn cut(&self) {
        self.signal_sessions(Signal::KILL);
    }

    /// Stops every session: connections stay open, and nothing answers.
    pub fn freeze(&self) {
        self.signal_sessions(Signal::STOP);
    }

    /// Resumes stopped sessions.
    pub fn thaw(&self) {
        self.signal_sessions(Signal::CONT);
    }

    /// Kills the server and its sessions, as if the machine's sshd had crashed. Durable jobs continue.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        for pid in sessions(child.id()) {
            kill(pid, Signal::KILL);
        }
        child.kill().ok();
        child.wait().ok();
    }

    /// Starts the server again on its port, after [`kill`](Self::kill), and waits until it listens.
    ///
    /// # Errors
    /// [`SshdError::DoesNotStart`], for example if another program has taken the port meanwhile.
    pub async fn start_again(&mut self) -> Result<(), SshdError> {
        // The log of the last start says that it listens.
        fs::rename(self.path("log"), self.path("log.of-the-last-start"))?;
        match launch(self.directory.path(), self.port).await? {
            Some(child) => {
                self.child = Some(child);
                Ok(())
            }
            None => Err(SshdError::DoesNotStart { log: self.log() }),
        }
    }

    fn signal_sessions(&self, signal: Signal) {
        let Some(child) = &self.child else { return };
        sessions(child.id()).into_iter().for_each(|pid| kill(pid, signal));
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // Lists all before the first is killed: an orphan's parent is no longer the server.
        let mut all = self.child.as_ref().map(|child| descendants(child.id())).unwrap_or_default();
        all.extend(left_behind(self.port));
        if let Some(child) = &mut self.child {
            child.kill().ok();
        }
        all.into_iter().for_each(|pid| kill(pid, Signal::KILL));
        if let Some(child) = &mut self.child {
            child.wait().ok();
        }
    }
}

fn kill(pid: u32, signal: Signal) {
    // A session that has ended meanwhile needs no signal.
    Pid::from_raw(pid.cast_signed()).map(|pid| kill_process(pid, signal).ok());
}

fn write_sshd_config(directory: &Path, port: u16, options: &str) -> io::Result<()> {
    let dir = directory.display();
    let sftp = if options.contains("Subsystem") {
        ""
    } else {
        "Subsystem sftp internal-sftp"
    };
    // Only IPv4: sshd would otherwise accept a port for a forward that another program has on IPv4.
    // With SHLVL set, bash does not read the startup files of the user who runs the tests.
    let config = format!(
        "{options}\n{sftp}\nAddressFamily inet\nListenAddress 127.0.0.1\nPort {port}\nHostKey {dir}/host\nPidFile none\nUsePAM no\nStrictModes no\n\
         PermitRootLogin yes\nAuthorizedKeysFile {dir}/authorized_keys\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nUseDNS no\nSetEnv SHLVL=1 XDG_STATE_HOME={dir}/on-the-host\n"
    );
    fs::write(directory.join("sshd_config"), config)
}

/// Starts sshd with the configuration in the directory, and waits until it listens. `None` if it exits or
/// does not listen in time.
async fn launch(directory: &Path, port: u16) -> Result<Option<Child>, SshdError> {
    let sshd = program()?;
    // The privilege separation directory. Only root's sshd needs it, and only root can create it.
    fs::create_dir_all("/run/sshd").ok();
    let mut command = Command::new(sshd);
    command
        .arg("-D")
        .arg("-E")
        .arg(directory.join("log"))
        .arg("-f")
        .arg(directory.join("sshd_config"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // Without connecting: newer servers penalize connections without a login.
    for _ in 0..MOST_CHECKS {
        let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
        // sshd logs a line that ends like this once it listens.
        if log.contains(&format!("port {port}.")) {
            return Ok(Some(child));
        }
        if child.try_wait()?.is_some() {
            return Ok(None);
        }
        sleep(CHECK_INTERVAL).await;
    }
    child.kill().ok();
    child.wait().ok();
    Ok(None)
}

fn program() -> Result<&'static str, SshdError> {
    let known = [
        "/usr/sbin/sshd",
        "/usr/local/sbin/sshd",
        "/usr/bin/sshd",
        "/opt/homebrew/sbin/sshd",
    ];
    known
        .into_iter()
        .find(|path| Path::new(path).exists())
        .ok_or(SshdError::Missing)
}
