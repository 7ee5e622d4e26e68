//! Files and forwards beside sftp, scp, rsync and `ssh -L`.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use std::io::{Read, Write};

use crate::distance;
use crate::report::{Report, is_installed};
use crate::support::{HOST, Namespace, Sshd};
use sshjobs_core::jobs::{self, Become, BecomeMethod};

const ROUNDS: usize = 3;
/// Half of the round trip to the host that is far away.
const DELAY: Duration = Duration::from_millis(25);
/// Bytes of the large file.
const LARGE: usize = 1 << 30;
/// Bytes of the file for the host that is far away.
const FAR: usize = 512 << 20;
/// Bytes through a forward.
const FLOOD: usize = 512 << 20;

/// What another user costs, beside sudo by itself in the same shell. As root, which sudo asks for no
/// password.
pub(crate) async fn becoming(report: &mut Report, sshd: &Sshd) {
    let jobs = sshd.jobs();
    let root = Become::new("root", BecomeMethod::Sudo).unwrap();
    let becoming = jobs.with_context(|context| context.becomes = Some(root));
    let mut fastest = [f64::MAX; 3];
    for round in 0..60 {
        let runs = [
            (&jobs, "true"),
            (&jobs, "sudo -n true"),
            (&becoming, "true"),
        ];
        for (index, (jobs, command)) in runs.into_iter().enumerate() {
            let began = Instant::now();
            jobs.run(HOST, jobs::Command::shell(command)).await.unwrap().wait().await;
            let seconds = began.elapsed().as_secs_f64();
            // The first ones connect.
            if round > 4 {
                fastest[index] = fastest[index].min(seconds);
            }
        }
    }
    let [plain, sudo, ours] = fastest.map(|seconds| seconds * 1000.0);
    report.row(
        "what another user adds to `true` (fastest of 55), against `sudo -n true`",
        &format!("{:.2} ms", ours - plain),
        &format!("{:.2} ms", sudo - plain),
        Some((ours - plain) / (sudo - plain)),
        "–",
    );
}

/// An ssh_config with which the host is 50 ms away.
pub(crate) async fn far_config(sshd: &Sshd) -> PathBuf {
    let port = distance::far_away(sshd.port(), DELAY).await;
    let config = sshd.path("far-config");
    let text = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let own = format!("Port {}", sshd.port());
    let text = text.replace(&own, &format!("Port {port}"));
    std::fs::write(&config, text).unwrap();
    let known = std::fs::read_to_string(sshd.path("known_hosts")).unwrap();
    let other = known.replace(&sshd.port().to_string(), &port.to_string());
    std::fs::write(sshd.path("known_hosts"), format!("{known}{other}")).unwrap();
    config
}

