//! The live page over HTTP: its files, its login, and what its requests get. `tests/page.rs` drives it in
//! a browser.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::http::Response;
use ureq::{Agent, Body};

use crate::support::command::{sshjobs, told};
use crate::support::server::{Caller, Server, answer, events};
use crate::support::{HOST, Sshd};

/// A client with no token in a header, as a browser is.
struct Browser {
    url: String,
    agent: Agent,
}

impl Browser {
    fn at(url: &str) -> Self {
        let config = Agent::config_builder().http_status_as_error(false).max_redirects(0);
        Self {
            url: url.to_owned(),
            agent: config.build().into(),
        }
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
        let request = self.agent.get(format!("{}{path}", self.url));
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        request.call().unwrap()
    }

    fn post(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Response<Body> {
        let request = self
            .agent
            .post(format!("{}{path}", self.url))
            .header("Content-Type", "application/json");
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        request.send(body.to_string()).unwrap()
    }

    /// Logs in. Returns the value of the header Cookie for later requests, and the attributes.
    fn log_in(&self, token: &str) -> (String, BTreeSet<String>) {
        let response = self.post("/login", &json!({"token": token}), &[]);
        assert_eq!(response.status(), 200);
        let set = response.headers()["set-cookie"].to_str().unwrap().to_owned();
        let mut parts = set.split("; ").map(str::to_owned);
        (parts.next().unwrap(), parts.collect())
    }
}

async fn served() -> (Sshd, Server, Caller, Browser) {
    let sshd = Sshd::start().await;
    let server = Server::with(&sshd, &[]);
    let caller = server.caller(&sshd, "alice", &[]);
    let browser = Browser::at(&server.url);
    (sshd, server, caller, browser)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_the_page_need_no_token_and_are_not_sent_twice() {
    let (_sshd, _server, _caller, browser) = served().await;

    let mut page = browser.get("/", &[]);
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    let text = page.body_mut().read_to_string().unwrap();
    assert!(text.contains("web/main.js"));

    let script = browser.get("/web/main.js", &[]);
    assert_eq!(script.status(), 200);
    assert_eq!(
        script.headers()["content-type"],
        "text/javascript; charset=utf-8"
    );
    let tag = script.headers()["etag"].to_str().unwrap().to_owned();
    // A proxy that compresses makes the tag a weak one.
    for known in [tag.clone(), format!("\"other\", W/{tag}")] {
        let again = browser.get("/web/main.js", &[("If-None-Match", &known)]);
        assert_eq!(again.status(), 304);
    }

    for path in [
        "/web/",
        "/web/missing.js",
        "/web/..%2findex.html",
        "/web/%2e%2e",
    ] {
        assert!(
            [401, 404].contains(&browser.get(path, &[]).status().as_u16()),
            "{path}"
        );
    }
    assert_eq!(
        browser.get("/", &[("Host", "evil.example.com")]).status(),
        403
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_below_a_prefix_ends_with_a_slash() {
    let sshd = Sshd::start().await;
    let server = Server::with(&sshd, &["--prefix", "/jobs"]);
    let caller = server.caller(&sshd, "alice", &[]);
    let browser = Browser::at(&server.url);

    let redirect = browser.get("?job=web1-x", &[]);
    assert_eq!(redirect.status(), 308);
    assert_eq!(redirect.headers()["location"], "/jobs/?job=web1-x");
    assert_eq!(browser.get("/", &[]).status(), 200);
    assert_eq!(browser.get("/web/page.css", &[]).status(), 200);
    let (_, attributes) = browser.log_in(&caller.token);
    assert!(attributes.contains("Path=/jobs/"), "{attributes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_a_cookie_for_this_server_that_ends_with_the_token() {
    let (sshd, server, caller, browser) = served().await;
    let who = |cookie: &str| answer(browser.get("/login", &[("Cookie", cookie)]));

    assert_eq!(browser.get("/login", &[]).status(), 401);
    let (cookie, attributes) = browser.log_in(&caller.token);
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(attributes.contains(attribute), "{attributes:?}");
    }
    let port = server.address().rsplit(':').next().unwrap();
    assert!(cookie.starts_with(&format!("sshjobs-{port}=")), "{cookie}");
    let (status, body) = who(&cookie);
    assert_eq!(status, 200);
    assert_eq!(
        body,
        json!({"caller": "alice", "role": "run", "by_token": true})
    );
    let jobs = browser.post(
        "/v1/jobs",
        &json!({}),
        &[
            ("Cookie", &cookie),
            ("Origin", &server.url),
            ("Sec-Fetch-Site", "same-origin"),
        ],
    );
    assert_eq!(jobs.status(), 200);

    told(&sshjobs(&sshd, &["token", "revoke", "alice"]));
    assert_eq!(who(&cookie).0, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cookie_is_no_token_and_a_copy_of_it_ends_with_the_log_out() {
    let (sshd, server, caller, browser) = served().await;
    let (cookie, _) = browser.log_in(&caller.token);
    let (other, _) = browser.log_in(&caller.token);
    let who = |cookie: &str| answer(browser.get("/login", &[("Cookie", cookie)])).0;
    let (_, value) = cookie.split_once('=').unwrap();
    let log_out = |headers: &[(&str, &str)]| {
        let request = browser.agent.delete(format!("{}/login", browser.url));
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        request.call().unwrap().status().as_u16()
    };

    assert_ne!(value, caller.token);
    let as_token = format!("Bearer {value}");
    let stolen = browser.get("/v1/hosts", &[("Authorization", &as_token)]);
    assert_eq!(stolen.status(), 401);
    // A second server of this state directory.
    let second_server = Server::with(&sshd, &[]);
    let second = Browser::at(&second_server.url);
    let named = |server: &Browser| {
        let port = server.url.rsplit(':').next().unwrap();
        format!("sshjobs-{port}={value}")
    };
    assert_eq!(
        answer(second.get("/login", &[("Cookie", &named(&second))])).0,
        200
    );

    let page = ("Origin", server.url.as_str());
    assert_eq!(
        log_out(&[("Cookie", &cookie), ("Origin", "http://127.0.0.1:1")]),
        403
    );
    assert_eq!(who(&cookie), 200);
    assert_eq!(log_out(&[("Cookie", &cookie), page]), 204);
    assert_eq!((who(&cookie), who(&other)), (401, 200));
    let deadline = Instant::now() + Duration::from_secs(20);
    while answer(second.get("/login", &[("Cookie", &named(&second))])).0 != 401 {
        assert!(
            Instant::now() < deadline,
            "the second server still accepts it"
        );
    }
    assert_eq!(caller.get("/login").status(), 200, "the token stays valid");
}

#[tokio::test(flavor = "multi_thread")]
async fn made_up_cookies_are_refused_unread_after_some_while_logins_go_on() {
    let (_sshd, _server, caller, browser) = served().await;
    let (cookie, _) = browser.log_in(&caller.token);
    let who = |cookie: &str| answer(browser.get("/login", &[("Cookie", cookie)])).0;
    assert_eq!(who(&cookie), 200);
    let (name, value) = cookie.split_once('=').unwrap();
    let made_up = |number: u32| format!("{name}={number:04}{}", value.split_at(4).1);
    let statuses: Vec<u16> = (0..60).map(|number| who(&made_up(number))).collect();
    assert!(
        statuses.contains(&401) && statuses.contains(&429),
        "{statuses:?}"
    );
    assert_eq!(who(&cookie), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_login_gets_no_cookie_and_shows_no_token() {
    let (_sshd, _server, _caller, browser) = served().await;

    let mut refused = browser.post("/login", &json!({"token": "sshjobs_secret"}), &[]);
    assert_eq!(refused.status(), 401);
    assert!(!refused.headers().contains_key("set-cookie"));
    let text = refused.body_mut().read_to_string().unwrap();
    assert!(!text.contains("sshjobs_secret"), "{text}");
    for body in [
        json!({}),
        json!({"token": 1}),
        json!([]),
        json!({"token": "a", "more": 1}),
    ] {
        assert_eq!(browser.post("/login", &body, &[]).status(), 400, "{body}");
    }
    let huge = json!({"token": "x".repeat(100_000)});
    assert_eq!(browser.post("/login", &huge, &[]).status(), 400);
    let form = browser
        .agent
        .post(format!("{}/login", browser.url))
        .header("Content-Type", "text/plain")
        .send("{\"token\": \"x\"}")
        .unwrap();
    assert_eq!(form.status(), 415);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cookie_does_not_count_for_requests_of_other_pages() {
    let (sshd, server, caller, browser) = served().await;
    let (cookie, _) = browser.log_in(&caller.token);
    let own = server.url.as_str();
    let other = "http://127.0.0.1:1";
    let spawn = |headers: &[(&str, &str)]| {
        let request = json!({"host": HOST, "command": "true"});
        let headers = [&[("Cookie", cookie.as_str())], headers].concat();
        browser.post("/v1/spawn", &request, &headers).status().as_u16()
    };

    assert_eq!(
        spawn(&[("Origin", own), ("Sec-Fetch-Site", "same-origin")]),
        200
    );
    assert_eq!(spawn(&[("Origin", own)]), 200);
    // Another port of this host, whose requests browsers send the cookie with.
    assert_eq!(
        spawn(&[("Origin", other), ("Sec-Fetch-Site", "same-site")]),
        403
    );
    assert_eq!(spawn(&[("Sec-Fetch-Site", "same-site")]), 401);
    assert_eq!(spawn(&[("Sec-Fetch-Site", "cross-site")]), 401);
    assert_eq!(spawn(&[("Sec-Fetch-Site", "none")]), 401);
    // No page, and so no browser.
    assert_eq!(spawn(&[]), 401);
    // A page that the operator lets call the server does so with a token of its own.
    let server = Server::with(&sshd, &["--allow-origin", other]);
    let browser = Browser::at(&server.url);
    let (cookie, _) = browser.log_in(&caller.token);
    let headers = [("Cookie", cookie.as_str()), ("Origin", other)];
    assert_eq!(browser.post("/v1/jobs", &json!({}), &headers).status(), 401);
    for header in [("Origin", other), ("Sec-Fetch-Site", "cross-site")] {
        let login = browser.post("/login", &json!({"token": caller.token}), &[header]);
        assert_eq!(login.status(), 403, "{header:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_proxy_the_public_url_is_the_page_s_own_origin() {
    let sshd = Sshd::start().await;
    let server = Server::with(&sshd, &["--public-url", "https://jobs.example.com/ssh"]);
    let caller = server.caller(&sshd, "alice", &[]);
    let browser = Browser::at(&server.url);
    let (cookie, attributes) = browser.log_in(&caller.token);
    assert!(
        attributes.contains("Secure") && attributes.contains("Path=/ssh/"),
        "{attributes:?}"
    );

    let headers = [
        ("Cookie", cookie.as_str()),
        ("Origin", "https://jobs.example.com"),
        ("Sec-Fetch-Site", "same-origin"),
    ];
    assert_eq!(browser.post("/v1/jobs", &json!({}), &headers).status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_have_their_colours_as_spans() {
    let (_sshd, _server, caller, _browser) = served().await;
    let id = caller.spawn("printf 'plain\\n\\033[1;31mbad\\033[0m <b>\\033[38;5;208mor\\n'");
    caller.ok("wait", json!({"job_ids": [id]}));

    let request = json!({"job_id": id, "format": "records", "render": "spans"});
    let records = caller.ok("tail", request)["records"].clone();

    assert_eq!(records[0]["text"], "plain");
    assert_eq!(records[0]["spans"], Value::Null);
    assert_eq!(records[1]["text"], "bad <b>or");
    assert_eq!(
        records[1]["spans"],
        json!([
            {"text": "bad", "fg": "red", "bold": true},
            {"text": " <b>"},
            {"text": "or", "fg": "#ff8700"},
        ])
    );
    let lean = json!({"job_id": id, "render": "spans"});
    assert_eq!(
        caller.call("tail", lean.clone()).1["code"],
        "invalid_argument"
    );
    assert_eq!(caller.call("read", lean).1["code"], "invalid_argument");
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_show_the_end_of_a_flood_and_not_each_line() {
    let (_sshd, _server, caller, _browser) = served().await;
    let id = caller.spawn("seq 100000; printf 'name? '; read -r name; echo \"hi $name\"; exit 3");

    let mut updates = events(caller.get(&format!("/v1/jobs/{id}/updates")));
    let mut shown = 0;
    let prompt = updates.find(|update| {
        shown += update.data["records"].as_array().map_or(0, Vec::len);
        update.data["awaiting_input"] == true
    });
    let prompt = prompt.unwrap();
    assert_eq!(prompt.data["total_lines"], 100_000);
    assert_eq!(prompt.data["partial"]["stdout"], "name? ");
    assert!(shown < 100_000, "{shown} of 100000 lines");

    caller.ok(
        "write",
        json!({"job_id": id, "data": "bob", "newline": true}),
    );
    let end = updates.find(|update| update.name == "end").unwrap();
    assert_eq!(end.data["exit_status"], 3);
    assert_eq!(end.data["total_lines"], 100_001);
    assert!(updates.next().is_none());
    assert_eq!(caller.get("/v1/jobs/nobody-00000000/updates").status(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_ends_where_the_request_says() {
    let (_sshd, _server, caller, _browser) = served().await;
    let id = caller.spawn("seq 1000");
    caller.ok("wait", json!({"job_ids": [id]}));

    let request = json!({"job_id": id, "pattern": "9$", "since_line_no": 10, "until_line_no": 40, "context": 0});
    let reply = caller.ok("search", request);

    let found: Vec<u64> = reply["matches"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|found| found["line_no"].as_u64())
        .collect();
    assert_eq!(found, [19, 29, 39]);
    assert_eq!(reply["last_line_no"], 40);
    assert_eq!(reply["has_more"], false);

    let beyond = json!({"job_id": id, "pattern": "9$", "since_line_no": 40, "until_line_no": 40});
    assert_eq!(caller.ok("search", beyond)["has_more"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_looks_for_the_words_by_which_replies_find_the_first_error() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let mut finder = Browser::at(&server.url).get("/web/finder.js", &[]);
    let words = sshjobs_wire::ERROR_WORDS.replace('\\', r"\\");
    assert!(
        finder.body_mut().read_to_string().unwrap().contains(&words),
        "{words}"
    );
}
