//! Command templates: a command with named places, and for each place the values that may stand
//! there. A value is quoted for the host's login shell, so that it is one word whatever it contains.

use std::collections::BTreeMap;
use std::time::Duration;

use super::parameter::{BadValue, Parameter};
use super::quoting::quote_for_any_shell;
use super::rule::ApprovalFrom;

/// A command template.
#[derive(Clone, Debug)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// What it does, for people and agents.
    pub description: Option<String>,
    /// The command as the policy file has it.
    pub command: String,
    pub(super) parts: Vec<CommandPart>,
    /// The parameters by name.
    pub parameters: BTreeMap<String, Parameter>,
    /// The user that the command runs as, if not the account that logs in.
    pub becomes: Option<String>,
    /// The command's working directory.
    pub cwd: Option<String>,
    /// The command's time limit.
    pub timeout: Option<Duration>,
    /// Who has to agree to a call, in addition to what the rule asks for.
    pub approval: ApprovalFrom,
    /// Whether a call may send something to the command's stdin.
    pub allows_stdin: bool,
    /// Whether a call may run the command on a terminal.
    pub allows_pty: bool,
    /// Names of variables that a call may set.
    pub env: Vec<String>,
    /// Whether its command only looks, so that the verb look may run it.
    pub read_only: bool,
    /// Line of the file where it begins, from 1.
    pub(super) line: usize,
}

/// A part of a template's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CommandPart {
    /// Text of the shell.
    Text(String),
    /// A place for the value of a parameter.
    Value(String),
}

/// Why the command of a template can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    /// A `{` without `}`.
    #[error("the command has a {{ without a }}; write {{{{ for the character itself")]
    Unclosed,
    /// A `}` without `{`.
    #[error("the command has a }} without a {{; write }}}} for the character itself")]
    Unopened,
    /// A place that does not contain a name.
    #[error("{{{0}}} in the command is not a name of letters, digits and _")]
    Name(String),
    /// A place inside quotes: a quoted value would end them.
    #[error("{{{0}}} stands in quotes; a value is quoted by itself, so remove them")]
    InQuotes(String),
    /// A place where the shell does not read a word.
    #[error("{{{0}}} follows {1}, where a shell does not read a plain word")]
    NotAWord(String, &'static str),
}

/// Why no command can be made from a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// A parameter has no value.
    #[error("the parameter {0} is missing")]
    Missing(String),
    /// The template has no such parameter.
    #[error("there is no parameter {0}")]
    Unknown(String),
    /// The parameter does not accept the value.
    #[error("the parameter {name} {source}")]
    Value {
        /// Name of the parameter.
        name: String,
        /// The cause.
        source: BadValue,
    },
}

impl Template {
    /// Whether a call may set a variable.
    pub fn allows_env(&self, name: &str) -> bool {
        self.env.iter().any(|allowed| allowed == name)
    }

    /// The values with which [`command_with`](Self::command_with) makes a command: accepted, in their
    /// plainest form, and with defaults.
    ///
    /// # Errors
    /// If a value is missing, unknown or not accepted.
    pub fn accept(
        &self,
        values: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, FillError> {
        if let Some(unknown) = values.keys().find(|name| !self.parameters.contains_key(*name)) {
            return Err(FillError::Unknown(unknown.clone()));
        }
        let mut accepted = BTreeMap::new();
        for (name, parameter) in &self.parameters {
            let value = values.get(name).or(parameter.default.as_ref());
            let value = value.ok_or_else(|| FillError::Missing(name.clone()))?;
            let value = parameter.accept(value).map_err(|source| FillError::Value {
                name: name.clone(),
                source,
            })?;
            accepted.insert(name.clone(), value);
        }
        Ok(accepted)
    }

    /// The command with accepted values, each quoted as one word of any login shell.
    pub fn command_with(&self, accepted: &BTreeMap<String, String>) -> String {
        let mut command = String::new();
        for part in &self.parts {
            match part {
                CommandPart::Text(text) => command.push_str(text),
                // A place has a parameter (checked at load), and `accept` a value for each.
                CommandPart::Value(name) => command.push_str(&quote_for_any_shell(&accepted[name])),
            }
        }
        command
    }

    /// Names of the places in the command.
    pub(super) fn places(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            CommandPart::Value(name) => Some(name.as_str()),
            CommandPart::Text(_) => None,
        })
    }
}

