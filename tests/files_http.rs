//! Files of hosts over HTTP, with curl as the client.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::support::server::Server;
use crate::support::{HOST, Sshd, eventually};

/// A response as curl saw it.
struct Response {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Response {
    /// The value of a header.
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// curl, with a caller's token.
struct Curl<'a> {
    sshd: &'a Sshd,
    address: String,
    token: String,
}

impl Curl<'_> {
    fn url(&self, path: &str) -> String {
        format!("http://{}/v1/hosts/{HOST}/files{path}", self.address)
    }

    fn command(&self, arguments: &[&str], url: &str) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "60", "--path-as-is", "-H"])
            .arg(format!("Authorization: Bearer {}", self.token))
            .args(arguments)
            .arg(url);
        curl
    }

    fn at(&self, arguments: &[&str], path: &str) -> Response {
        let (head, body) = (self.sshd.path("curl-head"), self.sshd.path("curl-body"));
        fs::write(&body, "").unwrap();
        let files = ["-D", head.to_str().unwrap(), "-o", body.to_str().unwrap()];
        let all = [&["-w", "%{http_code}"], &files[..], arguments].concat();
        let output = self.command(&all, &self.url(path)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let status = String::from_utf8(output.stdout).unwrap();
        Response {
            status: status.parse().unwrap_or_else(|_| panic!("{status} {said}")),
            head: fs::read_to_string(&head).unwrap(),
            body: fs::read(&body).unwrap(),
        }
    }
}

