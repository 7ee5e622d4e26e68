//! A real NATS server for tests.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A private NATS server with JetStream on a free loopback port. Everything is in its temporary
/// directory. Dropping it kills it and removes the directory.
#[derive(Debug)]
pub struct NatsServer {
    directory: tempfile::TempDir,
    program: PathBuf,
    config: String,
    /// Bytes on disk that it may use. `None` for as many as it likes.
    room: Option<u64>,
    port: u16,
    child: Child,
}

/// Why a NATS server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsServerError {
    /// It is not installed.
    #[error("nats-server is not installed; set NATS_SERVER to its path, or install it in PATH")]
    Missing,
    /// Its directory can't be created, or it can't be run.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It ended, or did not listen in time.
    #[error("nats-server does not start: {log}")]
    DoesNotStart {
        /// Its log.
        log: String,
    },
}

/// Variable with the path of the server.
const VARIABLE: &str = "NATS_SERVER";
/// Interval and number of checks whether the server listens.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
const MOST_CHECKS: usize = 500;
/// Attempts to start servers.
const MOST_STARTS: usize = 3;

impl NatsServer {
    /// Starts a server and waits until it listens. Blocking.
    ///
    /// # Errors
    /// If it is not installed, or does not start.
    pub fn start() -> Result<Self, NatsServerError> {
        Self::with("")
    }

    /// Starts three servers that are one NATS cluster. Blocking.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn cluster() -> Result<[Self; 3], NatsServerError> {
        Self::cluster_of(&default_program())
    }

    /// The same with another program, such as that of an older version.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn cluster_of(program: &Path) -> Result<[Self; 3], NatsServerError> {
        with_other_ports(|| Self::cluster_on([free_port()?, free_port()?, free_port()?], program))
    }

    /// With ports at which the servers reach each other.
    fn cluster_on(ports: [u16; 3], program: &Path) -> Result<[Self; 3], NatsServerError> {
        let routes = ports.map(|port| format!("nats-route://127.0.0.1:{port}")).join(", ");
        let server = |number: usize| {
            let config = format!(
                "server_name: n{number}\ncluster {{ name: test, listen: 127.0.0.1:{}, routes: [{routes}], no_advertise: true }}",
                ports[number]
            );
            Self::launched(program, config, None)
        };
        let mut servers = [server(0)?, server(1)?, server(2)?];
        for (server, port) in servers.iter_mut().zip(ports) {
            server.wait_until_listening(port)?;
        }
        Ok(servers)
    }

    /// Starts a server with more lines in its configuration. Blocking.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn with(config: &str) -> Result<Self, NatsServerError> {
        with_other_ports(|| Self::launched(&default_program(), config.to_owned(), None))
    }

    /// Starts a server that refuses to store more than some bytes. Blocking.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn with_room(bytes: u64) -> Result<Self, NatsServerError> {
        with_other_ports(|| Self::launched(&default_program(), String::new(), Some(bytes)))
    }

    fn launched(
        program: &Path,
        config: String,
        room: Option<u64>,
    ) -> Result<Self, NatsServerError> {
        let directory = tempfile::Builder::new().prefix("sshjobs-nats").tempdir()?;
        let port = free_port()?;
        let launch = Launch {
            program,
            directory: directory.path(),
            port,
            room,
            config: &config,
        };
        let mut server = Self {
            child: launch.run()?,
            directory,
            program: program.to_owned(),
            config,
            room,
            port,
        };
        server.wait_until_listening(port)?;
        Ok(server)
    }

    /// URL of the server.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_listening(&mut self, port: u16) -> Result<(), NatsServerError> {
        for _ in 0..MOST_CHECKS {
            if self.child.try_wait()?.is_some() {
                break;
            }
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(());
            }
            std::thread::park_timeout(CHECK_INTERVAL);
        }
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        Err(NatsServerError::DoesNotStart { log })
    }

    /// Kills the server (SIGKILL). What it has stored stays.
    ///
    /// # Errors
    /// If it can't be killed.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Starts a killed server again, on the same port.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_again(&mut self) -> Result<(), NatsServerError> {
        let launch = Launch {
            program: &self.program,
            directory: self.directory.path(),
            port: self.port,
            room: self.room,
            config: &self.config,
        };
        self.child = launch.run()?;
        self.wait_until_listening(self.port)
    }

    /// From its next start on it may use any number of bytes.
    pub fn make_room(&mut self) {
        self.room = None;
    }

    /// Deletes everything that a killed server has stored.
    ///
    /// # Errors
    /// If it can't be deleted.
    pub fn lose_all(&self) -> io::Result<()> {
        fs::remove_dir_all(self.directory.path().join("data"))
    }

    /// From its next start on it is another program, such as that of a newer version.
    pub fn change_program(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }
}

/// The program that `NATS_SERVER` names, or that is in `PATH`.
fn default_program() -> PathBuf {
    std::env::var_os(VARIABLE).unwrap_or_else(|| "nats-server".into()).into()
}

/// Starts servers, again if they don't start: another program may have taken a port meanwhile.
fn with_other_ports<T>(
    start: impl Fn() -> Result<T, NatsServerError>,
) -> Result<T, NatsServerError> {
    for _ in 1..MOST_STARTS {
        match start() {
            Err(NatsServerError::DoesNotStart { .. }) => {}
            started => return started,
        }
    }
    start()
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Settings of a server to start.
struct Launch<'a> {
    program: &'a Path,
    directory: &'a Path,
    port: u16,
    room: Option<u64>,
    config: &'a str,
}

impl Launch<'_> {
    fn run(&self) -> Result<Child, NatsServerError> {
        let room = self.room.map_or_else(String::new, |bytes| format!(", max_file_store: {bytes}"));
        let text = format!(
            "listen: 127.0.0.1:{}\njetstream {{ store_dir: {:?}{room} }}\nlog_file: {:?}\n{}\n",
            self.port,
            self.directory.join("data"),
            self.directory.join("log"),
            self.config,
        );
        let file = self.directory.join("config");
        fs::write(&file, text)?;
        let mut command = Command::new(self.program);
        command.arg("-c").arg(file).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                NatsServerError::Missing
            } else {
                NatsServerError::Io(error)
            }
        })
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        // It has ended already, if it can't be killed.
        self.kill().ok();
    }
}
