//! Checks a command word by word against the table.

use std::fmt;

use super::Operands;
use super::options::{FoundOperands, operands_of};
use super::table::{INSTEAD, LookProgram, PROGRAMS};

/// A command that only looks. It can be made only of words that the table allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOnlyCommand(Vec<String>);

/// Why a command is not known to only look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReadOnly {
    /// The word that is not allowed.
    pub why: String,
    /// The nearest thing that is.
    pub instead: String,
}

impl fmt::Display for NotReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Most words of a command, and most bytes of one.
const MOST_WORDS: usize = 200;
const LONGEST_WORD: usize = 4096;

/// Tests and options of find that take no value, and those that take one. Not here: `-delete`, `-exec` and
/// its kin, and `-fprint` and its kin, which write.
const FIND_PLAIN: [&str; 20] = [
    "(",
    ")",
    "!",
    ",",
    "-a",
    "-and",
    "-o",
    "-or",
    "-not",
    "-depth",
    "-xdev",
    "-mount",
    "-empty",
    "-print",
    "-print0",
    "-prune",
    "-readable",
    "-writable",
    "-executable",
    "-ls",
];
const FIND_WITH_VALUE: [&str; 27] = [
    "-maxdepth",
    "-mindepth",
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-wholename",
    "-regex",
    "-iregex",
    "-regextype",
    "-type",
    "-size",
    "-mtime",
    "-mmin",
    "-atime",
    "-amin",
    "-ctime",
    "-cmin",
    "-newer",
    "-newermt",
    "-user",
    "-group",
    "-uid",
    "-gid",
    "-perm",
    "-inum",
    "-printf",
];

impl ReadOnlyCommand {
    /// Checks a command in a directory: a program of the table, allowed options, and operands.
    ///
    /// # Errors
    /// The first word that the table does not have.
    pub fn new(argv: &[String], directory: Option<&str>) -> Result<Self, NotReadOnly> {
        let too_long = argv.len() > MOST_WORDS || argv.iter().any(|word| word.len() > LONGEST_WORD);
        if too_long || argv.iter().any(|word| word.contains('\0')) {
            return Err(NotReadOnly {
                why: "the command is too long, or contains a NUL".to_owned(),
                instead: "look at fewer things at a time".to_owned(),
            });
        }
        let Some((name, words)) = argv.split_first() else {
            return Err(NotReadOnly {
                why: "argv is empty".to_owned(),
                instead: format!("begin with one of {}", names(PROGRAMS)),
            });
        };
        let program = find(PROGRAMS, name).ok_or_else(|| unknown_program(name))?;
        let mut checked = vec![name.clone()];
        if name == "find" {
            check_find(words, directory)?;
            checked.extend(words.iter().cloned());
        } else {
            check(program, words, directory, &mut checked)?;
        }
        Ok(Self(checked))
    }

    /// The words to run: those of the caller, and others that switch off what could act.
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

/// Variables that switch off pagers, locks and fetches of the programs.
pub const LOOK_VARIABLES: [(&str, &str); 8] = [
    // The empty tree: no file of the tree names filters (git 2.41 and later).
    (
        "GIT_ATTR_SOURCE",
        "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    ),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_PAGER", "cat"),
    ("PAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("SYSTEMD_PAGERSECURE", "1"),
];

fn find<'a>(programs: &'a [LookProgram], name: &str) -> Option<&'a LookProgram> {
    programs.iter().find(|program| program.name == name)
}

fn names(programs: &[LookProgram]) -> String {
    let names: Vec<&str> = programs.iter().map(|program| program.name).collect();
    names.join(", ")
}

fn unknown_program(name: &str) -> NotReadOnly {
    let instead = INSTEAD.iter().find(|(other, _)| *other == name);
    NotReadOnly {
        why: format!("{name:?} is not in the table of programs that only look"),
        instead: match instead {
            Some((_, instead)) => format!("use {instead}"),
            None => format!("use one of {}, or ssh_run", names(PROGRAMS)),
        },
    }
}

