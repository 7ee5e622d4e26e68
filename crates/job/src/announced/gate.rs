//! The gate before a command that runs as another user: finds the prompt for the password, and the
//! line by which the command shows that it runs as that user.
//!
//! Output before that line is not the command's: a lecture, the prompt, the error message. It never
//! reaches the job's output.

use bytes::Bytes;
use memchr::memmem;
use secrecy::SecretString;

use crate::{Become, BecomeMethod, Nonce};
use sshjobs_output::printable;
use sshjobs_output::scrub::hide_in;

/// Words that mark the steps in the output. They contain a nonce of their own, so that nothing else
/// prints them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Markers {
    begun: String,
    prompt: String,
    passed: String,
    go: String,
}

impl Markers {
    /// Words with this nonce.
    pub(crate) fn new(nonce: &Nonce) -> Self {
        let nonce = nonce.as_str();
        Self {
            begun: format!("{nonce}-begun"),
            prompt: format!("{nonce}-password:"),
            passed: format!("{nonce}-passed"),
            go: format!("{nonce}-go"),
        }
    }

    /// The program that changes the user is about to start.
    pub(crate) fn begun(&self) -> &str {
        &self.begun
    }

    /// The prompt of a program that takes a prompt.
    pub(crate) fn prompt(&self) -> &str {
        &self.prompt
    }

    /// The command runs as the other user.
    pub(crate) fn passed(&self) -> &str {
        &self.passed
    }
}

impl Markers {
    /// Line on stdin after which the command starts. Until then the other user's shell waits, so
    /// that a channel which is closed in the meantime starts nothing.
    pub(crate) fn go(&self) -> &str {
        &self.go
    }
}

/// The steps from the login shell to a command that runs as another user, as seen in the output.
#[derive(Debug)]
pub struct Gate {
    markers: Markers,
    becomes: Become,
    on_terminal: bool,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// The password, once it was sent.
    answer: Option<SecretString>,
}

/// The next step at a [`Gate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateStep {
    /// More output is needed.
    Wait,
    /// The program asks for the password. Send it, then call [`Gate::note_answered`].
    SendPassword,
    /// The last line may be a prompt, or the start of a message. It is a prompt if nothing follows
    /// it for a moment.
    MaybePrompt,
    /// The command runs. These bytes are its first output.
    Passed {
        /// Of stdout.
        stdout: Bytes,
        /// Of stderr.
        stderr: Bytes,
    },
    /// The user was not changed.
    Refused(BecomeRefusal),
}

/// Why a host did not run a command as another user.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BecomeRefusal {
    /// The password is wrong.
    #[error("the password was not accepted")]
    WrongPassword,
    /// A password is asked for, and there is none.
    #[error("it asks for a password, and {0}")]
    NoPassword(String),
    /// The program is not installed, or not in PATH.
    #[error("it is not installed there, or not in PATH")]
    Missing,
    /// The program works only on a terminal.
    #[error("it needs a terminal there: {0}")]
    NeedsTerminal(String),
    /// The program refused for another reason, in its own words.
    #[error("{0}")]
    Refused(String),
    /// Nothing happened within the time limit.
    #[error("it did not run the command within {0} s")]
    TimedOut(u64),
}

/// The end of a program that did not change the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramEnd {
    /// Its exit status, if there is one.
    pub status: Option<u32>,
    /// Its last message, printable.
    pub message: String,
    /// The password was sent.
    pub is_answered: bool,
    /// It ran on a terminal.
    pub on_terminal: bool,
}

impl ProgramEnd {
    /// The reason for the end.
    pub fn explain(self, method: BecomeMethod) -> BecomeRefusal {
        let wants_terminal = [
            "must have a tty",
            "a tty is required",
            "a terminal is required",
        ];
        let is_doas = method == BecomeMethod::Doas;
        let is_sudo = method == BecomeMethod::Sudo;

        if self.status == Some(NOT_FOUND) {
            return BecomeRefusal::Missing;
        }
        if wants_terminal.iter().any(|text| self.message.contains(text)) {
            return BecomeRefusal::NeedsTerminal(self.message);
        }
        // Without a terminal doas fails before it prompts, and says only this.
        if is_doas && !self.on_terminal && self.message.contains("Authentication failed") {
            let why = "doas reads passwords from a terminal only";
            return BecomeRefusal::NeedsTerminal(why.to_owned());
        }
        // sudo asks again, so that its end has another reason.
        if self.is_answered && !is_sudo {
            return BecomeRefusal::WrongPassword;
        }
        BecomeRefusal::Refused(self.message)
    }
}

