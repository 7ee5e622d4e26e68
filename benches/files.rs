//! Files and forwards beside sftp, scp, rsync and `ssh -L`. Prints tables; asserts nothing.
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

#[path = "distance/mod.rs"]
mod distance;

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use std::io::{Read, Write};

use sshjobs::jobs::{Become, BecomeMethod};
use support::Sshd;

const ROUNDS: usize = 3;
/// Bytes of the large file.
const LARGE: usize = 1 << 30;
/// Bytes of the file for the host that is far away.
const FAR: usize = 512 << 20;
/// Bytes through a forward.
const FLOOD: usize = 512 << 20;

#[tokio::main]
async fn main() {
    // `cargo test` runs benches too; there is nothing to test here.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let sshd = Sshd::start().await;
    // With a word, only the part of that name: `cargo bench --bench files -- become`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let is_wanted = |part: &str| wanted.is_empty() || wanted.iter().any(|word| word == part);
    if is_wanted("one") {
        one_file(&sshd);
    }
    if is_wanted("far") {
        far_away(&sshd).await;
    }
    if is_wanted("many") {
        many_files(&sshd);
    }
    if is_wanted("hosts") {
        many_hosts().await;
    }
    if is_wanted("forward") {
        forwards(&sshd);
    }
    if is_wanted("become") {
        becoming(&sshd).await;
    }
}

/// What another user costs, beside sudo by itself in the same shell. As root, which sudo asks for no
/// password.
async fn becoming(sshd: &Sshd) {
    let jobs = sshd.jobs();
    let root = Become::new("root", BecomeMethod::Sudo).unwrap();
    let becoming = jobs.becoming(Some(root));
    let mut fastest = [f64::MAX; 3];
    for round in 0..60 {
        let runs = [
            (&jobs, "true"),
            (&jobs, "sudo -n true"),
            (&becoming, "true"),
        ];
        for (index, (jobs, command)) in runs.into_iter().enumerate() {
            let began = Instant::now();
            jobs.command(support::HOST, command).status().await.unwrap();
            let seconds = began.elapsed().as_secs_f64();
            // The first ones connect.
            if round > 4 {
                fastest[index] = fastest[index].min(seconds);
            }
        }
    }
    let [plain, sudo, ours] = fastest.map(|seconds| seconds * 1000.0);
    println!(
        "\nAnother user (fastest of 55)\n\n| command | ms | added | added / sudo -n |\n|---|---|---|---|\n\
         | true | {plain:.2} | | |\n| sudo -n true | {sudo:.2} | {:.2} | 1.00 |\n| become root, true | {ours:.2} | {:.2} | {:.2} |",
        sudo - plain,
        ours - plain,
        (ours - plain) / (sudo - plain)
    );
}

/// One file over a link with 50 ms of round trip, beside sftp over the same link.
async fn far_away(sshd: &Sshd) {
    let port = distance::far_away(sshd.port()).await;
    let config = sshd.path("far-config");
    let text = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let own = format!("Port {}", sshd.port());
    let text = text.replace(&own, &format!("Port {port}"));
    std::fs::write(&config, text).unwrap();
    let known = std::fs::read_to_string(sshd.path("known_hosts")).unwrap();
    let other = known.replace(&sshd.port().to_string(), &port.to_string());
    std::fs::write(sshd.path("known_hosts"), format!("{known}{other}")).unwrap();

    let (local, far, back) = (
        sshd.path("far-local"),
        sshd.path("far-far"),
        sshd.path("far-back"),
    );
    std::fs::write(&local, noise(FAR)).unwrap();
    let ours = format!(
        "{} --ssh-config {} --state-dir {}",
        env!("CARGO_BIN_EXE_sshjobs"),
        config.display(),
        sshd.path("state").display()
    );
    let sftp = format!("sftp -q -F {} -b - web1", config.display());
    let (local_word, far_word, back_word) = (local.display(), far.display(), back.display());
    table(
        "512 MiB to a host 50 ms away",
        &[
            Peer {
                name: "sshjobs put",
                line: format!("{ours} put {local_word} web1:{far_word}"),
                target: &far,
            },
            Peer {
                name: "sftp",
                line: format!("echo put {local_word} {far_word} | {sftp}"),
                target: &far,
            },
        ],
    );
    table(
        "512 MiB from a host 50 ms away",
        &[
            Peer {
                name: "sshjobs get",
                line: format!("{ours} get web1:{far_word} {back_word}"),
                target: &back,
            },
            Peer {
                name: "sftp",
                line: format!("echo get {far_word} {back_word} | {sftp}"),
                target: &back,
            },
        ],
    );
}

