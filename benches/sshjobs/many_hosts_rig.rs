//! Plays many SSH hosts on loopback, in processes of its own, so that their CPU is not counted as that of
//! the clients.
//!
//! Each host is an address of 127.1.0.0/16. sshjobs' line around `uptime`, and `uptime` alone, are answered
//! without a shell; every other command runs in `/bin/sh`. A host that is silent accepts a connection and
//! never speaks.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};
use russh::server::{self, Auth, Handle, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{ChannelId, MethodKind, MethodSet};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

/// The word of this program's command line that makes it a part of the rig.
pub(crate) const RIG: &str = "play-many-hosts";

const PORT: u16 = 2222;
/// Two, because one process may open only 20,000 files, and to use two cores.
const PROCESSES: usize = 2;
const UPTIME: &str = " 12:00:00 up 10 days,  1:00,  0 users,  load average: 0.00, 0.00, 0.00\n";

/// Running hosts, and the files with which clients reach them. Ends when dropped.
pub(crate) struct ManyHosts {
    pub(crate) directory: tempfile::TempDir,
    processes: Vec<Child>,
}

impl ManyHosts {
    /// Starts `hosts` hosts. `silent` of them, spread evenly, never answer.
    pub(crate) fn start(hosts: usize, silent: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        write_files(directory.path(), hosts);
        let processes = (0..PROCESSES)
            .map(|process| {
                let numbers = [hosts, silent, process].map(|number| number.to_string());
                let mut child = Command::new(std::env::current_exe().unwrap())
                    .arg(RIG)
                    .arg(directory.path())
                    .args(numbers)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                let mut line = String::new();
                BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
                assert_eq!(line, "ready\n");
                child
            })
            .collect();
        // Files that were changed just now are read again for each host.
        std::thread::sleep(Duration::from_secs(2));
        Self {
            directory,
            processes,
        }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }
}

impl Drop for ManyHosts {
    fn drop(&mut self) {
        for process in &mut self.processes {
            process.kill().ok();
            process.wait().ok();
        }
    }
}

fn address(host: usize) -> Ipv4Addr {
    let third = u8::try_from(host / 250).expect("at most 64,000 hosts");
    Ipv4Addr::new(127, 1, third, (host % 250 + 1) as u8)
}

/// Writes the keys, and as `ssh_config`, `known_hosts` and `hosts` what clients read: a block and a line for each
/// host.
fn write_files(directory: &Path, hosts: usize) {
    let key = || PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519).unwrap();
    let (host_key, user_key) = (key(), key());
    let write = |file: &str, text: &str| {
        let path = directory.join(file);
        std::fs::write(&path, text).unwrap();
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path, owner_only).unwrap();
    };
    write("id", &user_key.to_openssh(LineEnding::LF).unwrap());
    write("host_key", &host_key.to_openssh(LineEnding::LF).unwrap());
    let public = host_key.public_key().to_openssh().unwrap();
    let public = public.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let shown = directory.display();
    let (mut config, mut known, mut names, mut addresses) =
        (String::new(), String::new(), String::new(), String::new());
    for host in 0..hosts {
        let address = address(host);
        writeln!(names, "h{host:05}").unwrap();
        writeln!(addresses, "{address}").unwrap();
        writeln!(known, "[{address}]:{PORT} {public}").unwrap();
        writeln!(
            config,
            "Host h{host:05}\n  HostName {address}\n  Port {PORT}\n  User root\n  IdentityFile {shown}/id\n  \
             IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile {shown}/known_hosts\n  \
             GlobalKnownHostsFile none"
        )
        .unwrap();
    }
    write("ssh_config", &config);
    write("known_hosts", &known);
    write("hosts", &names);
    write("addresses", &addresses);
}

