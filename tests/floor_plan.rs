//! The house keeps its plan: crates depend on each other as docs/architecture.md draws it, a foreign
//! crate stays at home, and no folder has an import cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use regex::Regex;
use serde_json::Value;

/// Foreign crates, and the crates of the workspace that may use them.
const HOMES: [(&str, &[&str]); 12] = [
    ("async-nats", &["sshjobs-nats"]),
    ("axum", &["sshjobs-http"]),
    ("cap-std", &["sshjobs-core", "sshjobs-wire"]),
    ("clap", &["sshjobs-cli"]),
    ("ignore", &["sshjobs-tree"]),
    ("jsonwebtoken", &["sshjobs-http"]),
    ("ratatui", &["sshjobs-cli"]),
    ("rmcp", &["sshjobs-mcp"]),
    ("rusqlite", &["sshjobs-store"]),
    ("russh", &["sshjobs-ssh"]),
    ("similar", &["sshjobs-core"]),
    ("tar", &["sshjobs-core", "sshjobs-store"]),
];

/// Rooms of the core, from the ground up, and the rooms that each may import.
const ROOMS_OF_CORE: [(&str, &[&str]); 7] = [
    ("hosts", &[]),
    ("keeping", &[]),
    ("admission", &["hosts"]),
    ("files", &["hosts", "admission"]),
    ("forward", &["hosts", "admission"]),
    ("runner", &["hosts", "keeping", "admission"]),
    (
        "jobs",
        &["hosts", "admission", "files", "forward", "runner"],
    ),
];

/// Folders without tasks, clocks, locks and I/O.
const PURE: [&str; 4] = [
    "output/",
    "policy/approval/",
    "job/notify/",
    "policy/policy",
];

/// Names that say nothing of what the type is about.
const BARE_NAMES: [&str; 13] = [
    "Answer", "Answered", "Entry", "Found", "Kept", "Known", "Looked", "Opened", "Place", "Shown",
    "State", "Told", "Wanted",
];

/// Names that stand for one concept in two crates: an error of each boundary, and the handle of what a
/// lower crate records.
const SHARED_NAMES: [&str; 3] = ["Error", "Fleet", "Job"];

/// Handles of the library, each around the type of this name below it.
const HANDLES: [&str; 8] = [
    "Demo",
    "Follow",
    "Forward",
    "HostKey",
    "Jobs",
    "JobsBuilder",
    "Member",
    "Tail",
];

/// Maximum lines of code of each crate, without blank lines, comments and tests. To raise one takes a
/// commit that says why.
const BUDGETS: [(&str, usize); 15] = [
    ("base", 450),
    ("cli", 15_200),
    ("core", 30_250),
    ("http", 6_620),
    ("job", 9_110),
    ("mcp", 3_540),
    ("nats", 4_200),
    ("output", 3_650),
    ("page", 45),
    ("policy", 5_150),
    ("ssh", 5_980),
    ("sshjobs", 2_260),
    ("store", 4_570),
    ("tree", 700),
    ("wire", 12_120),
];

/// Modules that pure folders must not use.
const IMPURE: [&str; 10] = [
    "tokio",
    "Instant",
    "::now()",
    "Mutex",
    "atomic",
    "mpsc",
    "std::fs",
    "std::io",
    "std::net",
    "std::thread",
];

/// Our crates with what they depend on, as cargo knows them. Dependencies of tests don't count.
fn crates() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&cargo.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let named = |value: &Value| value["name"].as_str().unwrap().to_owned();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap();
            let own = dependencies.iter().filter(|dependency| dependency["kind"].is_null());
            (named(package), own.map(named).collect())
        })
        .collect()
}

/// The lines of the picture of crates in docs/architecture.md, such as `ssh: base output`.
fn drawn_crates() -> BTreeMap<String, BTreeSet<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md");
    let page = std::fs::read_to_string(page).unwrap();
    let block = page.split("```crates\n").nth(1).unwrap().split("```").next().unwrap();
    let full = |name: &str| match name {
        "sshjobs" => name.to_owned(),
        _ => format!("sshjobs-{name}"),
    };
    block
        .lines()
        .map(|line| {
            let (name, below) = line.split_once(':').unwrap();
            (full(name), below.split_whitespace().map(full).collect())
        })
        .collect()
}