/// A host with a hundred accounts, each with a home of its own, that take the place of a hundred
/// hosts.
const ACCOUNTS: &str = r#"
cp -a /etc "$3/etc"
for i in $(seq 100); do
  echo "u$i:x:$((62000 + i)):62000::$3/home/u$i:/bin/sh" >>"$3/etc/passwd"
  echo "u$i:*:20000:0:99999:7:::" >>"$3/etc/shadow"
  mkdir -p "$3/home/u$i"
  chown "$((62000 + i)):62000" "$3/home/u$i"
done
mount --bind "$3/etc" /etc || exit
exec /usr/sbin/sshd -D -e -p "$1" -f "$2" -o "ListenAddress=127.0.0.1:$1" \
  -o "AuthorizedKeysFile=$3/authorized_keys" -o MaxStartups=200
"#;

/// 5 MB to a hundred hosts, beside parallel-scp and ansible where they are installed. The accounts
/// take root.
async fn many_hosts() {
    let sshd = Sshd::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::copy(sshd.path("id.pub"), path("authorized_keys")).unwrap();
    let _host = support::Namespace::start(&sshd, ACCOUNTS, &[directory.path()]).await;

    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let settings = config.split_once('\n').unwrap().1;
    let hosts: String = (1..=100)
        .map(|number| format!("Host host{number}\n{settings}  User u{number}\n"))
        .collect();
    std::fs::write(sshd.ssh_config(), hosts).unwrap();
    let (local, list, inventory) = (path("five"), path("hosts.txt"), path("inventory"));
    std::fs::write(&local, noise(5_000_000)).unwrap();
    let names: String = (1..=100).map(|number| format!("host{number}\n")).collect();
    std::fs::write(&list, &names).unwrap();
    let options = format!("-F {}", sshd.ssh_config().display());
    let for_ansible = names.lines().fold(String::new(), |text, name| {
        text + &format!("{name} ansible_ssh_common_args='{options}'\n")
    });
    std::fs::write(&inventory, for_ansible).unwrap();

    let (local, list, inventory) = (local.display(), list.display(), inventory.display());
    // Each round begins without the files.
    let clean = format!("rm -f {}/home/*/five", directory.path().display());
    let mut peers = vec![Peer {
        name: "sshjobs put",
        line: format!("{clean}; {} put {local} 'host*':five", ours(&sshd)),
        target: Path::new(""),
    }];
    if is_installed("parallel-scp") {
        peers.push(Peer {
            name: "parallel-scp",
            line: format!("{clean}; parallel-scp -p 16 -x '{options}' -h {list} {local} five"),
            target: Path::new(""),
        });
    }
    if is_installed("ansible") {
        peers.push(Peer {
            name: "ansible -m copy",
            line: format!(
                "{clean}; ansible -f 16 -i {inventory} all -m copy -a 'src={local} dest=five'"
            ),
            target: Path::new(""),
        });
    }
    table("5 MB to 100 hosts, 16 at a time", &peers);
}

fn is_installed(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Bytes that don't compress.
fn noise(bytes: usize) -> Vec<u8> {
    let words = (0..u32::try_from(bytes / 4 + 1).unwrap()).map(|n| n.wrapping_mul(0x9e37_79b9));
    words.flat_map(u32::to_le_bytes).take(bytes).collect()
}

/// A command line, and what must be removed before each round.
struct Peer<'a> {
    name: &'a str,
    line: String,
    target: &'a Path,
}

