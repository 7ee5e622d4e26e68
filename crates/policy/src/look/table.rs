//! The programs that only look, with their options.

use super::options::NO_OPTIONS;
use super::{Operands, Options};

/// A program, or a subcommand of one.
#[derive(Clone, Copy, Debug)]
pub struct LookProgram {
    /// Its name.
    pub name: &'static str,
    /// Its output, for people who review the table.
    pub shows: &'static str,
    pub(crate) options: Options,
    pub(crate) operands: Operands,
    /// Words that are put before the caller's: they switch off what could run another program.
    pub(crate) first_words: &'static [&'static str],
    /// Subcommands, of which one must follow the options.
    pub(crate) subcommands: &'static [Self],
}

const fn program(name: &'static str, shows: &'static str) -> LookProgram {
    LookProgram {
        name,
        shows,
        options: NO_OPTIONS,
        operands: Operands::Nothing,
        first_words: &[],
        subcommands: &[],
    }
}

const fn short(short: &'static str, short_with_value: &'static str) -> Options {
    Options {
        short,
        short_with_value,
        ..NO_OPTIONS
    }
}

impl LookProgram {
    const fn with(self, options: Options, operands: Operands) -> Self {
        Self {
            options,
            operands,
            ..self
        }
    }

    const fn after(self, first_words: &'static [&'static str]) -> Self {
        Self {
            first_words,
            ..self
        }
    }

    const fn of(self, subcommands: &'static [Self]) -> Self {
        Self {
            subcommands,
            ..self
        }
    }
}

/// Reads of a directory of git. `%G` in a format would run gpg, and `--output` write a file.
const GIT_SHOW: Options = Options {
    short: "pswuz",
    short_with_value: "nU",
    whole: &[],
    long: &[
        "all",
        "cached",
        "decorate",
        "graph",
        "merges",
        "name-only",
        "name-status",
        "no-color",
        "no-merges",
        "no-patch",
        "numstat",
        "oneline",
        "patch",
        "reverse",
        "shortstat",
        "staged",
        "stat",
        "summary",
    ],
    long_with_value: &[
        "after",
        "author",
        "before",
        "grep",
        "max-count",
        "since",
        "until",
    ],
    takes_number: true,
};

/// Words that keep git from pagers, hooks, monitors, signatures and a repository's own programs.
const GIT_FIRST: &[&str] = &[
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.pager=cat",
    "-c",
    "log.showSignature=false",
    "-c",
    "diff.ignoreSubmodules=all",
    "-c",
    "core.attributesFile=/dev/null",
    "-c",
    "gpg.program=false",
    "-c",
    "gpg.openpgp.program=false",
    "-c",
    "gpg.ssh.program=false",
    "-c",
    "gpg.x509.program=false",
    "-c",
    "format.pretty=medium",
    // `git diff` would write the index.
    "-c",
    "diff.autoRefreshIndex=false",
];

/// Words that keep a difference from programs of the repository and of its submodules.
const GIT_DIFF_FIRST: &[&str] = &[
    "--no-ext-diff",
    "--no-textconv",
    "--ignore-submodules=all",
    "--submodule=short",
];

