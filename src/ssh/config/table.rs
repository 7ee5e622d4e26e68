/// How the value of an option of ssh_config(5) is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One value, of which the first counts.
    Text,
    /// The same, and a number.
    Number,
    /// The same, in any case.
    Word,
    /// The rest of the line, as it is.
    Command,
    /// Several values on a line.
    List,
    /// One value a line, and each counts.
    Repeated,
    /// Without effect here; docs/ssh.md lists these.
    Ignored,
}

/// The options that are understood without an ssh program, in lower case.
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

/// The options that a person is shown, the most telling first: those of ssh_config(5), and the program's own for secrets.
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

/// How an option is read; none when it is not understood.
pub(super) fn kind_of(option: &str) -> Option<Kind> {
    OPTIONS.iter().find(|(known, _)| *known == option).map(|(_, kind)| *kind)
}