/// The fastest of some rounds: seconds, and processor seconds of the client.
fn best(peer: &Peer<'_>) -> (f64, f64) {
    let rounds = (0..ROUNDS).map(|_| {
        if peer.target.as_os_str().is_empty() {
            // Nothing to remove.
        } else if peer.target.is_dir() {
            std::fs::remove_dir_all(peer.target).unwrap();
        } else {
            std::fs::remove_file(peer.target).ok();
        }
        let before = children_seconds();
        let began = Instant::now();
        let ran = Command::new("sh")
            .args(["-c", &peer.line])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(ran.unwrap().success(), "{}: {}", peer.name, peer.line);
        (began.elapsed().as_secs_f64(), children_seconds() - before)
    });
    rounds.min_by(|one, other| one.0.total_cmp(&other.0)).unwrap()
}

/// Processor seconds of all children that have ended.
fn children_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: f64 = fields[13..15].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    ticks / 100.0
}

/// The first peer is ours.
fn table(title: &str, peers: &[Peer<'_>]) {
    println!("\n{title}\n\n| tool | s | CPU s | time / ours | CPU / ours |\n|---|---|---|---|---|");
    let mut ours = None;
    for peer in peers {
        let (seconds, cpu) = best(peer);
        let (our_seconds, our_cpu) = *ours.get_or_insert((seconds, cpu));
        println!(
            "| {} | {seconds:.2} | {cpu:.2} | {:.2} | {:.2} |",
            peer.name,
            seconds / our_seconds,
            cpu / our_cpu
        );
    }
}

/// The program, as a word of a shell.
fn ours(sshd: &Sshd) -> String {
    format!(
        "{} --ssh-config {} --state-dir {}",
        env!("CARGO_BIN_EXE_sshjobs"),
        sshd.ssh_config().display(),
        sshd.path("state").display()
    )
}

fn one_file(sshd: &Sshd) {
    let (local, far, back) = (sshd.path("large"), sshd.path("far"), sshd.path("back"));
    let block: Vec<u8> = (0..1_u32 << 18)
        .flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes())
        .collect();
    let mut file = std::fs::File::create(&local).unwrap();
    for _ in 0..LARGE / block.len() {
        file.write_all(&block).unwrap();
    }
    let (local_word, far_word, back_word) = (local.display(), far.display(), back.display());
    let (ours, config) = (ours(sshd), sshd.ssh_config());
    let sftp = format!("sftp -q -F {} -b - web1", config.display());
    table(
        "One file of 1 GiB to the host (ours is verified by SHA-256)",
        &[
            Peer {
                name: "sshjobs put",
                line: format!("{ours} put {local_word} web1:{far_word}"),
                target: &far,
            },
            Peer {
                name: "sftp",
                line: format!("echo put {local_word} {far_word} | {sftp}"),
                target: &far,
            },
        ],
    );
    table(
        "One file of 1 GiB from the host (ours is verified by SHA-256)",
        &[
            Peer {
                name: "sshjobs get",
                line: format!("{ours} get web1:{far_word} {back_word}"),
                target: &back,
            },
            Peer {
                name: "sftp",
                line: format!("echo get {far_word} {back_word} | {sftp}"),
                target: &back,
            },
        ],
    );
    for path in [local, far, back] {
        std::fs::remove_file(path).unwrap();
    }
}

