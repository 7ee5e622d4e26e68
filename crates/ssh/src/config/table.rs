//! The options of ssh_config that are understood without ssh.

/// How the value of an ssh_config(5) option is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionKind {
    /// One value. The first occurrence applies.
    Text,
    /// Like `Text`, and a number.
    Number,
    /// Like `Text`, and a TCP port.
    Port,
    /// Like `Text`: yes or no.
    Flag,
    /// Like `Text`: a value of StrictHostKeyChecking.
    HostKeyChecking,
    /// Like `Text`: a list of destinations.
    Jumps,
    /// The rest of the line, unchanged.
    Command,
    /// Several values on one line.
    List,
    /// One value a line, and every line applies.
    Repeated,
    /// No effect here; docs/ssh.md lists these.
    Ignored,
}

/// Options understood without an ssh program, in lower case. Releases of ssh that are still in use know all of them.
const OPTIONS: [(&str, OptionKind); 83] = [
    ("addkeystoagent", OptionKind::Ignored),
    ("addressfamily", OptionKind::Ignored),
    ("batchmode", OptionKind::Flag),
    ("bindaddress", OptionKind::Ignored),
    ("bindinterface", OptionKind::Ignored),
    ("certificatefile", OptionKind::Repeated),
    ("checkhostip", OptionKind::Ignored),
    ("ciphers", OptionKind::Ignored),
    ("clearallforwardings", OptionKind::Ignored),
    ("compression", OptionKind::Ignored),
    ("connectionattempts", OptionKind::Ignored),
    ("connecttimeout", OptionKind::Number),
    ("controlmaster", OptionKind::Ignored),
    ("controlpath", OptionKind::Ignored),
    ("controlpersist", OptionKind::Ignored),
    ("dynamicforward", OptionKind::Ignored),
    ("enablesshkeysign", OptionKind::Ignored),
    ("escapechar", OptionKind::Ignored),
    ("exitonforwardfailure", OptionKind::Ignored),
    ("fingerprinthash", OptionKind::Ignored),
    ("forkafterauthentication", OptionKind::Ignored),
    ("forwardagent", OptionKind::Ignored),
    ("forwardx11", OptionKind::Ignored),
    ("forwardx11timeout", OptionKind::Ignored),
    ("forwardx11trusted", OptionKind::Ignored),
    ("gatewayports", OptionKind::Ignored),
    ("globalknownhostsfile", OptionKind::List),
    ("gssapiauthentication", OptionKind::Ignored),
    ("gssapidelegatecredentials", OptionKind::Ignored),
    ("hashknownhosts", OptionKind::Flag),
    ("hostbasedacceptedalgorithms", OptionKind::Ignored),
    ("hostbasedauthentication", OptionKind::Ignored),
    ("hostbasedkeytypes", OptionKind::Ignored),
    ("hostkeyalias", OptionKind::Text),
    ("hostname", OptionKind::Text),
    ("identitiesonly", OptionKind::Flag),
    ("identityagent", OptionKind::Text),
    ("identityfile", OptionKind::Repeated),
    ("ipqos", OptionKind::Ignored),
    ("kbdinteractiveauthentication", OptionKind::Flag),
    ("kexalgorithms", OptionKind::Ignored),
    ("knownhostscommand", OptionKind::Ignored),
    ("localcommand", OptionKind::Ignored),
    ("localforward", OptionKind::Ignored),
    ("loglevel", OptionKind::Ignored),
    ("macs", OptionKind::Ignored),
    ("nohostauthenticationforlocalhost", OptionKind::Ignored),
    ("numberofpasswordprompts", OptionKind::Number),
    ("passwordauthentication", OptionKind::Flag),
    ("permitlocalcommand", OptionKind::Ignored),
    ("permitremoteopen", OptionKind::Ignored),
    ("pkcs11provider", OptionKind::Ignored),
    ("port", OptionKind::Port),
    ("preferredauthentications", OptionKind::Ignored),
    ("proxycommand", OptionKind::Command),
    ("proxyjump", OptionKind::Jumps),
    ("proxyusefdpass", OptionKind::Ignored),
    ("pubkeyacceptedalgorithms", OptionKind::Ignored),
    ("pubkeyacceptedkeytypes", OptionKind::Ignored),
    ("pubkeyauthentication", OptionKind::Flag),
    ("rekeylimit", OptionKind::Ignored),
    ("remotecommand", OptionKind::Command),
    ("remoteforward", OptionKind::Ignored),
    ("requesttty", OptionKind::Ignored),
    ("securitykeyprovider", OptionKind::Ignored),
    ("sendenv", OptionKind::Ignored),
    ("serveralivecountmax", OptionKind::Ignored),
    ("serveraliveinterval", OptionKind::Number),
    ("sessiontype", OptionKind::Ignored),
    ("setenv", OptionKind::Ignored),
    ("stdinnull", OptionKind::Ignored),
    ("streamlocalbindmask", OptionKind::Ignored),
    ("streamlocalbindunlink", OptionKind::Ignored),
    ("stricthostkeychecking", OptionKind::HostKeyChecking),
    ("syslogfacility", OptionKind::Ignored),
    ("tcpkeepalive", OptionKind::Ignored),
    ("tunnel", OptionKind::Ignored),
    ("tunneldevice", OptionKind::Ignored),
    ("updatehostkeys", OptionKind::Ignored),
    ("user", OptionKind::Text),
    ("userknownhostsfile", OptionKind::List),
    ("verifyhostkeydns", OptionKind::Ignored),
    ("visualhostkey", OptionKind::Ignored),
];

/// Options of ssh_config(5) that sshjobs does not interpret: for a host to which one applies, ssh is asked. IgnoreUnknown is in neither table:
/// it lets any word be an option.
pub(super) const LEFT_TO_SSH: [&str; 10] = [
    "canonicaldomains",
    "canonicalizefallbacklocal",
    "canonicalizehostname",
    "canonicalizemaxdots",
    "canonicalizepermittedcnames",
    "casignaturealgorithms",
    "challengeresponseauthentication",
    "hostkeyalgorithms",
    "requiredrsasize",
    "revokedhostkeys",
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
