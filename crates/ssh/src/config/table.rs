//! The options of ssh_config that are understood without ssh.

/// How the value of an ssh_config(5) option is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionKind {
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
const OPTIONS: [(&str, OptionKind); 55] = [
    ("addkeystoagent", OptionKind::Ignored),
    ("batchmode", OptionKind::Word),
    ("certificatefile", OptionKind::Repeated),
    ("checkhostip", OptionKind::Ignored),
    ("ciphers", OptionKind::Ignored),
    ("clearallforwardings", OptionKind::Ignored),
    ("compression", OptionKind::Ignored),
    ("connecttimeout", OptionKind::Number),
    ("controlmaster", OptionKind::Ignored),
    ("controlpath", OptionKind::Ignored),
    ("controlpersist", OptionKind::Ignored),
    ("dynamicforward", OptionKind::Ignored),
    ("escapechar", OptionKind::Ignored),
    ("exitonforwardfailure", OptionKind::Ignored),
    ("fingerprinthash", OptionKind::Ignored),
    ("forwardagent", OptionKind::Ignored),
    ("forwardx11", OptionKind::Ignored),
    ("forwardx11timeout", OptionKind::Ignored),
    ("forwardx11trusted", OptionKind::Ignored),
    ("globalknownhostsfile", OptionKind::List),
    ("gssapiauthentication", OptionKind::Ignored),
    ("gssapidelegatecredentials", OptionKind::Ignored),
    ("hashknownhosts", OptionKind::Word),
    ("hostbasedauthentication", OptionKind::Ignored),
    ("hostkeyalias", OptionKind::Text),
    ("hostname", OptionKind::Text),
    ("identitiesonly", OptionKind::Word),
    ("identityagent", OptionKind::Text),
    ("identityfile", OptionKind::Repeated),
    ("ipqos", OptionKind::Ignored),
    ("kbdinteractiveauthentication", OptionKind::Word),
    ("kexalgorithms", OptionKind::Ignored),
    ("localforward", OptionKind::Ignored),
    ("loglevel", OptionKind::Ignored),
    ("macs", OptionKind::Ignored),
    ("numberofpasswordprompts", OptionKind::Number),
    ("passwordauthentication", OptionKind::Word),
    ("port", OptionKind::Number),
    ("preferredauthentications", OptionKind::Ignored),
    ("proxycommand", OptionKind::Command),
    ("proxyjump", OptionKind::Text),
    ("pubkeyacceptedalgorithms", OptionKind::Ignored),
    ("pubkeyauthentication", OptionKind::Word),
    ("remotecommand", OptionKind::Command),
    ("remoteforward", OptionKind::Ignored),
    ("requesttty", OptionKind::Ignored),
    ("sendenv", OptionKind::Ignored),
    ("serveralivecountmax", OptionKind::Ignored),
    ("serveraliveinterval", OptionKind::Number),
    ("setenv", OptionKind::Ignored),
    ("stricthostkeychecking", OptionKind::Word),
    ("tcpkeepalive", OptionKind::Ignored),
    ("user", OptionKind::Text),
    ("userknownhostsfile", OptionKind::List),
    ("visualhostkey", OptionKind::Ignored),
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
pub(super) fn kind_of(option: &str) -> Option<OptionKind> {
    OPTIONS.iter().find(|(known, _)| *known == option).map(|(_, kind)| *kind)
}