#[test]
fn crates_depend_on_each_other_as_drawn() {
    let crates = crates();
    let ours: BTreeMap<_, BTreeSet<_>> = crates
        .iter()
        .map(|(name, below)| {
            let ours = below.iter().filter(|name| crates.contains_key(*name));
            (name.clone(), ours.cloned().collect())
        })
        .collect();
    assert_eq!(
        ours,
        drawn_crates(),
        "left: Cargo.toml, right: docs/architecture.md"
    );
}

#[test]
fn foreign_crates_stay_at_home() {
    for (name, below) in crates() {
        for (foreign, homes) in HOMES {
            assert!(
                !below.contains(foreign) || homes.contains(&name.as_str()),
                "{name}: {foreign} lives in {}",
                homes.join(", ")
            );
        }
    }
}

/// Violations in a file at `path`, whose first component is its crate.
fn violations(path: &str, text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let mut found = Vec::new();
    let room = path.strip_prefix("core/").and_then(|path| path.split('/').next());
    if let Some((room, below)) = ROOMS_OF_CORE.iter().find(|(name, _)| Some(*name) == room) {
        let inward = Regex::new(r"\bcrate::(?:\{\s*)?(\w+)").unwrap();
        for seen in inward.captures_iter(&code).map(|found| found[1].to_owned()) {
            if seen != *room && !below.contains(&seen.as_str()) {
                found.push(format!("{path}: {room} must not see {seen}"));
            }
        }
    }
    if PURE.iter().any(|folder| path.starts_with(folder)) && !path.ends_with("tests.rs") {
        let impure = IMPURE.into_iter().filter(|word| code.contains(word));
        found.extend(impure.map(|word| format!("{path}: this room is pure, without {word}")));
    }
    found
}