fn many_files(sshd: &Sshd) {
    let (tree, far) = (sshd.path("tree"), sshd.path("far-tree"));
    for directory in 0..100 {
        let directory = tree.join(format!("d{directory}"));
        std::fs::create_dir_all(&directory).unwrap();
        for n in 0..100 {
            std::fs::write(directory.join(format!("f{n}")), vec![b'x'; 4096]).unwrap();
        }
    }
    let (ours, config) = (ours(sshd), sshd.ssh_config().display().to_string());
    let (tree_word, far_word) = (tree.display(), far.display());
    table(
        "10,000 files of 4 KiB to an empty directory",
        &[
            Peer {
                name: "sshjobs put -r",
                line: format!("{ours} put -r {tree_word} web1:{far_word}"),
                target: &far,
            },
            Peer {
                name: "rsync -e ssh",
                line: format!("rsync -r -e 'ssh -F {config}' {tree_word}/ web1:{far_word}"),
                target: &far,
            },
            Peer {
                name: "scp -r",
                line: format!("scp -q -r -F {config} {tree_word} web1:{far_word}"),
                target: &far,
            },
        ],
    );
}

/// A process that forwards. Killed when dropped.
struct Forwarding(Child);

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn forwards(sshd: &Sshd) {
    let echo = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = echo.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in echo.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut first = [0; 1];
                if stream.read_exact(&mut first).is_err() {
                    return;
                }
                // A flood towards us, or an echo.
                if first[0] == b'F' {
                    let block = vec![0; 1 << 20];
                    for _ in 0..FLOOD / block.len() {
                        stream.write_all(&block).unwrap();
                    }
                    return;
                }
                stream.set_nodelay(true).unwrap();
                let mut byte = [0; 1];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            });
        }
    });
    println!(
        "\nOne forward\n\n| tool | MB/s | µs of an echo | throughput / ssh | latency / ssh |\n|---|---|---|---|---|"
    );
    let (ours_port, ssh_port) = (free_port(), free_port());
    let config = sshd.ssh_config();
    let spec = |port: u16| format!("{port}:localhost:{target}");
    let mut ssh = Command::new("ssh");
    ssh.arg("-F").arg(&config).args(["-N", "-L", &spec(ssh_port), "web1"]);
    let mut forward = Command::new(env!("CARGO_BIN_EXE_sshjobs"));
    forward
        .arg("--ssh-config")
        .arg(&config)
        .args(["forward", "web1", "-L", &spec(ours_port)]);
    let _ssh = Forwarding(ssh.spawn().unwrap());
    let _forward = Forwarding(forward.stdout(Stdio::null()).spawn().unwrap());
    let mut theirs = None;
    for (name, port) in [("ssh -L", ssh_port), ("sshjobs forward -L", ours_port)] {
        let rounds: Vec<_> = (0..ROUNDS).map(|_| (throughput(port), latency(port))).collect();
        let speed = rounds.iter().map(|round| round.0).fold(0.0, f64::max);
        let delay = rounds.iter().map(|round| round.1).fold(f64::MAX, f64::min);
        let (their_speed, their_delay) = *theirs.get_or_insert((speed, delay));
        println!(
            "| {name} | {speed:.0} | {delay:.0} | {:.2} | {:.2} |",
            speed / their_speed,
            delay / their_delay
        );
    }
}

fn connect(port: u16) -> TcpStream {
    let began = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(20), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Megabytes a second of a flood.
fn throughput(port: u16) -> f64 {
    let mut stream = connect(port);
    let began = Instant::now();
    stream.write_all(b"F").unwrap();
    let mut read = 0;
    let mut buffer = vec![0; 1 << 18];
    while read < FLOOD {
        match stream.read(&mut buffer).unwrap() {
            0 => panic!("it ended early"),
            some => read += some,
        }
    }
    FLOOD as f64 / 1e6 / began.elapsed().as_secs_f64()
}

/// Microseconds of one byte there and back, at the median.
fn latency(port: u16) -> f64 {
    let mut stream = connect(port);
    stream.set_nodelay(true).unwrap();
    stream.write_all(b"E").unwrap();
    let mut took: Vec<f64> = (0..1000)
        .map(|_| {
            let began = Instant::now();
            let mut byte = [0; 1];
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut byte).unwrap();
            began.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}
