//! The command that starts a script as another user, and announces each step of that to a
//! [`Gate`](crate::job::announced::Gate).

use super::quoting::quote;
use crate::job::announced::Gate;
use crate::job::{Become, BecomeMethod, Nonce};

/// A command of `/bin/sh` that runs `script` in `/bin/sh` as the user of the gate. Its stdin is the
/// script's, after the password if one is asked for.
pub(super) fn command_behind(gate: &Gate, script: &str) -> String {
    let words = gate.words();
    let passed = in_two_parts(words.passed());
    // On a terminal both streams are one.
    let on_stderr = if gate.is_on_terminal() {
        String::new()
    } else {
        format!("echo {passed} >&2; ")
    };
    let script = quote(&format!("{on_stderr}echo {passed}\n{script}"));

    let user = quote(gate.becomes().user());
    let program = match gate.becomes().method() {
        BecomeMethod::Sudo => {
            let prompt = in_two_parts(words.prompt());
            // -S reads the password from stdin, byte by byte, and leaves the rest to the command.
            format!("sudo -S -H -p {prompt} -u {user} -- /bin/sh -c {script}")
        }
        BecomeMethod::Doas => format!("doas -u {user} -- /bin/sh -c {script}"),
        BecomeMethod::Su => format!("su -s /bin/sh -c {script} -- {user}"),
    };
    format!("echo {} >&2; exec {program}", in_two_parts(words.begun()))
}

/// The command that runs `script` in `/bin/sh` as another user, and the gate that it has to pass.
/// For a channel without a terminal.
pub fn become_command(becomes: &Become, script: &str) -> (String, Gate) {
    let gate = Gate::new(becomes.clone(), &Nonce::new(), false);
    (command_behind(&gate, script), gate)
}

/// A word in two quoted parts, so that an echo of the command is not taken for its output.
fn in_two_parts(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    format!("{first}''{rest}")
}
