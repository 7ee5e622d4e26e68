//! No face leads around the policy: each call of a generated table is made over the library, MCP, HTTP
//! and the command line, and acts on its host only if a short reference says that it may.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use sshjobs_core::jobs::{
    Access, Caller, Command, Config, FileSource, ForwardOptions, ForwardSpec, GetOptions, HostPath,
    HostPatterns, Jobs, PolicyConfig, PutOptions, RemotePath, Rights, Role, TransferProgress,
};

use crate::support::Sshd;
use crate::support::command::command;
use crate::support::server::{self, Server};

const HOSTS: [&str; 2] = ["app1", "other1"];

/// Callers, with the options of their tokens.
const CALLERS: [(&str, &[&str]); 3] = [
    ("bot", &[]),
    ("reader", &["--role", "read"]),
    ("neighbour", &["--hosts", "app1"]),
];

const FACES: [Face; 4] = [Face::Library, Face::Mcp, Face::Http, Face::CommandLine];

/// The seeds of the tables: others give other tables.
const SEEDS: [u64; 2] = [46, 47];

#[derive(Clone, Copy, Debug)]
enum Face {
    Library,
    Mcp,
    Http,
    CommandLine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Run,
    Spawn,
    Put,
    Get,
    Forward,
}

const ACTS: [(Act, &str); 5] = [
    (Act::Run, "run"),
    (Act::Spawn, "spawn"),
    (Act::Put, "put"),
    (Act::Get, "get"),
    (Act::Forward, "forward"),
];

impl Face {
    /// Whether it offers an act to callers of a server.
    fn has(self, act: Act) -> bool {
        !matches!(self, Self::CommandLine) || matches!(act, Act::Run | Act::Spawn)
    }
}

/// The effect of a rule on the calls that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Allow,
    Ask,
    Deny,
}

/// The rules about one call. Some come twice, so that not most calls are denied.
const RULES: [&[Effect]; 9] = [
    &[],
    &[Effect::Allow],
    &[Effect::Allow],
    &[Effect::Ask],
    &[Effect::Ask],
    &[Effect::Ask],
    &[Effect::Allow, Effect::Deny],
    &[Effect::Ask, Effect::Deny],
    &[Effect::Allow, Effect::Ask],
];

/// A call, with its rules, and whether the approver agrees to it if it is asked.
#[derive(Clone, Debug)]
struct Case {
    caller: usize,
    act: (Act, &'static str),
    host: &'static str,
    rules: &'static [Effect],
    /// The rules about the other name: both are the same machine.
    rules_of_other_name: &'static [Effect],
    is_agreed: bool,
    face: Face,
    number: usize,
}

impl Case {
    /// The reference: may this call act?
    fn may_act(&self) -> bool {
        let has_rights = match CALLERS[self.caller].0 {
            "reader" => false,
            "neighbour" => self.host == "app1",
            _ => true,
        };
        let has = |effect| self.rules.contains(&effect);
        let is_allowed = has(Effect::Allow) || (has(Effect::Ask) && self.is_agreed);
        // A machine that is denied can't be reached by another name.
        let is_denied = has(Effect::Deny) || self.rules_of_other_name.contains(&Effect::Deny);
        has_rights && is_allowed && !is_denied
    }

    /// Name of the file that it makes on the host; the approver looks at it.
    fn name(&self) -> String {
        let answer = if self.is_agreed { "agree" } else { "refuse" };
        format!("{answer}-{}", self.number)
    }
}

fn draw_rules(act: Act, dice: &mut StdRng) -> &'static [Effect] {
    let is_about_files = matches!(act, Act::Put | Act::Get);
    loop {
        let rules: &[Effect] = RULES.choose(dice).unwrap();
        // A policy can't ask for approvals of files.
        if !(is_about_files && rules.contains(&Effect::Ask)) {
            return rules;
        }
    }
}

/// All calls on which callers, acts, hosts and faces differ, with rules drawn for each.
fn cases(seed: u64) -> Vec<Case> {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut cases = Vec::new();
    for caller in 0..CALLERS.len() {
        for act in ACTS {
            // A rule is about all faces, so it is drawn once for them.
            let rules = HOSTS.map(|_| draw_rules(act.0, &mut dice));
            for (index, host) in HOSTS.into_iter().enumerate() {
                for face in FACES.into_iter().filter(|face| face.has(act.0)) {
                    cases.push(Case {
                        caller,
                        act,
                        host,
                        rules: rules[index],
                        rules_of_other_name: rules[1 - index],
                        is_agreed: dice.random(),
                        face,
                        number: cases.len(),
                    });
                }
            }
        }
    }
    cases
}

