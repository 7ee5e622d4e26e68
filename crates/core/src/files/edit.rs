//! Edits of a text: each replaces a part that occurs exactly once. Pure.

use std::fmt::Write;

use similar::{TextDiff, get_close_matches};

/// Replaces `old`, which must occur exactly once, by `new`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The text to replace.
    pub old: String,
    /// The text in its place.
    pub new: String,
}

/// Why an edit does not fit a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text to replace does not occur.
    #[error(
        "edit {number} does not fit: its text does not occur{}",
        nearby(nearest)
    )]
    NotFound {
        /// The edit, from 1.
        number: usize,
        /// The most similar lines, with their numbers.
        nearest: Vec<(usize, String)>,
    },
    /// The text to replace occurs several times.
    #[error("edit {number} does not fit: its text occurs {count} times")]
    NotUnique {
        /// The edit, from 1.
        number: usize,
        /// How often it occurs.
        count: usize,
    },
    /// The text to replace is empty.
    #[error("edit {number} has no text to replace")]
    Empty {
        /// The edit, from 1.
        number: usize,
    },
    /// The file is not UTF-8.
    #[error("it is not UTF-8 text")]
    NotText,
}

/// Lines that are shown for an edit that does not fit.
const NEAREST: usize = 3;
/// Characters shown of each.
const SHOWN: usize = 200;
/// Lines compared to find similar ones.
const COMPARED: usize = 5_000;
/// Lines of a difference at most.
const MOST_DIFF_LINES: usize = 40;

/// Applies edits one after the other.
///
/// # Errors
/// The first edit that does not fit. Nothing is applied then.
pub fn apply(text: &str, edits: &[Edit]) -> Result<String, EditError> {
    let mut text = text.to_owned();
    for (number, edit) in (1..).zip(edits) {
        if edit.old.is_empty() {
            return Err(EditError::Empty { number });
        }
        match text.matches(&edit.old).count() {
            1 => text = text.replacen(&edit.old, &edit.new, 1),
            0 => {
                return Err(EditError::NotFound {
                    number,
                    nearest: nearest(&text, &edit.old),
                });
            }
            count => return Err(EditError::NotUnique { number, count }),
        }
    }
    Ok(text)
}

/// The lines that are most similar to the first line with text of `wanted`.
fn nearest(text: &str, wanted: &str) -> Vec<(usize, String)> {
    let wanted = wanted.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).take(COMPARED).collect();
    get_close_matches(wanted, &lines, NEAREST, 0.5)
        .into_iter()
        .filter_map(|close| {
            let index = lines.iter().position(|line| *line == close)?;
            let line = text.lines().nth(index)?;
            Some((index + 1, line.chars().take(SHOWN).collect()))
        })
        .collect()
}

fn nearby(nearest: &[(usize, String)]) -> String {
    if nearest.is_empty() {
        return String::new();
    }
    let lines = nearest.iter().map(|(number, line)| format!("line {number}: {line:?}"));
    format!("; similar: {}", lines.collect::<Vec<_>>().join(", "))
}

/// The difference of two texts in the unified format, at most 40 lines, and a last line with the
/// number of those that were left out.
pub fn unified_diff(old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let whole = diff.unified_diff().context_radius(2).to_string();
    let mut shown = String::new();
    let count = whole.lines().count();
    for line in whole.lines().take(MOST_DIFF_LINES) {
        let line: String = line.chars().take(SHOWN).collect();
        writeln!(shown, "{line}").expect("a string takes all");
    }
    if count > MOST_DIFF_LINES {
        writeln!(shown, "[{} more lines]", count - MOST_DIFF_LINES).expect("a string takes all");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str) -> Edit {
        Edit {
            old: old.to_owned(),
            new: new.to_owned(),
        }
    }

    const CONFIG: &str = "listen 80;\nserver_name one;\nroot /srv/one;\n";

    #[test]
    fn edits_are_applied_in_order() {
        let edits = [edit("listen 80", "listen 8080"), edit("8080;", "8443 ssl;")];
        let edited = apply(CONFIG, &edits).unwrap();
        assert_eq!(edited, CONFIG.replace("listen 80;", "listen 8443 ssl;"));
    }

    #[test]
    fn an_edit_that_does_not_occur_names_similar_lines() {
        let error = apply(CONFIG, &[edit("server_name two;", "x")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "edit 1 does not fit: its text does not occur; \
             similar: line 2: \"server_name one;\""
        );
    }

    #[test]
    fn an_edit_that_occurs_twice_is_counted() {
        let error = apply(CONFIG, &[edit("listen", "listen"), edit("one", "two")]).unwrap_err();
        assert_eq!(
            error,
            EditError::NotUnique {
                number: 2,
                count: 2
            }
        );
        assert_eq!(
            apply(CONFIG, &[edit("", "x")]),
            Err(EditError::Empty { number: 1 })
        );
    }

    #[test]
    fn a_long_difference_is_cut_with_a_count() {
        let old: String = (0..100).map(|line| format!("{line}\n")).collect();
        let diff = unified_diff(&old, &old.replace('\n', "!\n"));
        assert_eq!(diff.lines().count(), MOST_DIFF_LINES + 1);
        assert!(diff.ends_with("[161 more lines]\n"), "{diff}");
        assert!(unified_diff("a\n", "b\n").contains("-a\n+b\n"));
    }
}
