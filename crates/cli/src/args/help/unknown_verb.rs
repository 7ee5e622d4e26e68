//! What a person meant who typed the verb of another program, or mistyped one of ours.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::command_line::GROUPS;
use sshjobs_core::jobs::nearest;
use sshjobs_wire::Error;

/// Verbs of docker, kubectl, ssh, pueue, systemctl and shells, with what does the same here.
const FOREIGN: [(&str, &str); 44] = [
    ("add", "`sshjobs spawn HOST -- COMMAND` starts a job"),
    ("apply", "`sshjobs run HOST -- COMMAND` runs a command"),
    ("cat", "`sshjobs log JOB` shows a job's output"),
    (
        "clean",
        "`sshjobs forget --all` deletes the jobs that have ended",
    ),
    ("cont", "`sshjobs signal JOB CONT` continues a stopped job"),
    (
        "continue",
        "`sshjobs signal JOB CONT` continues a stopped job",
    ),
    ("create", "`sshjobs spawn HOST -- COMMAND` starts a job"),
    (
        "delete",
        "`sshjobs forget JOB` deletes a job that has ended",
    ),
    (
        "describe",
        "`sshjobs jobs --json` shows all that is known of jobs",
    ),
    ("detach", "Enter ~ . detaches from a terminal"),
    ("enqueue", "`sshjobs spawn HOST -- COMMAND` starts a job"),
    ("events", "`sshjobs top` watches jobs"),
    ("fg", "`sshjobs attach JOB` returns to a job's terminal"),
    ("follow", "`sshjobs tail -f JOB` follows a job"),
    (
        "cp",
        "`sshjobs put` copies files to hosts, `sshjobs get` from hosts",
    ),
    ("grep", "`sshjobs search JOB REGEX` finds lines"),
    ("history", "`sshjobs jobs --all` lists all jobs"),
    ("info", "`sshjobs config` shows the configuration"),
    ("journal", "`sshjobs log JOB` shows a job's output"),
    (
        "keyscan",
        "`sshjobs trust HOST` shows a host's key, and accepts it",
    ),
    (
        "less",
        "`sshjobs log JOB` shows a job's output in the pager",
    ),
    ("list", "`sshjobs jobs` lists jobs, `sshjobs hosts` hosts"),
    ("login", "`sshjobs run -t HOST` starts a login shell"),
    ("ls", "`sshjobs jobs` lists jobs, `sshjobs hosts` hosts"),
    (
        "parallel",
        "`sshjobs run 'web*' -- COMMAND` runs a command on many hosts",
    ),
    (
        "pause",
        "`sshjobs signal JOB STOP` stops a job, CONT continues it",
    ),
    (
        "reattach",
        "`sshjobs attach JOB` returns to a job's terminal",
    ),
    (
        "remove",
        "`sshjobs forget JOB` deletes a job that has ended",
    ),
    (
        "resume",
        "`sshjobs attach JOB` returns to a job's terminal, `sshjobs signal JOB CONT` continues it",
    ),
    ("rm", "`sshjobs forget JOB` deletes a job that has ended"),
    (
        "scp",
        "`sshjobs put` copies files to hosts, `sshjobs get` from hosts",
    ),
    ("send", "`sshjobs write JOB TEXT` writes to a job's stdin"),
    ("server", "`sshjobs serve` serves MCP, or HTTP with --http"),
    ("setup", "`sshjobs init` writes a configuration"),
    ("shell", "`sshjobs run -t HOST` starts a login shell"),
    ("ssh", "`sshjobs run -t HOST` starts a login shell"),
    ("start", "`sshjobs spawn HOST -- COMMAND` starts a job"),
    ("status", "`sshjobs jobs` lists jobs with their states"),
    ("stop", "`sshjobs signal JOB` ends a job (TERM)"),
    ("submit", "`sshjobs spawn HOST -- COMMAND` starts a job"),
    ("terminate", "`sshjobs signal JOB` ends a job (TERM)"),
    (
        "tunnel",
        "`sshjobs forward HOST -L 8080:localhost:80` forwards a port",
    ),
    ("version", "`sshjobs --version` prints it"),
    (
        "ssh-keyscan",
        "`sshjobs trust HOST` shows a host's key, and accepts it",
    ),
];

/// The error for a verb that does not exist. `None` for any other mistake.
pub(crate) fn unknown_verb(error: &clap::Error) -> Option<Error> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    // Of a verb with subcommands, such as token, clap names those itself.
    let verbs = GROUPS.iter().flat_map(|(_, verbs)| *verbs);
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let is_of_a_verb = verbs.into_iter().any(|verb| words.iter().any(|typed| typed == *verb));
    (!is_of_a_verb).then(|| Error::invalid(format!("there is no verb {word:?}"), meant(word)))
}

fn meant(word: &str) -> String {
    if let Some((_, hint)) = FOREIGN.iter().find(|(verb, _)| *verb == word) {
        return (*hint).to_owned();
    }
    let verbs = GROUPS.iter().flat_map(|(_, verbs)| *verbs).copied();
    match nearest(word, verbs) {
        Some(verb) => format!("did you mean `sshjobs {verb}`?"),
        None => "`sshjobs --help` lists the verbs".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_of_another_program_leads_to_ours() {
        assert!(meant("stop").contains("sshjobs signal"));
        assert!(meant("ssh").contains("sshjobs run -t"));
        assert_eq!(meant("rnu"), "did you mean `sshjobs run`?");
        assert!(meant("xyzzy").contains("--help"));
    }

    #[test]
    fn no_foreign_verb_is_one_of_ours() {
        let verbs: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| *verbs).copied().collect();
        for (verb, _) in FOREIGN {
            assert!(!verbs.contains(&verb), "{verb}");
        }
    }
}