/// Maximum bytes before the command runs.
const MOST_BYTES: usize = 64 << 10;
/// Name of the password in texts from which it was removed.
pub const BECOME_PASSWORD: &str = "become_password";
/// Maximum characters of the program's own words in an error.
const MOST_WORDS: usize = 300;
/// The colon of Chinese and Japanese prompts.
const WIDE_COLON: &str = "：";
/// Exit status of a shell that did not find a program.
const NOT_FOUND: u32 = 127;

impl Gate {
    /// A gate to this user. `nonce` is the one that [the command](crate::ExecPlan) has.
    pub(crate) fn new(becomes: Become, nonce: &Nonce, on_terminal: bool) -> Self {
        Self {
            markers: Markers::new(nonce),
            becomes,
            on_terminal,
            stdout: Vec::new(),
            stderr: Vec::new(),
            answer: None,
        }
    }

    /// The words that mark the steps in the output.
    pub(crate) fn markers(&self) -> &Markers {
        &self.markers
    }

    /// Line on stdin after which the command starts, unless it runs on a terminal.
    pub fn go(&self) -> &str {
        self.markers.go()
    }

    /// Whether the command runs on a terminal.
    pub fn is_on_terminal(&self) -> bool {
        self.on_terminal
    }

    /// The user to become.
    pub fn becomes(&self) -> &Become {
        &self.becomes
    }

    /// Whether a password was sent.
    pub fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// Reads the next bytes of stdout.
    pub fn read_stdout(&mut self, bytes: &[u8]) -> GateStep {
        self.stdout.extend_from_slice(bytes);
        self.step()
    }

    /// Reads the next bytes of stderr.
    pub fn read_stderr(&mut self, bytes: &[u8]) -> GateStep {
        self.stderr.extend_from_slice(bytes);
        self.step()
    }

    /// The password that was sent, if it was asked for.
    pub fn sent_password(&self) -> Option<&SecretString> {
        self.answer.as_ref()
    }

    /// Notes that this password was sent.
    pub fn note_answered(&mut self, password: SecretString) {
        self.answer = Some(password);
        // The next prompt, if there is one, says that it was wrong.
        let told = self.messages();
        let begun = memmem::find(told, self.markers.begun.as_bytes());
        let kept = begun.and_then(|start| end_of_line(told, start)).unwrap_or_default();
        self.messages_mut().truncate(kept);
    }

    /// The reason for an end without a command. `status` is the exit status, if there is one.
    pub fn explain_end(&self, status: Option<u32>) -> BecomeRefusal {
        let end = ProgramEnd {
            status,
            message: self.last_message(),
            is_answered: self.is_answered(),
            on_terminal: self.on_terminal,
        };
        end.explain(self.becomes.method())
    }

    fn step(&mut self) -> GateStep {
        if let Some(stdout) = after_line(&self.stdout, &self.markers.passed) {
            if self.on_terminal {
                return GateStep::Passed {
                    stdout,
                    stderr: Bytes::new(),
                };
            }
            // stderr has its line already, or gets it in a moment: it was printed first.
            if let Some(stderr) = after_line(&self.stderr, &self.markers.passed) {
                return GateStep::Passed { stdout, stderr };
            }
            return GateStep::Wait;
        }
        if self.stdout.len() + self.stderr.len() > MOST_BYTES {
            let why = "it printed 64 KiB, and did not run the command";
            return GateStep::Refused(BecomeRefusal::Refused(why.to_owned()));
        }
        let Some(told) = self.program_output() else { return GateStep::Wait };
        match self.becomes.method() {
            // At the end: a shell that traces its commands prints the prompt as an argument.
            BecomeMethod::Sudo if told.ends_with(self.markers.prompt.as_bytes()) => self.prompted(),
            // Without a terminal it asks for nothing.
            BecomeMethod::Doas if !self.on_terminal => GateStep::Wait,
            BecomeMethod::Doas | BecomeMethod::Su if ends_like_prompt(told) => {
                GateStep::MaybePrompt
            }
            BecomeMethod::Sudo | BecomeMethod::Doas | BecomeMethod::Su => GateStep::Wait,
        }
    }