/// One file over a link with 50 ms of round trip, beside sftp over the same link.
pub(crate) async fn far_away(report: &mut Report, sshd: &Sshd) {
    let config = far_config(sshd).await;
    let (local, far, back) = (
        sshd.path("far-local"),
        sshd.path("far-far"),
        sshd.path("far-back"),
    );
    std::fs::write(&local, noise(FAR)).unwrap();
    let ours = ours_with(sshd, &config);
    let sftp = format!("sftp -q -F {} -b - web1", config.display());
    let (local_word, far_word, back_word) = (local.display(), far.display(), back.display());
    table(
        report,
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
        report,
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
pub(crate) async fn many_hosts(report: &mut Report) {
    let sshd = Sshd::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::copy(sshd.path("id.pub"), path("authorized_keys")).unwrap();
    let _host = Namespace::start(&sshd, ACCOUNTS, &[directory.path()]).await;

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
    table(report, "5 MB to 100 hosts, 16 at a time", &peers);
}

/// Bytes that don't compress.
fn noise(bytes: usize) -> Vec<u8> {
    let words = (0..u32::try_from(bytes / 4 + 1).unwrap()).map(|n| n.wrapping_mul(0x9e37_79b9));
    words.flat_map(u32::to_le_bytes).take(bytes).collect()
}

/// A command line, and what must be removed before each round.
pub(crate) struct Peer<'a> {
    pub(crate) name: &'a str,
    pub(crate) line: String,
    pub(crate) target: &'a Path,
}

/// The fastest of some rounds: seconds, and processor seconds of the client.
pub(crate) fn best(peer: &Peer<'_>) -> (f64, f64) {
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

/// A row for each peer; the first is ours.
fn table(report: &mut Report, title: &str, peers: &[Peer<'_>]) {
    let (ours, others) = peers.split_first().unwrap();
    let ours = best(ours);
    let shown = |(seconds, cpu): (f64, f64)| format!("{seconds:.2} s, {cpu:.2} s of CPU");
    for peer in others {
        let theirs = best(peer);
        report.row(
            &format!("{title}: {}", peer.name),
            &shown(ours),
            &shown(theirs),
            Some(ours.0 / theirs.0),
            "–",
        );
    }
}

/// The program, as a word of a shell.
fn ours(sshd: &Sshd) -> String {
    ours_with(sshd, &sshd.ssh_config())
}

/// The program with another ssh_config, as a word of a shell.
pub(crate) fn ours_with(sshd: &Sshd, config: &Path) -> String {
    format!(
        "{} --ssh-config {} --state-dir {}",
        env!("CARGO_BIN_EXE_sshjobs"),
        config.display(),
        sshd.path("state").display()
    )
}

pub(crate) fn one_file(report: &mut Report, sshd: &Sshd) {
    let (local, far, back) = (sshd.path("large"), sshd.path("far"), sshd.path("back"));
    write_large(&local);
    let (local_word, far_word, back_word) = (local.display(), far.display(), back.display());
    let (ours, config) = (ours(sshd), sshd.ssh_config());
    let sftp = format!("sftp -q -F {} -b - web1", config.display());
    table(
        report,
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
        report,
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

/// 10,000 files of 4 KiB.
pub(crate) fn write_tree(tree: &Path) {
    for directory in 0..100 {
        let directory = tree.join(format!("d{directory}"));
        std::fs::create_dir_all(&directory).unwrap();
        for n in 0..100 {
            std::fs::write(directory.join(format!("f{n}")), vec![b'x'; 4096]).unwrap();
        }
    }
}

/// A file of 1 GiB that does not compress.
pub(crate) fn write_large(file: &Path) {
    let block: Vec<u8> = (0..1_u32 << 18)
        .flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes())
        .collect();
    let mut file = std::fs::File::create(file).unwrap();
    for _ in 0..LARGE / block.len() {
        file.write_all(&block).unwrap();
    }
}

pub(crate) fn many_files(report: &mut Report, sshd: &Sshd) {
    let (tree, far) = (sshd.path("tree"), sshd.path("far-tree"));
    write_tree(&tree);
    let (ours, config) = (ours(sshd), sshd.ssh_config().display().to_string());
    let (tree_word, far_word) = (tree.display(), far.display());
    table(
        report,
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

pub(crate) fn forwards(report: &mut Report, sshd: &Sshd) {
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
    let [ssh, ours] = [ssh_port, ours_port].map(|port| {
        let rounds: Vec<_> = (0..ROUNDS).map(|_| (throughput(port), latency(port))).collect();
        let speed = rounds.iter().map(|round| round.0).fold(0.0, f64::max);
        let delay = rounds.iter().map(|round| round.1).fold(f64::MAX, f64::min);
        (speed, delay)
    });
    report.row(
        "MB/s through a forward, against ssh -L",
        &format!("{:.0} MB/s", ours.0),
        &format!("{:.0} MB/s", ssh.0),
        Some(ours.0 / ssh.0),
        "–",
    );
    report.row(
        "an echo through a forward, against ssh -L",
        &format!("{:.0} µs", ours.1),
        &format!("{:.0} µs", ssh.1),
        Some(ours.1 / ssh.1),
        "–",
    );
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