/// All files of a folder and its text, by the path below `root`.
fn files(root: &Path, folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(root, &path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

/// The files of all crates: `ssh/auth/login.rs` for `crates/ssh/src/auth/login.rs`. The root of a crate
/// counts as a folder's `mod.rs`.
fn files_of_crates() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for (name, _) in crates() {
        let folder = match name.strip_prefix("sshjobs-") {
            Some(short) => root.join("crates").join(short).join("src"),
            None => root.join("src"),
        };
        let short = name.trim_start_matches("sshjobs-");
        found.extend(files(&folder, &folder).into_iter().map(|(path, text)| {
            let path = if path == "lib.rs" {
                "mod.rs"
            } else {
                path.as_str()
            };
            (format!("{short}/{path}"), text)
        }));
    }
    found
}

#[test]
fn every_room_imports_only_what_it_may() {
    let files = files_of_crates();
    let found: Vec<_> = files.iter().flat_map(|(path, text)| violations(path, text)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Names of each file of a folder in imports, including its own folders: `path` below `src`,
/// without `.rs`.
struct Room {
    /// By the place: folder or file.
    texts: BTreeMap<String, String>,
}

impl Room {
    fn of(files: &[(String, String)]) -> Self {
        let code = |text: &str| {
            let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            text.split_at(tests)
                .0
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect::<Vec<_>>()
                .join("\n")
        };
        let texts = files.iter().filter(|(path, _)| !path.ends_with("tests.rs"));
        Self {
            texts: texts
                .map(|(path, text)| (path.trim_end_matches(".rs").to_owned(), code(text)))
                .collect(),
        }
    }

    /// The file that `name`, seen from folder `folder`, is defined in: a module, or what its mod.rs
    /// hands on.
    fn home(&self, folder: &str, name: &str) -> Option<String> {
        let module = format!("{folder}/{name}");
        if self.texts.contains_key(&module) || self.texts.contains_key(&format!("{module}/mod")) {
            return Some(module);
        }
        let face = self.texts.get(&format!("{folder}/mod"))?;
        let mut handed_on = face.split(';').filter_map(|part| Some(part.split_once("use ")?.1));
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let (file, _) = handed_on
            .find(|part| part.split(|c| !is_word(c)).any(|word| word == name))?
            .split_once("::")?;
        Some(format!("{folder}/{file}"))
    }

    /// The imports of all files of a folder, as pairs of places in it.
    fn imports(&self, folder: &str) -> BTreeSet<(String, String)> {
        let import = Regex::new(r"\buse (super|crate)::((?:[^;{}]|\{[^}]*\})*);").unwrap();
        let mut found = BTreeSet::new();
        for (path, text) in &self.texts {
            let Some(inner) = path.strip_prefix(&format!("{folder}/")) else { continue };
            let from = format!("{folder}/{}", inner.split('/').next().unwrap());
            if inner == "mod" {
                continue;
            }
            for import in import.captures_iter(text) {
                let up = path.rsplit_once('/').unwrap().0;
                let base = if &import[1] == "super" {
                    up.to_owned()
                } else {
                    path.split('/').next().unwrap().to_owned()
                };
                for name in names(&import[2]) {
                    let full = format!("{base}/{name}");
                    let Some(rest) = full.strip_prefix(&format!("{folder}/")) else { continue };
                    let Some(to) = self.home(folder, rest.split('/').next().unwrap()) else {
                        continue;
                    };
                    if to != from {
                        found.insert((from.clone(), to));
                    }
                }
            }
        }
        found
    }

    /// The imports that are part of a circle.
    fn circles(&self, folder: &str) -> Vec<String> {
        let imports = self.imports(folder);
        let closes = |(from, to): &&(String, String)| leads(&imports, to, from);
        imports
            .iter()
            .filter(closes)
            .map(|(from, to)| format!("{from} -> {to}"))
            .collect()
    }
}

/// The names that an import brings in: `a::{b, c::d}` gives `a/b` and `a/c/d`.
fn names(text: &str) -> Vec<String> {
    let text = text.replace(char::is_whitespace, "");
    match text.split_once('{') {
        None => vec![text.replace("::", "/")],
        Some((before, list)) => {
            let list = list.trim_end_matches('}').split(',').filter(|name| !name.is_empty());
            list.map(|name| format!("{before}{name}").replace("::", "/")).collect()
        }
    }
}

/// Whether imports lead from one place to another.
fn leads(imports: &BTreeSet<(String, String)>, from: &str, to: &str) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(place) = next.pop() {
        if place == to {
            return true;
        }
        if seen.insert(place) {
            next.extend(
                imports.iter().filter(|(known, _)| known == place).map(|(_, to)| to.as_str()),
            );
        }
    }
    false
}

#[test]
fn no_folder_holds_a_circle() {
    let room = Room::of(&files_of_crates());
    let folders = room.texts.keys().filter_map(|path| path.strip_suffix("/mod"));
    let circles: Vec<String> = folders.flat_map(|folder| room.circles(folder)).collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn a_circle_is_seen_whatever_it_goes_through() {
    let circle = |files: &[(&str, &str)]| {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        Room::of(&files).circles("ssh")
    };
    let face = (
        "ssh/mod.rs",
        "mod a;\nmod b;\npub use a::{A, Other};\npub use b::B;",
    );
    assert!(
        circle(&[
            face,
            ("ssh/a.rs", "use super::B;"),
            ("ssh/b.rs", "use crate::A;")
        ])
        .len()
            >= 2
    );
    assert!(
        circle(&[
            face,
            ("ssh/a.rs", "use super::b::x;"),
            ("ssh/b.rs", "use super::{\n Other,\n};")
        ])
        .len()
            >= 2
    );
    assert_eq!(
        circle(&[
            face,
            ("ssh/a.rs", "use super::B;"),
            ("ssh/b.rs", "use std::fmt;")
        ]),
        Vec::<String>::new()
    );
    let inner = [
        face,
        ("ssh/a/mod.rs", "mod x;"),
        ("ssh/a/x.rs", "use crate::B;"),
        ("ssh/b.rs", "use super::A;"),
    ];
    assert!(
        circle(&inner).len() >= 2,
        "a folder is a place of the one around it"
    );
    let tests = "fn f() {}\n#[cfg(test)]\nmod tests {\nuse super::B;\n}";
    assert_eq!(
        circle(&[face, ("ssh/a.rs", tests), ("ssh/b.rs", "use super::A;")]),
        Vec::<String>::new()
    );
}

#[test]
fn every_folder_describes_itself_and_its_mod_file_has_no_code() {
    for (path, text) in files_of_crates().iter().filter(|(path, _)| path.ends_with("/mod.rs")) {
        assert!(
            text.starts_with("//! "),
            "{path} does not say what its room is for"
        );
        let belongs = |line: &str| {
            line.is_empty()
                || [
                    "//",
                    "mod ",
                    "pub mod ",
                    "#[doc(hidden)]",
                    "#[cfg(",
                    "#![cfg",
                    "allow(",
                    "pub use ",
                    "pub(super) use ",
                    "pub(super) mod ",
                    "pub(crate) mod ",
                    "pub(crate) use ",
                    "use ",
                    "}",
                ]
                .iter()
                .any(|start| line.starts_with(start))
                || [",", "};", ")]"].iter().any(|end| line.ends_with(end))
        };
        let strange = text.lines().map(str::trim_start).find(|line| !belongs(line));
        assert!(
            strange.is_none() || path == "page/mod.rs",
            "{path} holds more than its plan: {strange:?}"
        );
    }
}

/// The types that a file defines, except in its tests.
fn types(text: &str) -> Vec<String> {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let defined =
        Regex::new(r"(?m)^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|union) ([A-Z]\w*)");
    let defined = defined.unwrap();
    let code = text.split_at(tests).0;
    defined.captures_iter(code).map(|found| found[1].to_owned()).collect()
}

/// Names of types that say nothing, and those of more than one type.
fn poor_names(files: &[(String, String)]) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let files = files.iter().filter(|(path, _)| !path.ends_with("tests.rs"));
    for (path, text) in files {
        for name in types(text) {
            places.entry(name).or_default().push(path);
        }
    }
    let is_poor = |name: &str, paths: &[&str]| {
        let is_handle = HANDLES.contains(&name)
            && matches!(paths, [handle, _] if handle.starts_with("sshjobs/"));
        BARE_NAMES.contains(&name)
            || (paths.len() > 1 && !SHARED_NAMES.contains(&name) && !is_handle)
    };
    places
        .into_iter()
        .filter(|(name, paths)| is_poor(name, paths))
        .map(|(name, paths)| format!("{name}: {}", paths.join(", ")))
        .collect()
}

#[test]
fn a_name_stands_for_one_type_and_says_what_it_is() {
    assert_eq!(poor_names(&files_of_crates()), Vec::<String>::new());

    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let poor = [
        file("ssh/a.rs", "struct Place;\npub struct Session {}"),
        file("http/b.rs", "pub(crate) enum Session {}\nenum Error {}"),
        file(
            "wire/c.rs",
            "enum Error {}\n#[cfg(test)]\nmod tests {\n    struct Session;\n}",
        ),
    ];
    assert_eq!(
        poor_names(&poor),
        ["Place: ssh/a.rs", "Session: ssh/a.rs, http/b.rs"]
    );
}

/// Number of lines of code, up to the tests of the file.
fn lines_of_code(text: &str) -> usize {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text.split_at(tests).0.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[test]
fn each_crate_keeps_its_budget() {
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    for (path, text) in files_of_crates() {
        if !path.ends_with("tests.rs") && !path.contains("/tests/") {
            let name = path.split('/').next().unwrap().to_owned();
            *sizes.entry(name).or_default() += lines_of_code(&text);
        }
    }
    let names: Vec<_> = sizes.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        BUDGETS.map(|(name, _)| name),
        "each crate has a budget"
    );
    let over: Vec<_> = BUDGETS.iter().filter(|(name, most)| sizes[*name] > *most).collect();
    assert!(over.is_empty(), "{over:?} of {sizes:?}");
}

#[test]
fn each_kind_of_violation_is_seen() {
    let one = |path, text| violations(path, text).into_iter().next().unwrap_or_default();
    assert_eq!(
        one("core/hosts/pool.rs", "use crate::runner::Runner;"),
        "core/hosts/pool.rs: hosts must not see runner"
    );
    assert_eq!(
        one("core/files/put.rs", "fn f(c: crate::forward::Spec) {}"),
        "core/files/put.rs: files must not see forward"
    );
    assert_eq!(
        one("output/ring.rs", "use tokio::time::Instant;"),
        "output/ring.rs: this room is pure, without tokio"
    );
    assert_eq!(
        one(
            "core/files/put.rs",
            "// use crate::forward::x\nuse crate::hosts::Pool;"
        ),
        ""
    );
}
