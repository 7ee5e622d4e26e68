//! Allowed options and operands of a program.

/// The options of a program that are allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Short options without a value: each may be in a group, as in `-la`.
    pub(crate) short: &'static str,
    /// Short options with a value, which is the rest of the word or the next one.
    pub(crate) short_with_value: &'static str,
    /// Whole words with one dash: `-br` of ip.
    pub(crate) whole: &'static [&'static str],
    /// Long options without a value.
    pub(crate) long: &'static [&'static str],
    /// Long options with a value: `--lines=5` or `--lines 5`.
    pub(crate) long_with_value: &'static [&'static str],
    /// Whether `-20` is allowed: a number of lines.
    pub(crate) takes_number: bool,
}

/// Words that may follow the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operands {
    Nothing,
    /// Names of files and directories.
    Files,
    /// A pattern, unless an option gives one, and then files.
    PatternAndFiles,
    /// Names: of units, containers, revisions.
    Names,
    /// Words that begin with none of `-` and `/`.
    Words,
    /// A filter of sockets: its words, numbers, and addresses. A name would be asked of a network.
    SocketFilter,
    /// `FIELD=VALUE`.
    Fields,
    /// Letters of ps in the manner of BSD: `aux`.
    Letters(&'static str),
}

/// No options at all.
pub(crate) const NO_OPTIONS: Options = Options {
    short: "",
    short_with_value: "",
    whole: &[],
    long: &[],
    long_with_value: &[],
    takes_number: false,
};

/// The words of a call besides its options.
#[derive(Debug, Default)]
pub(crate) struct FoundOperands<'a> {
    pub(crate) words: Vec<&'a str>,
    /// Whether an option has given the pattern: `-e` or `--regexp`.
    pub(crate) has_pattern: bool,
    /// Whether an option asks for all below a directory: `-r`, `-R` or `--recursive`.
    pub(crate) is_recursive: bool,
}

/// The words of a call besides its options. `Err` has the first word that is not allowed.
///
/// A value in a word of its own does not begin with `-`. Otherwise, where a program takes the value of an
/// option only if it is attached, the word would be an option that nothing has checked.
pub(crate) fn operands_of<'a>(
    options: &Options,
    words: &'a [String],
) -> Result<FoundOperands<'a>, &'a str> {
    let mut found = FoundOperands::default();
    let mut rest = words.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        if word == "--" {
            found.words.extend(rest);
            break;
        }
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            let is_plain = value.is_none() && options.long.contains(&name);
            let has_value = options.long_with_value.contains(&name)
                && (value.is_some() || rest.next().is_some_and(is_value));
            if !is_plain && !has_value {
                return Err(word);
            }
            found.has_pattern |= name == "regexp";
            found.is_recursive |= name == "recursive";
            continue;
        }
        match word.strip_prefix('-') {
            Some(short) if !short.is_empty() => {
                if !take_short(options, short, &mut rest, &mut found) {
                    return Err(word);
                }
            }
            Some(_) | None => found.words.push(word),
        }
    }
    Ok(found)
}

/// Whether a word can be the value of the option before it.
fn is_value(word: &str) -> bool {
    !word.starts_with('-')
}

/// Whether a group of short options is allowed. Takes the value of the last one, if it needs one.
fn take_short<'a>(
    options: &Options,
    group: &str,
    rest: &mut impl Iterator<Item = &'a str>,
    found: &mut FoundOperands<'_>,
) -> bool {
    if options.whole.contains(&group) {
        return true;
    }
    if options.takes_number && group.bytes().all(|byte| byte.is_ascii_digit()) {
        return true;
    }
    let mut letters = group.chars();
    while let Some(letter) = letters.next() {
        if options.short_with_value.contains(letter) {
            found.has_pattern |= letter == 'e';
            return !letters.as_str().is_empty() || rest.next().is_some_and(is_value);
        }
        if !options.short.contains(letter) {
            return false;
        }
        found.is_recursive |= letter == 'r' || letter == 'R';
    }
    true
}