    /// The step when nothing has followed a line that may be a prompt.
    pub fn note_silence(&self) -> GateStep {
        self.prompted()
    }

    /// The program asks for a password and waits.
    fn prompted(&self) -> GateStep {
        if self.is_answered() {
            GateStep::Refused(BecomeRefusal::WrongPassword)
        } else {
            GateStep::SendPassword
        }
    }

    /// The stream that has the program's messages.
    fn messages(&self) -> &[u8] {
        if self.on_terminal {
            &self.stdout
        } else {
            &self.stderr
        }
    }

    fn messages_mut(&mut self) -> &mut Vec<u8> {
        if self.on_terminal {
            &mut self.stdout
        } else {
            &mut self.stderr
        }
    }

    /// Output of the program itself, without that of the startup files before it. `None` before it
    /// starts.
    fn program_output(&self) -> Option<&[u8]> {
        let told = self.messages();
        let start = memmem::find(told, self.markers.begun.as_bytes())?;
        Some(&told[end_of_line(told, start)?..])
    }

    /// The program's message, in one line, without the prompts and the password.
    fn last_message(&self) -> String {
        let told = self.program_output().unwrap_or_else(|| self.messages());
        let text = String::from_utf8_lossy(told).replace(&self.markers.prompt, "\n");
        let lines: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        // sudo quotes the command, which is our whole script.
        if lines.iter().any(|line| line.starts_with("Sorry, user ")) {
            return "sudoers does not let the account do this".to_owned();
        }
        // The last lines: the first may be a lecture.
        let last = lines.len().saturating_sub(2);
        let words = lines[last..].join("; ");
        let words = match &self.answer {
            Some(password) => hide_in(words, BECOME_PASSWORD, password),
            None => words,
        };
        // A host's words: they must not reach a terminal as they are.
        let words = printable(&words);
        let words: String = words.chars().take(MOST_WORDS).collect();
        if words.is_empty() {
            "it ended without a message".to_owned()
        } else {
            words
        }
    }
}

/// Whether the last line is unfinished and has a colon at its end, as prompts have in every
/// language.
fn ends_like_prompt(told: &[u8]) -> bool {
    let line = told.rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.trim_ascii_end();
    line.ends_with(b":") || line.ends_with(WIDE_COLON.as_bytes())
}

/// The bytes after the line that has this word.
fn after_line(bytes: &[u8], word: &str) -> Option<Bytes> {
    let start = memmem::find(bytes, word.as_bytes())?;
    let end = end_of_line(bytes, start)?;
    Some(Bytes::copy_from_slice(&bytes[end..]))
}

