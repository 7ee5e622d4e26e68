//! The options of ssh_config that are understood without ssh.

/// How the value of an ssh_config(5) option is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One value. The first occurrence applies.
    Text,
    /// Like `Text`, and a number.
    Number,
    /// Like `Text`, ignoring case.
    Word,
    /// The rest of the line, unchanged.
    Command,
    /// Several values on one line.
    List,
    /// One value a line, and every line applies.
    Repeated,
    /// No effect here; docs/ssh.md lists these.
    Ignored,
}

/// Options understood without an ssh program, in lower case.
const OPTIONS: [(&str, Kind); 55] = [
    ("addkeystoagent", Kind::Ignored),
    ("batchmode", Kind::Word),
    ("certificatefile", Kind::Repeated),
    ("checkhostip", Kind::Ignored),
    ("ciphers", Kind::Ignored),
    ("clearallforwardings", Kind::Ignored),
    ("compression", Kind::Ignored),
    ("connecttimeout", Kind::Number),
    ("controlmaster", Kind::Ignored),
    ("controlpath", Kind::Ignored),
    ("controlpersist", Kind::Ignored),
    ("dynamicforward", Kind::Ignored),
    ("escapechar", Kind::Ignored),
    ("exitonforwardfailure", Kind::Ignored),
    ("fingerprinthash", Kind::Ignored),
    ("forwardagent", Kind::Ignored),
    ("forwardx11", Kind::Ignored),
    ("forwardx11timeout", Kind::Ignored),
    ("forwardx11trusted", Kind::Ignored),
    ("globalknownhostsfile", Kind::List),
    ("gssapiauthentication", Kind::Ignored),
    ("gssapidelegatecredentials", Kind::Ignored),
    ("hashknownhosts", Kind::Word),
    ("hostbasedauthentication", Kind::Ignored),
    ("hostkeyalias", Kind::Text),
    ("hostname", Kind::Text),
    ("identitiesonly", Kind::Word),
    ("identityagent", Kind::Text),
    ("identityfile", Kind::Repeated),
    ("ipqos", Kind::Ignored),
    ("kbdinteractiveauthentication", Kind::Word),
    ("kexalgorithms", Kind::Ignored),
    ("localforward", Kind::Ignored),
    ("loglevel", Kind::Ignored),
    ("macs", Kind::Ignored),
    ("numberofpasswordprompts", Kind::Number),
    ("passwordauthentication", Kind::Word),
    ("port", Kind::Number),
    ("preferredauthentications", Kind::Ignored),
    ("proxycommand", Kind::Command),
    ("proxyjump", Kind::Text),
    ("pubkeyacceptedalgorithms", Kind::Ignored),
    ("pubkeyauthentication", Kind::Word),
    ("remotecommand", Kind::Command),
    ("remoteforward", Kind::Ignored),
    ("requesttty", Kind::Ignored),
    ("sendenv", Kind::Ignored),
    ("serveralivecountmax", Kind::Ignored),
    ("serveraliveinterval", Kind::Number),
    ("setenv", Kind::Ignored),
    ("stricthostkeychecking", Kind::Word),
    ("tcpkeepalive", Kind::Ignored),
    ("user", Kind::Text),
    ("userknownhostsfile", Kind::List),
    ("visualhostkey", Kind::Ignored),
];

/// Options shown to a person, the most useful first: those of ssh_config(5), and the program's own
/// for secrets.
pub(super) const SHOWN: [&str; 22] = [
    "hostname",
    "port",
    "user",
    "proxyjump",
    "proxycommand",
    "identityfile",
    "certificatefile",
    "identitiesonly",
    "identityagent",
    "passphrase",
    "password",
    "pubkeyauthentication",
    "kbdinteractiveauthentication",
    "passwordauthentication",
    "batchmode",
    "userknownhostsfile",
    "globalknownhostsfile",
    "hostkeyalias",
    "stricthostkeychecking",
    "hashknownhosts",
    "connecttimeout",
    "serveraliveinterval",
];

/// How an option is parsed. `None` if it is not understood.
pub(super) fn kind_of(option: &str) -> Option<Kind> {
    OPTIONS.iter().find(|(known, _)| *known == option).map(|(_, kind)| *kind)
}