/// The table. A program is here only if no option of its row, in any combination, writes a file, opens a
/// connection, signals a process or runs a program.
pub const PROGRAMS: &[LookProgram] = &[
    program("uname", "the system").with(short("asnrvmpio", ""), Operands::Nothing),
    program("uptime", "load and time since boot").with(short("ps", ""), Operands::Nothing),
    program("date", "the time").with(short("uR", ""), Operands::Nothing),
    program("id", "the account").with(short("unGgr", ""), Operands::Nothing),
    program("hostname", "the host's name").with(short("s", ""), Operands::Nothing),
    program("nproc", "processors").with(NO_OPTIONS, Operands::Nothing),
    program("df", "free space").with(short("hHTiaklmP", "tx"), Operands::Files),
    program("free", "memory").with(short("hbkmgtw", ""), Operands::Nothing),
    program("ps", "processes").with(
        Options {
            long: &["forest", "headers", "no-headers", "no-heading"],
            long_with_value: &["format", "pid", "ppid", "sort", "user"],
            // Not -e in the manner of BSD, which shows the variables of processes.
            ..short("AadefFjlLMTwyHN", "Cop")
        },
        Operands::Letters("aAfFhjlLmrsTuvwx"),
    ),
    program("ls", "directories").with(
        Options {
            long: &[
                "all",
                "almost-all",
                "directory",
                "full-time",
                "group-directories-first",
                "human-readable",
                "inode",
                "numeric-uid-gid",
                "recursive",
                "reverse",
                "size",
            ],
            long_with_value: &["sort", "time", "time-style"],
            ..short("aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1", "I")
        },
        Operands::Files,
    ),
    program("stat", "attributes of files").with(
        Options {
            long: &["dereference", "file-system", "terse"],
            long_with_value: &["format", "printf"],
            ..short("fLt", "c")
        },
        Operands::Files,
    ),
    program("du", "sizes").with(
        Options {
            long: &[
                "all",
                "apparent-size",
                "bytes",
                "human-readable",
                "one-file-system",
                "summarize",
                "total",
            ],
            long_with_value: &["exclude", "max-depth", "threshold"],
            ..short("abcDhHklLmPSsx", "dt")
        },
        Operands::Files,
    ),
    program("wc", "numbers of lines").with(short("lwcmL", ""), Operands::Files),
    program("head", "the start of files").with(
        Options {
            long_with_value: &["bytes", "lines"],
            takes_number: true,
            ..short("qvz", "nc")
        },
        Operands::Files,
    ),
    program("tail", "the end of files").with(
        Options {
            long_with_value: &["bytes", "lines"],
            takes_number: true,
            // Not -f and -F, which never end.
            ..short("qvz", "nc")
        },
        Operands::Files,
    ),
    program("cat", "files").with(short("AbEensTtv", ""), Operands::Files),
    program("grep", "lines that match").with(
        Options {
            long: &[
                "line-buffered",
                "count",
                "extended-regexp",
                "files-with-matches",
                "fixed-strings",
                "ignore-case",
                "invert-match",
                "line-number",
                "no-filename",
                "only-matching",
                "recursive",
                "with-filename",
                "word-regexp",
            ],
            long_with_value: &[
                "after-context",
                "before-context",
                "context",
                "exclude",
                "exclude-dir",
                "include",
                "max-count",
                "regexp",
            ],
            ..short("aEFGHhIiLlcnoPqRrsvwxzZ", "ABCem")
        },
        Operands::PatternAndFiles,
    ),
    program("rg", "lines that match").after(&["--no-config"]).with(
        // Not --pre and --hostname-bin, which run programs, -f, -z (decompressors), --ignore-file.
        Options {
            long: &[
                "count",
                "files-with-matches",
                "fixed-strings",
                "hidden",
                "no-ignore",
                "ignore-case",
                "json",
                "line-buffered",
                "null",
                "sort-files",
            ],
            long_with_value: &[
                "after-context",
                "before-context",
                "context",
                "glob",
                "max-count",
                "regexp",
                "type",
            ],
            ..short("FHIciLlnNosuvwx0", "ABCegmt")
        },
        Operands::PatternAndFiles,
    ),
    // Its own words are checked by a function: tests may stand anywhere, and actions are programs.
    program("find", "files by name, age and size"),
    program("ss", "sockets").with(
        // Not -r (names are asked of a network), -K (closes sockets), -D (writes) and -N.
        Options {
            long: &[
                "all",
                "listening",
                "numeric",
                "processes",
                "summary",
                "tcp",
                "udp",
                "unix",
            ],
            ..short("aeHilmnOopstuwx460", "")
        },
        Operands::SocketFilter,
    ),
    program("ip", "addresses and routes")
        .with(
            // Not -b (a file of commands), -n and -a (other namespaces), -r (asks a network for names).
            Options {
                whole: &["4", "6", "br", "d", "h", "j", "o", "p", "s"],
                long: &[
                    "brief",
                    "details",
                    "json",
                    "oneline",
                    "pretty",
                    "statistics",
                ],
                ..NO_OPTIONS
            },
            Operands::Nothing,
        )
        .of(&[
            program("addr", "addresses").of(IP_SHOW),
            program("address", "addresses").of(IP_SHOW),
            program("link", "interfaces").of(IP_SHOW),
            program("neigh", "neighbours").of(IP_SHOW),
            program("route", "routes").of(IP_SHOW),
            program("rule", "rules of routes").of(IP_SHOW),
        ]),
    program("systemctl", "services").after(&["--no-pager"]).of(&[
        program("status", "state of units").with(SYSTEMCTL, Operands::Names),
        program("show", "properties of units").with(SYSTEMCTL, Operands::Names),
        program("cat", "files of units").with(SYSTEMCTL, Operands::Names),
        program("is-active", "whether units run").with(SYSTEMCTL, Operands::Names),
        program("is-enabled", "whether units start at boot").with(SYSTEMCTL, Operands::Names),
        program("is-failed", "whether units have failed").with(SYSTEMCTL, Operands::Names),
        program("list-units", "units").with(SYSTEMCTL, Operands::Names),
        program("list-unit-files", "installed units").with(SYSTEMCTL, Operands::Names),
        program("list-timers", "timers").with(SYSTEMCTL, Operands::Names),
    ]),
    program("journalctl", "the journal").after(&["--no-pager"]).with(
        // Not -f, --rotate, --vacuum-*, --flush, --sync, --cursor-file, --file, --directory, --machine.
        Options {
            long: &[
                "all",
                "catalog",
                "disk-usage",
                "dmesg",
                "list-boots",
                "no-hostname",
                "quiet",
                "reverse",
                "system",
                "user",
                "utc",
            ],
            long_with_value: &[
                "boot",
                "grep",
                "identifier",
                "lines",
                "output",
                "priority",
                "since",
                "unit",
                "until",
            ],
            ..short("abkqrx", "gnopStUu")
        },
        Operands::Fields,
    ),
    program("docker", "containers").of(&[
        program("ps", "containers").with(
            Options {
                long: &["all", "latest", "no-trunc", "quiet", "size"],
                long_with_value: &["filter", "format", "last"],
                ..short("alqs", "fn")
            },
            Operands::Nothing,
        ),
        program("logs", "output of a container").with(
            Options {
                long: &["details", "timestamps"],
                long_with_value: &["since", "tail", "until"],
                ..short("t", "n")
            },
            Operands::Names,
        ),
        program("inspect", "facts of a container").with(
            Options {
                long: &["size"],
                long_with_value: &["format", "type"],
                ..short("s", "f")
            },
            Operands::Names,
        ),
        program("images", "images").with(
            Options {
                long: &["all", "digests", "no-trunc", "quiet"],
                long_with_value: &["filter", "format"],
                ..short("aq", "f")
            },
            Operands::Nothing,
        ),
        program("stats", "resources of containers").after(&["--no-stream"]).with(
            Options {
                long: &["all", "no-stream", "no-trunc"],
                long_with_value: &["format"],
                ..short("a", "")
            },
            Operands::Names,
        ),
    ]),
    program("nvidia-smi", "GPUs").with(
        // Not -f (writes), -l (never ends), and the options that change a device.
        Options {
            long: &["list-gpus", "query"],
            long_with_value: &["display", "format", "id", "query-compute-apps", "query-gpu"],
            ..short("Lq", "di")
        },
        Operands::Nothing,
    ),
    program("git", "a working tree").after(GIT_FIRST).of(&[
        program("status", "changed files").after(&["--ignore-submodules=all"]).with(
            Options {
                long: &[
                    "branch",
                    "ignored",
                    "long",
                    "porcelain",
                    "short",
                    "show-stash",
                ],
                ..short("bs", "")
            },
            Operands::Files,
        ),
        program("log", "commits").after(GIT_DIFF_FIRST).with(GIT_SHOW, Operands::Names),
        program("diff", "changes").after(GIT_DIFF_FIRST).with(GIT_SHOW, Operands::Names),
        program("show", "a commit")
            .after(GIT_DIFF_FIRST)
            .with(GIT_SHOW, Operands::Names),
    ]),
];