fn curl<'a>(sshd: &'a Sshd, server: &Server) -> Curl<'a> {
    Curl {
        sshd,
        address: server.address().to_owned(),
        token: crate::support::server::token(sshd, "files", &[]),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_without_a_true_size_are_sent_whole() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let curl = curl(&sshd, &server);
    // The kernel announces 0 bytes of the first two, and a page of the third.
    for path in [
        "/proc/version",
        "/proc/self/status",
        "/sys/kernel/kexec_loaded",
    ] {
        let Ok(expected) = fs::read(path) else { continue };
        let got = curl.at(&[], path);
        assert_eq!(got.status, 200, "{path}");
        assert_eq!(
            got.header("content-length"),
            Some(got.body.len().to_string().as_str())
        );
        let first = |text: &[u8]| {
            text.split(|byte| *byte == b'\n' || *byte == b'\t').next().unwrap().to_vec()
        };
        assert_eq!(first(&got.body), first(&expected), "{path}");
    }
    let long = curl.at(&[], "/proc/kallsyms");
    assert_eq!((long.status, long.header("content-length")), (200, None));
    assert!(long.body.len() > 1 << 20 && long.body.ends_with(b"\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_uploaded_and_downloaded_in_parts_by_curl() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let curl = curl(&sshd, &server);
    let local = sshd.path("local");
    let content: Vec<u8> = (0..5_000_000_u32).flat_map(|n| n.to_le_bytes()).collect();
    fs::write(&local, &content).unwrap();
    let local = local.to_str().unwrap();
    let far = sshd.path("far file");
    let path = far.display().to_string().replace(' ', "%20");

    let put = curl.at(&["--upload-file", local], &path);
    assert_eq!(put.status, 201, "{}", String::from_utf8_lossy(&put.body));
    assert!(fs::read(&far).unwrap() == content);
    let tag = put.header("etag").unwrap().to_owned();

    let whole = curl.at(&[], &path);
    assert_eq!(
        (whole.status, whole.header("etag")),
        (200, Some(tag.as_str()))
    );
    assert!(whole.body == content);
    assert!(whole.header("last-modified").unwrap().ends_with("GMT"));

    let part = curl.at(&["-r", "1000-1999"], &path);
    assert_eq!(part.status, 206);
    assert_eq!(
        part.header("content-range"),
        Some("bytes 1000-1999/20000000")
    );
    assert!(part.body == content[1000..2000]);
    assert!(curl.at(&["-r", "-4"], &path).body == content[content.len() - 4..]);
    let outside = curl.at(&["-r", "20000000-"], &path);
    assert_eq!(
        (outside.status, outside.header("content-range")),
        (416, Some("bytes */20000000"))
    );
    let other = ["-r", "0-9", "-H", "If-Range: \"another\""];
    assert_eq!(
        curl.at(&other, &path).status,
        200,
        "not a part of another content"
    );

    let head = curl.at(&["-I"], &path);
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("20000000"))
    );
    let known = format!("If-None-Match: {tag}");
    assert_eq!(curl.at(&["-H", &known], &path).status, 304);

    assert_eq!(curl.at(&[], "/no/such/file").status, 404);
    assert_eq!(curl.at(&[], "/etc").status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_may_have_a_name_that_is_not_utf8() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let curl = curl(&sshd, &server);
    let local = sshd.path("local");
    fs::write(&local, "text").unwrap();
    let path = format!("{}/caf%E9", sshd.path("").display());

    let put = curl.at(&["--upload-file", local.to_str().unwrap()], &path);
    assert_eq!(put.status, 201, "{}", String::from_utf8_lossy(&put.body));
    assert_eq!(
        fs::read(sshd.path("").join(OsStr::from_bytes(b"caf\xe9"))).unwrap(),
        b"text"
    );
    assert_eq!(curl.at(&[], &path).body, b"text");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_with_conditions_replaces_what_it_expects_and_nothing_else() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let curl = curl(&sshd, &server);
    let far = sshd.path("far");
    let path = far.display().to_string();
    let put = |content: &str, headers: &[&str]| {
        let mut arguments = vec!["-X", "PUT", "--data-binary", content];
        for header in headers {
            arguments.extend(["-H", header]);
        }
        curl.at(&arguments, &path)
    };

    assert_eq!(
        put("first", &["If-Match: *"]).status,
        412,
        "there is no file"
    );
    let first = put("first", &["If-None-Match: *"]);
    assert_eq!(first.status, 201);
    assert_eq!(put("second", &["If-None-Match: *"]).status, 412);
    let tag = first.header("etag").unwrap();
    assert_eq!(put("second", &[&format!("If-Match: {tag}")]).status, 200);
    assert_eq!(put("third", &[&format!("If-Match: {tag}")]).status, 412);
    assert_eq!(fs::read_to_string(&far).unwrap(), "second");
    assert_eq!(put("part", &["Content-Range: bytes 0-3/10"]).status, 400);
    assert_eq!(fs::read_to_string(&far).unwrap(), "second");

    let deep = sshd.path("a/b").display().to_string();
    let new = ["-X", "PUT", "--data-binary", "x"];
    assert_eq!(curl.at(&new, &deep).status, 404);
    assert_eq!(
        curl.at(&new, &(deep.clone() + "?parents=true&mode=0600")).status,
        201
    );
    assert_eq!(curl.at(&new, &(deep + "?what=ever")).status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_breaks_leaves_the_old_file_and_no_other() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let curl = curl(&sshd, &server);
    let directory = sshd.path("dir");
    fs::create_dir(&directory).unwrap();
    let far = directory.join("far");
    fs::write(&far, "old").unwrap();
    let url = curl.url(&far.display().to_string());
    let slow = ["--limit-rate", "1M", "--upload-file", "/dev/zero"];
    let mut upload = curl.command(&slow, &url).spawn().unwrap();
    let names = |directory: &Path| fs::read_dir(directory).unwrap().count();
    eventually("a part file is written", async || names(&directory) == 2).await;
    upload.kill().unwrap();
    upload.wait().unwrap();
    eventually("the part file is gone", async || names(&directory) == 1).await;
    assert_eq!(fs::read_to_string(&far).unwrap(), "old");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_need_the_role_run_and_a_host_of_the_caller() {
    let sshd = Sshd::start().await;
    sshd.append("Host db1\n  HostName 127.0.0.1\n");
    let server = Server::start(&sshd);
    let mut curl = curl(&sshd, &server);
    let path = sshd.path("far").display().to_string();
    let put = ["-X", "PUT", "--data-binary", "x"];
    for (name, options) in [
        ("reader", ["--role", "read"]),
        ("elsewhere", ["--hosts", "db*"]),
    ] {
        curl.token = crate::support::server::token(&sshd, name, &options);
        assert_eq!(curl.at(&put, &path).status, 403, "{name}");
        assert_eq!(curl.at(&[], "/etc/passwd").status, 403, "{name}");
    }
    "not a token".clone_into(&mut curl.token);
    assert_eq!(curl.at(&put, &path).status, 401);
    assert!(!Path::new(&path).exists());
}