/// Checks the words after a program or subcommand, and adds them.
fn check(
    program: &LookProgram,
    words: &[String],
    directory: Option<&str>,
    checked: &mut Vec<String>,
) -> Result<(), NotReadOnly> {
    checked.extend(program.first_words.iter().map(|word| (*word).to_owned()));
    if program.subcommands.is_empty() {
        let operands =
            operands_of(&program.options, words).map_err(|word| unknown_option(program, word))?;
        check_operands(program, &operands, directory)?;
        if program.name == "ps" {
            check_ps(words)?;
        }
        checked.extend(words.iter().cloned());
        return Ok(());
    }
    // Options of the program stand before its subcommand.
    let before = words.iter().take_while(|word| word.starts_with('-')).count();
    let (options, rest) = words.split_at(before);
    operands_of(&program.options, options).map_err(|word| unknown_option(program, word))?;
    checked.extend(options.iter().cloned());
    let Some((name, words)) = rest.split_first() else {
        return if program.subcommands.iter().any(|sub| sub.name == "show") {
            // `ip addr` shows.
            Ok(())
        } else {
            Err(unknown_subcommand(program, ""))
        };
    };
    let subcommand =
        find(program.subcommands, name).ok_or_else(|| unknown_subcommand(program, name))?;
    checked.push(name.clone());
    check(subcommand, words, directory, checked)
}

fn unknown_subcommand(program: &LookProgram, name: &str) -> NotReadOnly {
    NotReadOnly {
        why: format!("{} {name:?} is not known to only look", program.name),
        instead: format!(
            "use {} with one of {}, or ssh_run",
            program.name,
            names(program.subcommands)
        ),
    }
}

fn unknown_option(program: &LookProgram, word: &str) -> NotReadOnly {
    let options = &program.options;
    let short = options.short.chars().chain(options.short_with_value.chars());
    let mut allowed: Vec<String> = short.map(|letter| format!("-{letter}")).collect();
    let long = options.long.iter().chain(options.long_with_value);
    allowed.extend(long.map(|name| format!("--{name}")));
    NotReadOnly {
        why: format!(
            "the option {word:?} of {} is not known to only look",
            program.name
        ),
        instead: format!("it takes {}; ssh_run runs others", allowed.join(" ")),
    }
}

fn check_operands(
    program: &LookProgram,
    found: &FoundOperands<'_>,
    directory: Option<&str>,
) -> Result<(), NotReadOnly> {
    let operands = &found.words;
    let reads_all_below = found.is_recursive || program.name == "rg";
    let is_bad_file = |word: &&str| {
        has_side_effects(word, directory) || (reads_all_below && holds_queues(word, directory))
    };
    let bad = match program.operands {
        Operands::Nothing => operands.first(),
        Operands::Files => operands.iter().find(|word| has_side_effects(word, directory)),
        Operands::PatternAndFiles => {
            let files = operands.get(usize::from(!found.has_pattern)..).unwrap_or_default();
            let here = if files.is_empty() { &["."][..] } else { files };
            here.iter().find(|word| is_bad_file(word))
        }
        Operands::Names => operands.iter().find(|word| word.starts_with('-')),
        Operands::Words => operands.iter().find(|word| word.starts_with(['-', '/'])),
        Operands::SocketFilter => operands.iter().find(|word| !is_socket_filter(word)),
        Operands::Fields => operands.iter().find(|word| !is_field(word)),
        Operands::Letters(letters) => operands
            .iter()
            .find(|word| !word.chars().all(|letter| letters.contains(letter))),
    };
    match bad {
        None => Ok(()),
        Some(word) => Err(NotReadOnly {
            why: format!("{word:?} is not allowed after {}", program.name),
            instead: "name ordinary files, or use ssh_run".to_owned(),
        }),
    }
}