/// The position after the next newline.
fn end_of_line(bytes: &[u8], from: usize) -> Option<usize> {
    Some(from + memchr::memchr(b'\n', &bytes[from..])? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gate, and the nonce in its words.
    fn gate(method: BecomeMethod, on_terminal: bool) -> (Gate, String) {
        let nonce = Nonce::new();
        let becomes = Become::new("root", method).unwrap();
        (
            Gate::new(becomes, &nonce, on_terminal),
            nonce.as_str().to_owned(),
        )
    }

    fn passed(stdout: &'static str, stderr: &'static str) -> GateStep {
        GateStep::Passed {
            stdout: stdout.into(),
            stderr: stderr.into(),
        }
    }

    #[test]
    fn the_password_is_sent_to_our_prompt_only_and_once() {
        let (mut gate, nonce) = gate(BecomeMethod::Sudo, false);
        let startup = format!("stty: no terminal:\n{nonce}-begun\n");
        assert_eq!(gate.read_stderr(startup.as_bytes()), GateStep::Wait);
        assert_eq!(gate.read_stderr(b"lecture\nPassword: "), GateStep::Wait);
        let prompt = format!("\n{nonce}-password:");
        let (first, rest) = prompt.as_bytes().split_at(20);
        assert_eq!(gate.read_stderr(first), GateStep::Wait);
        // As a shell prints it that traces its commands.
        let traced = format!("+ exec sudo -p {nonce}-password: -u root\n");
        assert_eq!(gate.read_stderr(traced.as_bytes()), GateStep::Wait);
        assert_eq!(gate.read_stderr(first), GateStep::Wait);
        assert_eq!(gate.read_stderr(rest), GateStep::SendPassword);

        gate.note_answered("battery-staple".into());
        assert_eq!(gate.read_stderr(b"Sorry, try again.\n"), GateStep::Wait);
        assert_eq!(
            gate.read_stderr(prompt.as_bytes()),
            GateStep::Refused(BecomeRefusal::WrongPassword)
        );
    }

    #[test]
    fn output_after_the_gate_is_the_commands_in_any_division() {
        for terminal in [false, true] {
            let (_, nonce) = gate(BecomeMethod::Su, terminal);
            let all = format!("motd\r\n{nonce}-begun\r\nPassword: \r\n{nonce}-passed\r\nout\n");
            for cut in 0..all.len() {
                let becomes = Become::new("root", BecomeMethod::Su).unwrap();
                let mut gate = Gate {
                    markers: Markers {
                        begun: format!("{nonce}-begun"),
                        prompt: format!("{nonce}-password:"),
                        passed: format!("{nonce}-passed"),
                        go: format!("{nonce}-go"),
                    },
                    ..Gate::new(becomes, &Nonce::new(), terminal)
                };
                let (first, rest) = all.as_bytes().split_at(cut);
                if !terminal {
                    let step = gate.read_stderr(format!("{nonce}-passed\nerr\n").as_bytes());
                    assert_eq!(step, GateStep::Wait);
                }
                let mut output = Vec::new();
                let mut is_passed = false;
                for piece in [first, rest] {
                    if is_passed {
                        output.extend_from_slice(piece);
                    } else if let GateStep::Passed { stdout, .. } = gate.read_stdout(piece) {
                        output.extend_from_slice(&stdout);
                        is_passed = true;
                    }
                }
                assert_eq!(output, b"out\n", "cut at {cut}");
            }
        }
    }

    #[test]
    fn both_streams_begin_after_their_own_line() {
        let (mut gate, nonce) = gate(BecomeMethod::Sudo, false);
        let line = format!("{nonce}-passed\n");
        assert_eq!(
            gate.read_stdout(format!("{line}out").as_bytes()),
            GateStep::Wait
        );
        assert_eq!(
            gate.read_stderr(format!("{nonce}-begun\nlecture\n{line}err").as_bytes()),
            passed("out", "err")
        );
    }

    #[test]
    fn a_prompt_of_su_is_an_unfinished_line_with_a_colon_in_any_language() {
        for prompt in ["Password: ", "Passwort:", "Mot de passe : ", "口令："] {
            let (mut gate, nonce) = gate(BecomeMethod::Su, false);
            // Not a prompt of su, which has not started.
            assert_eq!(gate.read_stderr(prompt.as_bytes()), GateStep::Wait);
            let begun = format!("\n{nonce}-begun\nnote:\n");
            assert_eq!(gate.read_stderr(begun.as_bytes()), GateStep::Wait);
            let step = gate.read_stderr(prompt.as_bytes());
            assert_eq!(step, GateStep::MaybePrompt, "{prompt}");
            assert_eq!(gate.note_silence(), GateStep::SendPassword, "{prompt}");
        }
    }

    #[test]
    fn the_end_is_explained_by_the_programs_last_words_without_controls() {
        let (mut gate, nonce) = gate(BecomeMethod::Sudo, false);
        let lecture = "We trust you\n\nsudo: \x1b[31munknown user x\n";
        gate.read_stderr(format!("{nonce}-begun\n{lecture}").as_bytes());
        let BecomeRefusal::Refused(words) = gate.explain_end(Some(1)) else { panic!() };
        assert!(
            words.ends_with("unknown user x") && !words.contains('\x1b'),
            "{words:?}"
        );
        assert_eq!(gate.explain_end(Some(127)), BecomeRefusal::Missing);
    }
}