/// Reads the command of a template: `{name}` is a place, `{{` and `}}` are the characters.
pub(super) fn parse_command(command: &str) -> Result<Vec<CommandPart>, BadTemplate> {
    let mut parts = Vec::new();
    let mut text = String::new();
    // All text so far.
    let mut before = String::new();
    let mut quotes = Quotes::default();
    let mut rest = command.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '{' | '}' if rest.peek() == Some(&c) => {
                rest.next();
                quotes.note(c);
                text.push(c);
                before.push(c);
            }
            '{' => {
                let name = read_name(&mut rest)?;
                if let Some(context) = quotes.unclear_since {
                    return Err(BadTemplate::NotAWord(name, context));
                }
                if quotes.are_open() {
                    return Err(BadTemplate::InQuotes(name));
                }
                if let Some(context) = context_without_words(&before) {
                    return Err(BadTemplate::NotAWord(name, context));
                }
                // Any word, for the contexts of later places.
                quotes.note('x');
                before.push('x');
                parts.push(CommandPart::Text(std::mem::take(&mut text)));
                parts.push(CommandPart::Value(name));
            }
            '}' => return Err(BadTemplate::Unopened),
            c => {
                quotes.note(c);
                text.push(c);
                before.push(c);
            }
        }
    }
    parts.push(CommandPart::Text(text));
    parts.retain(|part| *part != CommandPart::Text(String::new()));
    Ok(parts)
}

/// The shell construct around a placeholder in which quoting fails: the shell would evaluate the value again, or keep
/// the quotes.
fn context_without_words(before: &str) -> Option<&'static str> {
    if before.ends_with('$') {
        Some("$")
    } else if before.contains("<<") {
        Some("<<")
    } else if is_open(before, "[[", "]]") {
        Some("[[")
    } else if is_open(before, "((", "))") {
        Some("((")
    } else {
        evaluated_by(before)
    }
}

/// Words that evaluate their arguments.
const EVALUATING: [&str; 8] = [
    "let", "eval", "trap", "read", "alias", "unset", "integer", "nameref",
];
/// Words that give a variable attributes. The index of its name is evaluated, and with `-i` or `-n` its values are.
const DECLARING: [&str; 5] = ["declare", "typeset", "local", "export", "readonly"];
/// Words that take the name of a variable with `-v`, and evaluate its index.
const NAMING: [&str; 3] = ["printf", "test", "["];
/// Programs that take a command with `-c`.
const SHELLS: [&str; 9] = [
    "sh", "bash", "dash", "ksh", "zsh", "fish", "csh", "tcsh", "su",
];
/// Words before which a command may stand and after which it still begins.
const BEFORE_A_COMMAND: [&str; 11] = [
    "if", "then", "else", "elif", "while", "until", "do", "!", "time", "command", "builtin",
];

/// The command before a placeholder that would evaluate the value again. Looks at words only: a command that is
/// made in another way is the business of who writes the template.
fn evaluated_by<'a>(before: &'a str) -> Option<&'static str> {
    let mut last = None;
    let mut declares = false;
    for command in before.split([';', '&', '|', '(', '{', '`', '\n']) {
        // A program may be named by its path.
        let is_assignment = |word: &str| word.contains('=');
        let without_directory = |word: &'a str| match word.rsplit_once('/') {
            Some((_, program)) if !is_assignment(word) => program,
            Some(_) | None => word,
        };
        let words: Vec<&str> = command.split_whitespace().map(without_directory).collect();
        let named = words
            .iter()
            .find(|word| !BEFORE_A_COMMAND.contains(word) && !is_assignment(word))
            .copied()
            .unwrap_or_default();
        let has_flag =
            |flag: char| words.iter().any(|word| word.starts_with('-') && word.contains(flag));
        declares |= DECLARING.contains(&named) && (has_flag('i') || has_flag('n'));
        let place = command.rsplit(char::is_whitespace).next().unwrap_or_default();
        last = if DECLARING.contains(&named) && !is_assignment(place) {
            Some("declare")
        } else if let Some(name) = EVALUATING.into_iter().find(|name| *name == named) {
            Some(name)
        } else if NAMING.contains(&named) && has_flag('v') {
            Some("-v")
        } else if words.iter().any(|word| SHELLS.contains(word)) && has_flag('c') {
            Some("-c")
        } else {
            None
        };
    }
    last.or(declares.then_some("declare -i"))
}

/// Whether `text` ends between `opened` and `closed`.
fn is_open(text: &str, opened: &str, closed: &str) -> bool {
    text.rsplit_once(opened).is_some_and(|(_, since)| !since.contains(closed))
}

fn read_name(rest: &mut impl Iterator<Item = char>) -> Result<String, BadTemplate> {
    let mut name = String::new();
    loop {
        match rest.next() {
            Some('}') => break,
            Some(c) => name.push(c),
            None => return Err(BadTemplate::Unclosed),
        }
    }
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(BadTemplate::Name(name));
    }
    Ok(name)
}

/// The quotes of a shell that are open at a place in a command.
#[derive(Clone, Copy, Debug, Default)]
struct Quotes {
    single: bool,
    double: bool,
    backtick: bool,
    is_escaped: bool,
    /// A construct since which quotes are not followed.
    unclear_since: Option<&'static str>,
    last: Option<char>,
}

impl Quotes {
    fn are_open(self) -> bool {
        self.single || self.double || self.backtick || self.is_escaped
    }