/// A word of a filter of ss that asks no network: a keyword, an address or a port.
fn is_socket_filter(word: &str) -> bool {
    const KEYWORDS: [&str; 32] = [
        "!",
        "(",
        ")",
        "<",
        "<=",
        "=",
        "==",
        "!=",
        ">",
        ">=",
        "all",
        "and",
        "close-wait",
        "closed",
        "closing",
        "connected",
        "dport",
        "dst",
        "established",
        "exclude",
        "fin-wait-1",
        "fin-wait-2",
        "last-ack",
        "listening",
        "not",
        "or",
        "sport",
        "src",
        "state",
        "syn-recv",
        "syn-sent",
        "time-wait",
    ];
    let is_number = |text: &str| text == "*" || text.parse::<u16>().is_ok();
    let is_address = |text: &str| {
        let address = text.split_once('/').map_or(text, |(address, _)| address);
        let address = address.trim_start_matches('[').trim_end_matches(']');
        address == "*" || address.is_empty() || address.parse::<std::net::IpAddr>().is_ok()
    };
    let has_port = word.rsplit_once(':');
    KEYWORDS.contains(&word)
        || is_address(word)
        || has_port.is_some_and(|(address, port)| is_address(address) && is_number(port))
}

/// `NAME=VALUE`, or `+` between two of them.
fn is_field(word: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    };
    word == "+" || word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

/// A letter of ps with a value stands alone, and processes are numbers: ps reads other words
/// as options of BSD, of which `e` shows the variables of processes.
fn check_ps(words: &[String]) -> Result<(), NotReadOnly> {
    let refuse = |word: &String| NotReadOnly {
        why: format!("{word:?} of ps is not known to only look"),
        instead: "use ps aux, ps -ef, ps -eo pid,comm, ps -p PID or --user=NAME".to_owned(),
    };
    let mut before = "";
    for word in words {
        let group = word.strip_prefix('-').filter(|group| !group.starts_with('-'));
        let has_value = group.is_some_and(|group| group.contains(['C', 'o', 'p']));
        let is_alone = group
            .is_some_and(|group| group.ends_with(['C', 'o', 'p']) && !group.contains('p'))
            || group == Some("p");
        let is_number = word.chars().all(|c| c.is_ascii_digit() || c == ',');
        if (has_value && !is_alone) || (before == "-p" && !is_number) {
            return Err(refuse(word));
        }
        before = word;
    }
    Ok(())
}

/// The parts of a path after `.` and `..` are resolved, and whether it is known from the root.
fn parts_of(path: &str, directory: Option<&str>) -> (Vec<String>, bool) {
    let whole = match directory {
        Some(directory) if !path.starts_with('/') => format!("{directory}/{path}"),
        Some(_) | None => path.to_owned(),
    };
    let mut parts: Vec<String> = Vec::new();
    for part in whole.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part.to_owned());
        }
    }
    // A path that climbs may end anywhere.
    let climbs = !whole.starts_with('/') && whole.split('/').any(|part| part == "..");
    (parts, whole.starts_with('/') || climbs)
}

/// Whether to open a file may change something, or shows what only its owner may see: a device, a queue of
/// the kernel, the variables of a process, or a way around this check.
fn has_side_effects(path: &str, directory: Option<&str>) -> bool {
    let (parts, is_from_root) = parts_of(path, directory);
    let begins_with = |name: &str| parts.first().is_some_and(|first| first == name);
    let has = |name: &str| parts.iter().any(|part| part == name);
    let hidden = ["cwd", "environ", "fd", "kcore", "kmsg", "mem", "root"];
    let is_hidden = begins_with("proc") && hidden.into_iter().any(has);
    has("trace_pipe") || (is_from_root && (begins_with("dev") || is_hidden))
}