const IP_SHOW: &[LookProgram] = &[
    program("show", "a list").with(NO_OPTIONS, Operands::Words),
    program("list", "a list").with(NO_OPTIONS, Operands::Words),
    program("ls", "a list").with(NO_OPTIONS, Operands::Words),
    program("get", "the route to an address").with(NO_OPTIONS, Operands::Words),
];

/// Not -H and -M, which lead to other machines, and --root and --image.
const SYSTEMCTL: Options = Options {
    long: &[
        "all",
        "failed",
        "full",
        "no-legend",
        "plain",
        "recursive",
        "user",
        "value",
    ],
    long_with_value: &["lines", "output", "property", "state", "type"],
    ..short("al", "nopt")
};

/// Programs that people type for the same question, and what to use here.
pub(crate) const INSTEAD: [(&str, &str); 13] = [
    ("less", "head, tail or cat"),
    ("more", "head, tail or cat"),
    ("top", "ps aux --sort=-%cpu"),
    ("htop", "ps aux --sort=-%cpu"),
    ("netstat", "ss -tlnp"),
    ("lsof", "ss -tlnp, or ls -l /proc/PID/fd with ssh_run"),
    ("ifconfig", "ip addr show"),
    ("route", "ip route show"),
    ("service", "systemctl status NAME"),
    ("dmesg", "journalctl -k"),
    ("egrep", "grep -E"),
    ("fgrep", "grep -F"),
    ("tree", "find DIR"),
];
