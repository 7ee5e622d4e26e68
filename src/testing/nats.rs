//! A real NATS server for tests.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A private NATS server with JetStream on a free loopback port. Everything is in its temporary
/// directory. Dropping it kills it and removes the directory.
#[derive(Debug)]
pub struct NatsServer {
    directory: tempfile::TempDir,
    config: String,
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
        let ports = [free_port()?, free_port()?, free_port()?];
        let routes = ports.map(|port| format!("nats-route://127.0.0.1:{port}")).join(", ");
        let server = |number: usize| {
            Self::with(&format!(
                "server_name: n{number}\ncluster {{ name: test, listen: 127.0.0.1:{}, routes: [{routes}], no_advertise: true }}",
                ports[number]
            ))
        };
        Ok([server(0)?, server(1)?, server(2)?])
    }

    /// Starts a server with more lines in its configuration. Blocking.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn with(config: &str) -> Result<Self, NatsServerError> {
        let directory = tempfile::Builder::new().prefix("sshjobs-nats").tempdir()?;
        let port = free_port()?;
        let mut server = Self {
            child: launch(directory.path(), port, config)?,
            directory,
            config: config.to_owned(),
            port,
        };
        server.wait_until_listening()?;
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

    fn wait_until_listening(&mut self) -> Result<(), NatsServerError> {
        for _ in 0..MOST_CHECKS {
            if self.child.try_wait()?.is_some() {
                break;
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
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
        self.child = launch(self.directory.path(), self.port, &self.config)?;
        self.wait_until_listening()
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn launch(directory: &Path, port: u16, config: &str) -> Result<Child, NatsServerError> {
    let program = std::env::var_os(VARIABLE).unwrap_or_else(|| "nats-server".into());
    let text = format!(
        "listen: 127.0.0.1:{port}\njetstream {{ store_dir: {:?} }}\nlog_file: {:?}\n{config}\n",
        directory.join("data"),
        directory.join("log"),
    );
    let file = directory.join("config");
    fs::write(&file, text)?;
    let mut command = Command::new(program);
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

impl Drop for NatsServer {
    fn drop(&mut self) {
        // It has ended already, if it can't be killed.
        self.kill().ok();
    }
}