/// Plays the hosts of one process, until its stdin ends: `RIG DIRECTORY HOSTS SILENT PROCESS`.
pub(crate) fn play(arguments: &[String]) {
    let [directory, numbers @ ..] = arguments else {
        panic!("{RIG} DIRECTORY HOSTS SILENT PROCESS")
    };
    let numbers: Vec<usize> = numbers.iter().map(|number| number.parse().unwrap()).collect();
    let (hosts, silent, process) = (numbers[0], numbers[1], numbers[2]);
    let key = std::fs::read(Path::new(directory).join("host_key")).unwrap();
    let config = Arc::new(server::Config {
        keys: vec![PrivateKey::from_openssh(key).unwrap()],
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        auth_rejection_time_initial: Some(Duration::ZERO),
        nodelay: true,
        ..server::Config::default()
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for host in (process..hosts).step_by(PROCESSES) {
            let listener = TcpListener::bind((address(host), PORT)).await.unwrap();
            if silent > 0 && host % (hosts / silent) == 0 {
                // Connections wait in its queue.
                std::mem::forget(listener);
            } else {
                tokio::spawn(accept(listener, host, Arc::clone(&config)));
            }
        }
        println!("ready");
        std::io::stdout().flush().unwrap();
        // A pipe, and not tokio's stdin, whose thread would block.
        let stdin = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        let mut stdin = tokio::net::unix::pipe::Receiver::from_owned_fd(stdin).unwrap();
        while let Ok(1..) = stdin.read(&mut [0; 1]).await {}
    });
    // Thousands of connections need no goodbye.
    std::process::exit(0);
}

async fn accept(listener: TcpListener, host: usize, config: Arc<server::Config>) {
    while let Ok((socket, _)) = listener.accept().await {
        let session = PlayedHost { host };
        let config = Arc::clone(&config);
        tokio::spawn(async move {
            if let Ok(running) = server::run_stream(config, socket, session).await {
                running.await.ok();
            }
        });
    }
}

struct PlayedHost {
    host: usize,
}

impl server::Handler for PlayedHost {
    type Error = russh::Error;

    async fn auth_publickey_offered(
        &mut self,
        _: &str,
        _: PublicKeyOffer<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(Auth::Accept)
    }

    async fn auth_publickey(
        &mut self,
        _: &str,
        _: VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        _: russh::Channel<Msg>,
        reply: server::ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(channel)?;
        let command = String::from_utf8_lossy(command).into_owned();
        if let Some(output) = answer(self.host, &command) {
            session.data(channel, output.into_bytes())?;
            session.exit_status_request(channel, 0)?;
            session.eof(channel)?;
            session.close(channel)?;
        } else {
            let mut shell = tokio::process::Command::new("/bin/sh");
            shell
                .args(["-c", &command])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .kill_on_drop(true);
            tokio::spawn(pass_on(shell.spawn()?, channel, session.handle()));
        }
        Ok(())
    }
}

async fn pass_on(mut shell: tokio::process::Child, channel: ChannelId, handle: Handle) {
    let mut stdout = shell.stdout.take().unwrap();
    let mut buffer = vec![0; 32 << 10];
    while let Ok(length @ 1..) = stdout.read(&mut buffer).await {
        if handle.data(channel, buffer[..length].to_vec()).await.is_err() {
            return;
        }
    }
    let status = shell.wait().await.ok().and_then(|status| status.code()).unwrap_or(255);
    handle.exit_status_request(channel, status.unsigned_abs()).await.ok();
    handle.eof(channel).await.ok();
    handle.close(channel).await.ok();
}

/// The output of a shell for `uptime`, alone or after sshjobs' own line (crates/job/src/shell).
fn answer(host: usize, command: &str) -> Option<String> {
    if command.trim() == "uptime" {
        return Some(UPTIME.to_owned());
    }
    let rest = command.strip_prefix("SSHJOBS_JOB=")?;
    if !(command.ends_with("\nuptime") || command.ends_with("&& uptime")) {
        return None;
    }
    let is_of_nonce = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
    let nonce: String = rest.chars().take_while(is_of_nonce).collect();
    let pid = 2000 + host;
    let machine = if command.contains("sshjobs-machine:") {
        // The boot id of this host, its namespace, and /proc/1/stat from its third field on.
        let boot = format!("00000000-0000-4000-8000-{host:012}");
        let init = "S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 5 1 1 1 1 1 1 1 0 0 0 0 0";
        format!(" sshjobs-machine:{boot} pid:[4026531836] {init}")
    } else {
        String::new()
    };
    Some(format!("{nonce} {pid}{machine}\n{UPTIME}"))
}
