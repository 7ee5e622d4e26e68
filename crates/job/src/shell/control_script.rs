//! The script of a control shell, and the lines of its protocol.
//!
//! A control shell runs any number of short scripts at the same time and is started once for each
//! connection: a login shell with long startup files takes hundreds of milliseconds to start.
//!
//! It reads a line for each script, `ID SCRIPT INPUT`, with SCRIPT and INPUT escaped for printf's
//! `%b`. It prints each line of output as `NONCE ID TEXT`, and at the end `NONCE ID.`

use super::quoting::{LoginShell, for_shell, inert_word};
use crate::Nonce;
use crate::announced::TELL_MACHINE;

/// The command that starts a control shell, in a form that every login shell understands. It first
/// prints a [greeting](crate::announced::Greeting) and ends when its stdin ends.
pub fn control_script(nonce: &Nonce) -> String {
    let nonce = nonce.as_str();
    // Each script is orphaned, so this shell need not reap it. The last `echo` terminates an
    // unfinished last line. bash and ksh end a `read` after TMOUT seconds. Scripts for durable jobs restore TMOUT
    // and the umask (sj_M).
    let script = format!(
        r#"sj_tmout=${{TMOUT:-}} sj_M=$(umask) TMOUT=0
export sj_tmout sj_M
unset TMOUT
echo {nonce} $$ "$({TELL_MACHINE})"
run() {{ printf %b "$3" | (eval "$(printf %b "$2")") 2>/dev/null; echo; }}
while read -r id script input; do
  ( {{
    run "$id" "$script" "$input" | while IFS= read -r line; do printf '%s\n' "{nonce} $id $line"; done
    echo "{nonce} $id."
  }} & )
done"#
    );
    for_shell(script, LoginShell::Foreign)
}

/// The request to run `script` with `input` as its stdin.
pub fn control_request(id: u64, script: &str, input: &str) -> String {
    format!("{id} {} {}\n", inert_word(script), inert_word(input))
}

/// A line printed by a control shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlLine {
    /// A script printed a line.
    Printed {
        /// Id of the script.
        id: u64,
        /// The line, without its newline.
        text: String,
    },
    /// A script has closed its stdout, usually because it has ended.
    Ended {
        /// Id of the script.
        id: u64,
    },
}

impl ControlLine {
    /// Parses a line. `None` if it is other output.
    pub fn parse(line: &str, nonce: &Nonce) -> Option<Self> {
        let rest = line.strip_prefix(nonce.as_str())?.strip_prefix(' ')?;
        // Unambiguous: in a printed line a space follows the id, even if its text ends with a dot.
        if let Some(id) = rest.strip_suffix('.').and_then(|id| id.parse().ok()) {
            return Some(Self::Ended { id });
        }
        let (id, text) = rest.split_once(' ')?;
        Some(Self::Printed {
            id: id.parse().ok()?,
            text: text.to_owned(),
        })
    }
}
