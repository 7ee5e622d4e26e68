//! Options and operands of a program, as far as they only look.

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

/// The words of a call besides its options. `Err` has the first word that is not allowed.
pub(crate) fn operands_of<'a>(
    options: &Options,
    words: &'a [String],
) -> Result<Vec<&'a str>, &'a str> {
    let mut operands = Vec::new();
    let mut rest = words.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        if word == "--" {
            operands.extend(rest);
            break;
        }
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            let is_plain = value.is_none() && options.long.contains(&name);
            let has_value = options.long_with_value.contains(&name)
                && (value.is_some() || rest.next().is_some());
            if !is_plain && !has_value {
                return Err(word);
            }
            continue;
        }
        match word.strip_prefix('-') {
            Some(short) if !short.is_empty() => {
                if !take_short(options, short, &mut rest) {
                    return Err(word);
                }
            }
            Some(_) | None => operands.push(word),
        }
    }
    Ok(operands)
}

/// Whether a group of short options is allowed. Takes the value of the last one, if it needs one.
fn take_short<'a>(
    options: &Options,
    group: &str,
    rest: &mut impl Iterator<Item = &'a str>,
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
            return !letters.as_str().is_empty() || rest.next().is_some();
        }
        if !options.short.contains(letter) {
            return false;
        }
    }
    true
}