    fn note(&mut self, c: char) {
        let is_escaped = std::mem::take(&mut self.is_escaped);
        let last = self.last.replace(c);
        let begins_word = last.is_none_or(|c| c.is_whitespace() || ";&|()<>`".contains(c));
        match c {
            // A quote in a comment opens nothing.
            '#' if begins_word && !self.single && !self.double && !is_escaped => {
                self.unclear_since.get_or_insert("# (a comment)");
            }
            // A backslash escapes within these quotes.
            '\'' if last == Some('$') && !self.single && !self.double && !is_escaped => {
                self.unclear_since.get_or_insert("$'");
            }
            // What is in it has quotes of its own.
            '(' if last == Some('$') && self.double => {
                self.unclear_since.get_or_insert("$( in quotes");
            }
            '\\' if !self.single && !is_escaped => self.is_escaped = true,
            '\'' if !self.double && !is_escaped => self.single = !self.single,
            '"' if !self.single && !is_escaped => self.double = !self.double,
            '`' if !self.single && !is_escaped => self.backtick = !self.backtick,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_text_alternate_and_doubled_braces_are_characters() {
        let text = |text: &str| CommandPart::Text(text.to_owned());
        let value = |name: &str| CommandPart::Value(name.to_owned());
        assert_eq!(
            parse_command("tail -n {lines} {file} | awk '{{print $1}}'"),
            Ok(vec![
                text("tail -n "),
                value("lines"),
                text(" "),
                value("file"),
                text(" | awk '{print $1}'"),
            ])
        );
    }

    #[test]
    fn quotes_inside_of_other_quotes_or_escaped_open_nothing() {
        for command in [
            r#"echo '"' {unit}"#,
            r"echo '`' {unit}",
            r"echo '\' {unit}",
            r#"echo \" {unit}"#,
            r"echo \` {unit}",
            r"echo \\ {unit}",
        ] {
            assert!(parse_command(command).is_ok(), "{command}");
        }
    }

    #[test]
    fn a_command_whose_places_are_not_clear_is_refused() {
        for (command, error) in [
            ("restart {unit", BadTemplate::Unclosed),
            ("restart }", BadTemplate::Unopened),
            ("restart {a b}", BadTemplate::Name("a b".to_owned())),
            ("restart {}", BadTemplate::Name(String::new())),
            ("echo '{unit}'", BadTemplate::InQuotes("unit".to_owned())),
            (
                "echo \"a {unit}\"",
                BadTemplate::InQuotes("unit".to_owned()),
            ),
            ("echo `ls {unit}`", BadTemplate::InQuotes("unit".to_owned())),
            (r"echo \{unit}", BadTemplate::InQuotes("unit".to_owned())),
            (
                "echo ${unit}",
                BadTemplate::NotAWord("unit".to_owned(), "$"),
            ),
            (
                "cat <<END\n{unit}",
                BadTemplate::NotAWord("unit".to_owned(), "<<"),
            ),
            (
                "[[ {unit} -eq 0 ]]",
                BadTemplate::NotAWord("unit".to_owned(), "[["),
            ),
            (
                "echo $(( {unit} + 1 ))",
                BadTemplate::NotAWord("unit".to_owned(), "(("),
            ),
        ] {
            assert_eq!(parse_command(command), Err(error), "{command}");
        }
        for (command, context) in [
            ("# see `man x\necho `ls {unit}`", "# (a comment)"),
            ("# don't\necho '{unit}'", "# (a comment)"),
            ("echo x;# \"\necho \"{unit}\"", "# (a comment)"),
            (r"echo $'\'' {unit}", "$'"),
            (r#"echo "$(echo ")" {unit}"#, "$( in quotes"),
            ("let y={unit}", "let"),
            ("true && let {unit}", "let"),
            ("if eval {unit}; then true; fi", "eval"),
            ("declare -i y={unit}", "declare -i"),
            ("declare -i y; y={unit}", "declare -i"),
            ("typeset -gi y={unit}", "declare -i"),
            ("local -n y={unit}", "declare -i"),
            ("declare {unit}", "declare"),
            ("local a[{unit}]=1", "declare"),
            ("unset {unit}", "unset"),
            ("/bin/sh -c {unit}", "-c"),
            ("printf -v {unit} x", "-v"),
            ("[ -v {unit} ]", "-v"),
            ("read {unit}", "read"),
            ("sudo sh -c {unit}", "-c"),
            ("bash -ec 'echo $0' {unit}", "-c"),
        ] {
            let refused = BadTemplate::NotAWord("unit".to_owned(), context);
            assert_eq!(parse_command(command), Err(refused), "{command}");
        }
        for command in [
            "echo a#b $# {unit}",
            "echo '#' \"#\" \\# {unit}",
            "export Y={unit}; env",
            "declare y={unit}",
            "sed -i s/a/b/ {unit}",
            "grep -c x {unit}",
            "grep -v test {unit}",
            "test -e {unit}",
            "cat read {unit}",
            r#"echo "it's" {unit}"#,
            "[[ -e x ]] && echo {unit}",
            "echo $(id {unit})",
        ] {
            assert!(parse_command(command).is_ok(), "{command}");
        }
    }
}
