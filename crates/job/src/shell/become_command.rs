//! The command that starts a script as another user, and announces each step of that to a
//! [`Gate`].

use super::quoting::quote;
use crate::announced::Gate;
use crate::{Become, BecomeMethod, Nonce};

/// A command of `/bin/sh` that runs `script` in `/bin/sh` as the user of the gate. Its stdin is the
/// script's, after the password if one is asked for.
pub(super) fn change_user_command(gate: &Gate, script: &str) -> String {
    let markers = gate.markers();
    let passed = in_two_parts(markers.passed());
    // On a terminal both streams are one, and a channel that is closed ends all.
    let script = if gate.is_on_terminal() {
        format!("echo {passed}\n{script}")
    } else {
        let go = markers.go();
        format!(
            "echo {passed} >&2; echo {passed}; IFS= read -r sshjobs_go && [ \"$sshjobs_go\" = {go} ] || exit 125; \
             unset sshjobs_go\n{script}"
        )
    };
    let script = quote(&script);

    let user = quote(gate.becomes().user());
    let program = match gate.becomes().method() {
        BecomeMethod::Sudo => {
            let prompt = in_two_parts(markers.prompt());
            // -S reads the password from stdin, byte by byte, and leaves the rest to the command.
            format!("sudo -S -H -p {prompt} -u {user} -- /bin/sh -c {script}")
        }
        BecomeMethod::Doas => format!("doas -u {user} -- /bin/sh -c {script}"),
        BecomeMethod::Su => format!("su -s /bin/sh -c {script} -- {user}"),
    };
    format!("echo {} >&2; exec {program}", in_two_parts(markers.begun()))
}

/// The command that runs `script` in `/bin/sh` as another user, and the gate that it has to pass.
/// For a channel without a terminal.
pub fn become_command(becomes: &Become, script: &str) -> (String, Gate) {
    let gate = Gate::new(becomes.clone(), &Nonce::new(), false);
    (change_user_command(&gate, script), gate)
}

/// A word in two quoted parts, so that an echo of the command is not taken for its output.
fn in_two_parts(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    format!("{first}''{rest}")
}