/// The policy file with the rules of all cases.
fn policy(cases: &[Case]) -> String {
    let mut text = "[[approvers]]\ncallers = [\"alice\"]\n".to_owned();
    for case in cases.iter().filter(|case| matches!(case.face, Face::Library)) {
        for effect in case.rules {
            let extra = match effect {
                Effect::Allow => "",
                Effect::Ask => "approval = \"person\"\n",
                Effect::Deny => "effect = \"deny\"\n",
            };
            // A rule that is denied everywhere would be refused as a mistake.
            let spare = if *effect == Effect::Deny {
                ""
            } else {
                ", \"spare-*\""
            };
            let commands = match case.act.0 {
                Act::Run | Act::Spawn => "commands = \"any\"\n",
                Act::Put | Act::Get | Act::Forward => "",
            };
            text += &format!(
                "[[rules]]\nname = \"{} {effect:?}\"\ncallers = [{:?}]\nverbs = [{:?}]\nhosts = [{:?}{spare}]\n{commands}{extra}",
                case.number, CALLERS[case.caller].0, case.act.1, case.host
            );
        }
    }
    text
}

struct World {
    sshd: Sshd,
    server: Server,
    library: Jobs,
    /// Those of [`CALLERS`].
    callers: [server::Caller; CALLERS.len()],
}

impl World {
    async fn start(policy: &str) -> Self {
        let sshd = Sshd::start().await;
        sshd.alias(HOSTS);
        let file = sshd.path("policy.toml");
        std::fs::write(&file, policy).unwrap();
        let server = Server::with(&sshd, &["--policy", &file.display().to_string()]);
        let config = Config {
            store: true,
            // The server's, so that one approver answers for both.
            state_dir: Some(sshd.path("state/sshjobs")),
            policy: PolicyConfig { file: Some(file) },
            ..sshd.config()
        };
        let library = Jobs::new(config, Access::Listed);
        let callers = CALLERS.map(|(name, options)| server.caller(&sshd, name, options));
        Self {
            sshd,
            server,
            library,
            callers,
        }
    }

    /// The file that a call makes on the host, or that it reads.
    fn far(&self, case: &Case) -> PathBuf {
        self.sshd.path(&case.name())
    }