/// Whether a directory holds devices or queues of the kernel, which reading all below it would empty.
fn holds_queues(path: &str, directory: Option<&str>) -> bool {
    let (parts, is_from_root) = parts_of(path, directory);
    let is_system = parts
        .first()
        .is_none_or(|first| ["dev", "proc", "sys"].contains(&first.as_str()));
    is_from_root && is_system
}

/// Checks the words of find: starting points, then tests.
fn check_find(words: &[String], directory: Option<&str>) -> Result<(), NotReadOnly> {
    let refuse = |word: &str| NotReadOnly {
        why: format!("{word:?} of find is not known to only look"),
        instead: "use tests such as -name, -type, -mtime, -size, and -printf; ssh_run runs others"
            .to_owned(),
    };
    let mut rest = words.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        let is_path = !word.starts_with('-') && !FIND_PLAIN.contains(&word);
        let is_allowed = if is_path {
            !has_side_effects(word, directory)
        } else if FIND_WITH_VALUE.contains(&word) {
            rest.next().is_some()
        } else {
            FIND_PLAIN.contains(&word) || ["-H", "-L", "-P"].contains(&word)
        };
        if !is_allowed {
            return Err(refuse(word));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(command: &str) -> Result<Vec<String>, NotReadOnly> {
        let argv: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        ReadOnlyCommand::new(&argv, None).map(|command| command.words().to_vec())
    }

    #[test]
    fn what_people_look_at_is_allowed() {
        for command in [
            "uname -a",
            "uptime",
            "df -hT /",
            "free -h",
            "ps aux --sort=-%cpu",
            "ps -eo pid,comm",
            "ps -p 1,2",
            "cat /home/ann/dev/log",
            "grep model /proc/cpuinfo",
            "ls -la /etc",
            "ls --time-style=full-iso -l",
            "stat -c %s /etc/passwd",
            "du -sh -d 1 /var",
            "wc -l /etc/passwd",
            "head -20 /etc/passwd",
            "tail -n 5 /var/log/syslog",
            "grep -rn -A2 --include=*.conf listen /etc/nginx",
            "grep -e listen /etc/nginx/nginx.conf",
            "find /var/log ( -name *.log -o -name *.gz ) -mtime -1 -size +1M -printf %p",
            "ss -tlnp",
            "ss state established dport = :443",
            "ss dst 10.0.0.0/8",
            "ip -br addr show",
            "ip addr",
            "ip route get 10.0.0.1",
            "systemctl status nginx --lines=20",
            "systemctl list-units --failed",
            "journalctl -u nginx --since today -n 50",
            "journalctl -k _PID=1",
            "docker ps -a",
            "docker logs --tail 50 web",
            "docker stats",
            "nvidia-smi --query-gpu=name,memory.used --format=csv",
            "nvidia-smi",
            "git status --short",
            "git log --oneline -5",
            "git diff HEAD~1 -- src",
        ] {
            assert!(
                checked(command).is_ok(),
                "{command}: {:?}",
                checked(command)
            );
        }
        assert_eq!(
            checked("docker stats").unwrap(),
            ["docker", "stats", "--no-stream"]
        );
    }

    /// GTFOBins' entries of each program, and other ways to write, to reach a network or to run something.
    const ACTS: &[&str] = &[
        "",
        "sh -c id",
        "/bin/ls",
        "env ls",
        "sudo ls",
        "date -s 2000-01-01",
        "date --set=2000-01-01",
        "hostname evil",
        "ps e",
        "ps auxe",
        "ps -auxe",
        "ps -pe",
        "ps -p e",
        "ps -aep 1",
        "cat /proc/1/environ",
        "git diff -U --output=/tmp/x",
        "git log -n --output=/tmp/x",
        "journalctl -n --rotate",
        "journalctl --lines --vacuum-time=1s",
        "journalctl --boot --rotate",
        "grep -re x /dev/sda",
        "grep -r x /proc",
        "grep -r x /",
        "rg x /sys",
        "hostname -f",
        "ls --hyperlink",
        "find . -exec id ;",
        "find . -execdir id ;",
        "find . -ok id ;",
        "find . -delete",
        "find . -fprint /tmp/x",
        "find . -fprintf /tmp/x %p",
        "find . -fls /tmp/x",
        "find . -files0-from /tmp/x",
        "find /dev -name x",
        "tail -f /var/log/syslog",
        "tail --follow=name x",
        "tail -F x",
        "head -n",
        "cat /dev/watchdog",
        "cat /tmp/../dev/sda",
        "cat ../../dev/sda",
        "cat /proc/kmsg",
        "cat /proc/self/root/dev/sda",
        "cat /proc/1/fd/0",
        "cat /sys/kernel/debug/tracing/trace_pipe",
        "rg --pre id x",
        "rg --pre=id x",
        "rg --hostname-bin=id x",
        "rg -z x",
        "rg -f /tmp/x y",
        "wc --files0-from=/tmp/x",
        "du --files0-from=/tmp/x",
        "grep -f /tmp/x /dev/zero",
        "grep --file=/tmp/x y",
        "ss -K dst 10.0.0.1",
        "ss -r",
        "ss -t dst exfil.example.com",
        "ss -t dst dead.beef",
        "ss -t sport = :ssh",
        "ss -D /tmp/x",
        "ss -F /tmp/x",
        "ip link set eth0 down",
        "ip addr add 10.0.0.1/8 dev lo",
        "ip addr flush dev lo",
        "ip netns exec x id",
        "ip -batch /tmp/x",
        "ip -b /tmp/x",
        "ip route s",
        "systemctl restart nginx",
        "systemctl -H other status",
        "systemctl status -H other",
        "systemctl --host=other status",
        "systemctl status --root=/tmp",
        "systemctl edit nginx",
        "journalctl -f",
        "journalctl --rotate",
        "journalctl --vacuum-size=1",
        "journalctl --vacuum-s=1",
        "journalctl --cursor-file=/tmp/x",
        "journalctl --file=/tmp/x",
        "journalctl /usr/bin/x",
        "docker run -v /:/mnt alpine",
        "docker exec web id",
        "docker -H tcp://evil ps",
        "docker logs -f web",
        "docker ps --config=/tmp/x",
        "docker inspect web -- x -x",
        "nvidia-smi -pm 1",
        "nvidia-smi -f /tmp/x",
        "nvidia-smi --filename=/tmp/x",
        "nvidia-smi -l 1",
        "git -c core.pager=id log",
        "git -p log",
        "git --exec-path=/tmp status",
        "git log --output=/tmp/x",
        "git diff --output /tmp/x",
        "git diff --ext-diff",
        "git log --show-signature",
        "git log --format=%G?",
        "git log --pretty=%GG",
        "git show --textconv HEAD:x",
        "git commit -m x",
        "git fetch",
        "git branch -D main",
        "git status --output=x",
    ];

    #[test]
    fn what_acts_is_refused() {
        for command in ACTS {
            assert!(
                checked(command).is_err(),
                "{command}: {:?}",
                checked(command)
            );
        }
    }

    #[test]
    fn a_refusal_names_what_to_use() {
        for (command, instead) in [
            ("less /etc/passwd", "head, tail or cat"),
            ("ls --colour", "--recursive"),
            ("systemctl restart nginx", "is-active"),
            ("python3 -c 1", "uname"),
        ] {
            let refused = checked(command).unwrap_err();
            assert!(refused.instead.contains(instead), "{command}: {refused:?}");
        }
    }

    #[test]
    fn a_relative_file_is_below_its_directory() {
        let words = ["cat", "watchdog"].map(str::to_owned);
        assert!(ReadOnlyCommand::new(&words, Some("/dev")).is_err());
        assert!(ReadOnlyCommand::new(&words, Some("/etc")).is_ok());
        assert!(ReadOnlyCommand::new(&words, None).is_ok());
    }
}
