//! Forwards of ports and sockets through a real sshd.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::command::command;
use crate::support::server::Server;
use crate::support::{HOST, McpClient, Sshd, eventually, exit_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sshjobs_core::jobs::{ForwardOptions, ForwardSpec, ForwardStatus, Jobs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time limit for one step.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server on loopback that sends back what it receives, and ends when its client does.
struct Echo {
    port: u16,
    _tasks: JoinSet<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut streams = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                streams.spawn(async move {
                    let (mut reader, mut writer) = stream.split();
                    tokio::io::copy(&mut reader, &mut writer).await.ok();
                    writer.shutdown().await.ok();
                });
            }
        });
        Self {
            port,
            _tasks: tasks,
        }
    }
}

fn port_of(status: &ForwardStatus) -> u16 {
    let listen = status.spec.listen().to_string();
    listen.rsplit_once(':').unwrap().1.parse().unwrap()
}

async fn open(jobs: &Jobs, spec: ForwardSpec) -> ForwardStatus {
    let opened = jobs.open_forward(HOST, spec, ForwardOptions::default());
    timeout(PATIENCE, opened).await.unwrap().unwrap()
}

/// Sends a text to an echo and ends; returns what comes back.
async fn ask(port: u16, text: &str) -> std::io::Result<String> {
    let asking = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(text.as_bytes()).await?;
        // Half-close: the answer is only complete if the end is passed on.
        stream.shutdown().await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    timeout(PATIENCE, asking).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_forwarded_both_ways_and_the_end_is_passed_on() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let echo = Echo::start().await;
    let local = open(
        &jobs,
        ForwardSpec::local(&format!("0:localhost:{}", echo.port)).unwrap(),
    )
    .await;
    assert_eq!(ask(port_of(&local), "there").await.unwrap(), "there");
    let remote = open(
        &jobs,
        ForwardSpec::remote(&format!("0:127.0.0.1:{}", echo.port)).unwrap(),
    )
    .await;
    assert_ne!(port_of(&remote), 0, "the port that sshd has chosen");
    assert_eq!(ask(port_of(&remote), "back").await.unwrap(), "back");

    eventually("both are counted", async || {
        jobs.forwards().iter().all(|forward| {
            (
                forward.streams,
                forward.bytes_to_target,
                forward.bytes_from_target,
            ) == (1, 5, 5)
                || (
                    forward.streams,
                    forward.bytes_to_target,
                    forward.bytes_from_target,
                ) == (1, 4, 4)
        })
    })
    .await;
    jobs.close_forward(&local.id.to_string()).unwrap();
    assert_eq!(jobs.forwards().len(), 1);
    eventually("the port is closed", async || {
        TcpStream::connect(("127.0.0.1", port_of(&local))).await.is_err()
    })
    .await;
    jobs.shutdown().await;
    eventually("sshd has closed the other", async || {
        TcpStream::connect(("127.0.0.1", port_of(&remote))).await.is_err()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_are_forwarded_both_ways() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let target = sshd.path("target.sock");
    let listener = UnixListener::bind(&target).unwrap();
    let mut answering = JoinSet::new();
    answering.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"hello").await.ok();
        }
    });
    for (kind, name) in [("local", "here.sock"), ("remote", "there.sock")] {
        let socket = sshd.path(name);
        let text = format!("{}:{}", socket.display(), target.display());
        let spec = match kind {
            "local" => ForwardSpec::local(&text),
            _ => ForwardSpec::remote(&text),
        };
        let forward = open(&jobs, spec.unwrap()).await;
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert_eq!(answer, "hello", "{kind}");
        jobs.close_forward(&forward.id.to_string()).unwrap();
    }
    eventually("our socket is removed", async || {
        !sshd.path("here.sock").exists()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_reaches_what_clients_name_and_tells_why_not() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let page = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = page.local_addr().unwrap().port();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        while let Ok((mut stream, _)) = page.accept().await {
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).await.is_ok_and(|read| read > 0));
            let answer = b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\npage";
            stream.write_all(answer).await.ok();
        }
    });
    let forward = open(&jobs, ForwardSpec::dynamic("0").unwrap()).await;
    let proxy = format!("127.0.0.1:{}", port_of(&forward));
    let curl = |url: String| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "20", "--socks5-hostname", &proxy, &url]);
        tokio::task::spawn_blocking(move || curl.output().unwrap())
    };
    let found = curl(format!("http://localhost:{port}/")).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "page");
    let refused = curl("http://localhost:1/".to_owned()).await.unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("(5)"),
        "connection refused: {said}"
    );
    // The client gets its answer first.
    eventually("the list has the reason", async || {
        let status = &jobs.forwards()[0];
        status.last_error.as_deref().is_some_and(|why| why.contains("localhost:1"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forward_heals_after_a_cut() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let echo = Echo::start().await;
    let local = open(
        &jobs,
        ForwardSpec::local(&format!("0:localhost:{}", echo.port)).unwrap(),
    )
    .await;
    let remote = open(
        &jobs,
        ForwardSpec::remote(&format!("0:127.0.0.1:{}", echo.port)).unwrap(),
    )
    .await;
    for round in 0..3 {
        sshd.cut();
        for forward in [&local, &remote] {
            eventually("it works again", async || {
                ask(port_of(forward), "again").await.is_ok_and(|answer| answer == "again")
            })
            .await;
        }
        let found = jobs.forwards();
        assert!(
            found.iter().all(|forward| forward.errors > 0),
            "round {round}: {found:?}"
        );
        assert!(
            found.iter().all(|forward| forward.since >= local.since),
            "round {round}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_on_the_host_heals_after_a_cut_and_is_removed_at_the_end() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let echo = Echo::start().await;
    let socket = sshd.path("there 'socket'");
    let spec = format!("{}:localhost:{}", socket.display(), echo.port);
    open(&jobs, ForwardSpec::remote(&spec).unwrap()).await;
    let answers = async || {
        let asking = async {
            let mut stream = UnixStream::connect(&socket).await?;
            stream.write_all(b"again").await?;
            stream.shutdown().await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        matches!(timeout(PATIENCE, asking).await, Ok(Ok(answer)) if answer == "again")
    };
    assert!(answers().await);

    sshd.cut();
    eventually("it works again", answers).await;

    jobs.shutdown().await;
    assert!(!socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_hangs_or_a_slow_reader_blocks_no_other() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let echo = Echo::start().await;
    let forward = open(
        &jobs,
        ForwardSpec::local(&format!("0:localhost:{}", echo.port)).unwrap(),
    )
    .await;
    let port = port_of(&forward);
    // Fills all windows: nobody reads what comes back.
    let mut slow = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let flood = vec![0; 64 << 20];
    let flooding = timeout(Duration::from_secs(3), slow.write_all(&flood)).await;
    assert!(flooding.is_err(), "somebody has taken 64 MiB");
    let began = Instant::now();
    assert_eq!(ask(port, "quick").await.unwrap(), "quick");
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    // And when it reads, everything comes.
    let (mut reader, mut writer) = slow.split();
    let ending = async { writer.shutdown().await.unwrap() };
    let mut read = Vec::new();
    let reading = async { reader.read_to_end(&mut read).await.unwrap() };
    timeout(PATIENCE, async { tokio::join!(reading, ending) }).await.unwrap();
    assert!(read.len() > 1 << 20, "{}", read.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_only_writes_learns_that_its_target_has_closed() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = target.local_addr().unwrap();
    let forward = open(
        &jobs,
        ForwardSpec::local(&format!("0:localhost:{}", address.port())).unwrap(),
    )
    .await;
    let client = TcpStream::connect(("127.0.0.1", port_of(&forward))).await.unwrap();
    let (mut accepted, _) = target.accept().await.unwrap();
    let (mut answers, mut uploads) = client.into_split();
    let writing = tokio::spawn(async move {
        let piece = vec![0; 1 << 20];
        while uploads.write_all(&piece).await.is_ok() {}
    });

    // Answers in the middle of the upload, and closes, as a web server does with 413.
    let mut first = [0; 1024];
    accepted.read_exact(&mut first).await.unwrap();
    accepted.write_all(b"too large").await.unwrap();
    let mut answer = [0; 9];
    timeout(PATIENCE, answers.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"too large");
    drop(accepted);

    timeout(PATIENCE, writing).await.expect("the client's stream ends").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_connections_pass_through_one_forward() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let echo = Echo::start().await;
    let forward = open(
        &jobs,
        ForwardSpec::local(&format!("0:localhost:{}", echo.port)).unwrap(),
    )
    .await;
    let port = port_of(&forward);
    let mut asking = JoinSet::new();
    let mut held = Vec::new();
    for _ in 0..300 {
        held.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    }
    for n in 0..700 {
        asking.spawn(async move { (ask(port, &format!("n{n}")).await.unwrap(), n) });
        if n % 100 == 99 {
            while let Some(answered) = asking.join_next().await {
                let (answer, n) = answered.unwrap();
                assert_eq!(answer, format!("n{n}"));
            }
        }
    }
    assert!(jobs.forwards()[0].streams >= 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forward_without_connections_is_closed_if_asked() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let options = ForwardOptions {
        idle: Some(Duration::from_secs(1)),
    };
    let spec = ForwardSpec::local("0:localhost:1").unwrap();
    let forward = jobs.open_forward(HOST, spec, options).await.unwrap();
    timeout(PATIENCE, jobs.forward_closed(&forward.id)).await.unwrap();
    assert!(jobs.forwards().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_opens_lists_and_closes_forwards() {
    let sshd = Sshd::start().await;
    let echo = Echo::start().await;
    let target = format!("localhost:{}", echo.port);
    let mut client = McpClient::start(&sshd.ssh_config());
    let opened = client.ok(
        "ssh_forward",
        json!({"action": "open", "host": HOST, "target": target}),
    );
    let forward = &opened["forwards"][0];
    let port: u16 = forward["listen"]
        .as_str()
        .unwrap()
        .strip_prefix("127.0.0.1:")
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(ask(port, "agent").await.unwrap(), "agent");
    let listed = client.ok("ssh_forward", json!({}));
    assert_eq!(listed["forwards"][0]["id"], forward["id"]);
    client.ok(
        "ssh_forward",
        json!({"action": "close", "id": forward["id"]}),
    );
    assert_eq!(client.ok("ssh_forward", json!({}))["forwards"], json!([]));

    let code = |client: &mut McpClient, arguments: Value| client.code("ssh_forward", arguments);
    let exposed = json!({"action": "open", "host": HOST, "listen": "0.0.0.0:0", "target": target});
    assert_eq!(code(&mut client, exposed), "policy_denied");
    let taken = json!({"action": "open", "host": HOST, "listen": sshd.port().to_string(), "target": target});
    assert_eq!(code(&mut client, taken), "address_in_use");
    let wrong = json!({"action": "open", "host": HOST, "target": "::1:22"});
    assert_eq!(code(&mut client, wrong), "invalid_argument");
    assert_eq!(
        code(&mut client, json!({"action": "close", "id": "f000000"})),
        "not_found"
    );
    assert_eq!(
        code(&mut client, json!({"action": "open", "target": target})),
        "invalid_argument"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_open_to_hosts_only_what_the_configuration_names() {
    let sshd = Sshd::start().await;
    let (echo, other) = (format!("127.0.0.1:{}", sshd.port()), "/run/private.sock");
    let reverse =
        |target: &str| json!({"action": "open", "host": HOST, "target": target, "reverse": true});
    let mut closed = McpClient::start(&sshd.ssh_config());
    assert_eq!(closed.code("ssh_forward", reverse(&echo)), "policy_denied");
    let config = sshd.path("config.toml");
    std::fs::write(&config, format!("reverse_targets = [{echo:?}]\n")).unwrap();
    let mut client = McpClient::start_with(&sshd.ssh_config(), &config);
    let opened = client.ok("ssh_forward", reverse(&echo));
    assert_eq!(opened["forwards"][0]["reverse"], json!(true));
    assert_eq!(client.code("ssh_forward", reverse(other)), "policy_denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn forwards_belong_to_their_caller_and_pass_the_door() {
    let sshd = Sshd::start().await;
    sshd.append("Host db1\n  HostName 127.0.0.1\n");
    let server = Server::start(&sshd);
    let owner = server.caller(&sshd, "owner", &["--hosts", "web*"]);
    let other = server.caller(&sshd, "other", &[]);
    let reader = server.caller(&sshd, "reader", &["--role", "read"]);
    let open = |host: &str| json!({"action": "open", "host": host, "target": "localhost:1"});
    let id = owner.ok("forward", open(HOST))["forwards"][0]["id"].clone();
    assert_eq!(owner.call("forward", open("db1")).0, 403);
    assert_eq!(reader.call("forward", open(HOST)).0, 403);
    assert_eq!(other.ok("forward", json!({}))["forwards"], json!([]));
    assert_eq!(
        other.call("forward", json!({"action": "close", "id": id})).0,
        404
    );
    let mut reverse = open(HOST);
    reverse["reverse"] = json!(true);
    assert_eq!(
        owner.call("forward", reverse).0,
        403,
        "the server's network is not offered"
    );
    owner.ok("forward", json!({"action": "close", "id": id}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_forwards_until_it_is_interrupted() {
    let sshd = Sshd::start().await;
    let echo = Echo::start().await;
    let spec = format!("0:localhost:{}", echo.port);
    let mut forwarding = command(&sshd, &["forward", HOST, "-L", &spec])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = forwarding.stdout.take().unwrap();
    let reading = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        line
    });
    let line = timeout(PATIENCE, reading).await.unwrap().unwrap();
    let port = line.split_once(' ').unwrap().0.rsplit_once(':').unwrap().1.parse().unwrap();
    assert_eq!(ask(port, "cli").await.unwrap(), "cli", "{line}");
    kill(Pid::from_raw(forwarding.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(exit_of(&mut forwarding).await, Some(130));

    let mut wrong = command(&sshd, &["forward", HOST, "-L", "80"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(exit_of(&mut wrong).await, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_allows_no_forwards_says_so() {
    let sshd = Sshd::with("AllowTcpForwarding no").await;
    let jobs = sshd.jobs();
    let spec = ForwardSpec::remote("0:127.0.0.1:1").unwrap();
    let error = jobs.open_forward(HOST, spec, ForwardOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("its sshd refused"), "{error}");
    let forward = open(&jobs, ForwardSpec::local("0:localhost:1").unwrap()).await;
    ask(port_of(&forward), "x").await.ok();
    eventually("it is told", async || {
        let last = jobs.forwards()[0].last_error.clone();
        last.is_some_and(|error| error.contains("does not allow"))
    })
    .await;
}