    /// Makes the call, and returns whether it has acted.
    async fn acts(&self, case: &Case) -> bool {
        let far = self.far(case);
        if case.act.0 == Act::Get {
            std::fs::write(&far, "what-is-read").unwrap();
        }
        let reply = match case.face {
            Face::Library => self.by_library(case).await,
            Face::Mcp | Face::Http => tokio::task::block_in_place(|| self.by_http(case)),
            Face::CommandLine => tokio::task::block_in_place(|| self.by_command(case)),
        };
        match case.act.0 {
            // A spawned job makes it a moment later.
            Act::Run | Act::Spawn | Act::Put => {
                let tries = if case.may_act() { 200 } else { 5 };
                for _ in 0..tries {
                    if far.exists() {
                        return true;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                false
            }
            Act::Get => reply.contains("what-is-read"),
            Act::Forward => reply.contains("listens at"),
        }
    }

    async fn by_library(&self, case: &Case) -> String {
        let (name, _) = CALLERS[case.caller];
        let rights = Rights {
            role: if name == "reader" {
                Role::Read
            } else {
                Role::Run
            },
            hosts: match name {
                "neighbour" => HostPatterns::from("app1".to_owned()),
                _ => HostPatterns::default(),
            },
            ..Rights::everywhere(Role::Run)
        };
        let jobs = self.library.of(Caller::new(name), rights);
        let far = self.far(case);
        let touch = Command::new("touch").arg(far.display());
        let path = RemotePath::new(far.display().to_string()).unwrap();
        let at = HostPath {
            host: case.host,
            path: &path,
        };
        let progress = TransferProgress::default();
        match case.act.0 {
            Act::Run => {
                jobs.run(case.host, touch).await.ok();
            }
            Act::Spawn => {
                jobs.spawn(case.host, touch).await.ok();
            }
            Act::Put => {
                let content = FileSource::Memory("x".into());
                jobs.put_file(at, content, &PutOptions::default(), &progress).await.ok();
            }
            Act::Get => {
                let here = self.sshd.path(&format!("{}-here", case.name()));
                jobs.get_file(at, &here, GetOptions::default(), &progress).await.ok();
                return std::fs::read_to_string(here).unwrap_or_default();
            }
            Act::Forward => {
                let spec = format!("127.0.0.1:0:{}", target(case));
                let spec = ForwardSpec::local(&spec).unwrap();
                let options = ForwardOptions { idle: None };
                if jobs.open_forward(case.host, spec, options).await.is_ok() {
                    return "listens at a port".to_owned();
                }
            }
        }
        String::new()
    }

    /// Over HTTP's own calls, or MCP's.
    fn by_http(&self, case: &Case) -> String {
        let caller = &self.callers[case.caller];
        let far = self.far(case).display().to_string();
        let mut request = match case.act.0 {
            Act::Run | Act::Spawn => json!({"command": format!("touch {far}")}),
            Act::Put => json!({"path": far, "text": "x"}),
            Act::Get => json!({"path": far}),
            Act::Forward => json!({"action": "open", "target": target(case)}),
        };
        request["host"] = json!(case.host);
        let reply = match case.face {
            Face::Mcp => caller.tool(&format!("ssh_{}", case.act.1), request),
            Face::Library | Face::Http | Face::CommandLine => {
                caller.call(case.act.1, request).1.to_string()
            }
        };
        // Both name the address only when it is open.
        let is_open = reply.contains("127.0.0.1:") && reply.contains("\"listen\"");
        if is_open {
            format!("{reply} listens at")
        } else {
            reply
        }
    }

    fn by_command(&self, case: &Case) -> String {
        let far = self.far(case).display().to_string();
        let socket = self.server.socket.display().to_string();
        let words = [
            "--server", &socket, case.act.1, case.host, "--", "touch", &far,
        ];
        let mut child = command(&self.sshd, &words);
        child.env("SSHJOBS_TOKEN", &self.callers[case.caller].token);
        String::from_utf8(child.output().unwrap().stdout).unwrap()
    }
}

/// A port of its own for each case, so that the approver knows which call it is asked about.
fn target(case: &Case) -> String {
    let first = if case.is_agreed { 20_000 } else { 30_000 };
    format!("127.0.0.1:{}", first + case.number)
}

/// Answers whatever waits for an approval, until the test is over.
fn answer_approvals(approver: &server::Caller, is_over: &Receiver<()>) {
    while is_over.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout) {
        let listed: Value = server::answer(approver.get("/v1/approvals")).1;
        for approval in listed["approvals"].as_array().into_iter().flatten() {
            // Not the whole entry, which has parts of an earlier call.
            let call = approval["call"].to_string();
            let is_agreed = call.contains("/agree-") || call.contains("127.0.0.1:20");
            let decision = if is_agreed { "approve" } else { "deny" };
            let id = approval["id"].as_str().unwrap();
            // It may be over by now.
            approver.call(&format!("approvals/{id}"), json!({"decision": decision}));
        }
    }
}

/// Makes all calls of a table, and returns those that acted or did not against the reference.
async fn play(cases: &[Case]) -> Vec<(&Case, bool)> {
    let world = World::start(&policy(cases)).await;
    let approver = world.server.caller(&world.sshd, "alice", &[]);
    let (_running, is_over) = std::sync::mpsc::channel();
    std::thread::spawn(move || answer_approvals(&approver, &is_over));

    let mut wrong = Vec::new();
    for case in cases {
        let acts = world.acts(case).await;
        if acts != case.may_act() {
            wrong.push((case, acts));
        }
    }
    world.library.shutdown().await;
    // One that acts late has acted, too.
    let makes_file = |case: &&Case| matches!(case.act.0, Act::Run | Act::Spawn | Act::Put);
    for case in cases.iter().filter(makes_file) {
        if !case.may_act() && world.far(case).exists() {
            wrong.push((case, true));
        }
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_acts_over_every_face_just_if_the_reference_says_so() {
    let tables = SEEDS.map(cases);
    for (seed, cases) in SEEDS.iter().zip(&tables) {
        let wrong = play(cases).await;
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
    }
    let all: Vec<&Case> = tables.iter().flatten().collect();
    let count = |wanted: fn(&&&Case) -> bool| all.iter().filter(wanted).count();
    let allowed = count(|case| case.may_act());
    let agreed = count(|case| case.may_act() && !case.rules.contains(&Effect::Allow));
    assert!(
        allowed > 40 && all.len() - allowed > 40 && agreed > 4,
        "the tables have calls of each kind: {allowed} of {} act, {agreed} with an approval",
        all.len()
    );
}
