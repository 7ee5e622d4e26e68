//! The commands of README and documentation have a form that the command line accepts.

use std::path::Path;

use super::command_line;

/// The commands of a shell line that call sshjobs, as words.
///
/// Understands what the documentation uses: quotes, comments, `$(…)`, pipes, `;` and `&&`.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word = String::new();
    let mut is_word = false;
    let mut quote = None;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => word.push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                is_word = true;
            }
            (None, '#') if !is_word => break,
            (None, ' ' | '|' | '&' | ';' | '(' | ')' | '>') => {
                if is_word {
                    commands.last_mut().expect("never empty").push(std::mem::take(&mut word));
                    is_word = false;
                }
                if letter == '>' {
                    // The file that follows belongs to the shell.
                    letters.find(|letter| !matches!(letter, ' ' | '>'));
                    letters.find(|letter| *letter == ' ');
                } else if letter != ' ' {
                    commands.push(Vec::new());
                }
            }
            (None, _) => {
                word.push(letter);
                is_word = true;
            }
        }
    }
    if is_word {
        commands.last_mut().expect("never empty").push(word);
    }
    commands.retain_mut(|words| {
        let first = words.iter().find(|word| !word.contains('='));
        let call = match first.map(String::as_str) {
            Some("sshjobs") => words.iter().position(|word| word == "sshjobs"),
            // The user or the container may have this name, too.
            Some("sudo") => words.iter().rposition(|word| word == "sshjobs"),
            Some("docker") if words.get(1).is_some_and(|word| word == "exec") => {
                words.iter().rposition(|word| word == "sshjobs")
            }
            _ => None,
        };
        call.inspect(|call| drop(words.drain(..*call))).is_some()
    });
    commands
}

/// The shell lines of a page: those of its blocks that begin with a prompt.
fn shell_lines(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter_map(|line| line.strip_prefix("$ "))
}

#[test]
fn every_command_of_the_documentation_is_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md")];
    for entry in std::fs::read_dir(root.join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    let mut count = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for line in shell_lines(&text) {
            for words in commands(line) {
                // An ellipsis stands for what the reader fills in.
                if words.iter().any(|word| word.contains('…')) {
                    continue;
                }
                let parsed = command_line().try_get_matches_from(&words);
                let refused = parsed.err().filter(clap::Error::use_stderr);
                assert!(
                    refused.is_none(),
                    "{}: $ {line}\n{}",
                    page.display(),
                    refused.unwrap()
                );
                count += 1;
            }
        }
    }
    assert!(count > 60, "only {count} commands were found");
}

#[test]
fn a_shell_line_is_split_as_the_shell_splits_it() {
    let cases = [
        (
            "sshjobs run web1 -- 'a b' # comment",
            vec![vec!["sshjobs", "run", "web1", "--", "a b"]],
        ),
        (
            "id=$(sshjobs spawn web1 -- x)",
            vec![vec!["sshjobs", "spawn", "web1", "--", "x"]],
        ),
        (
            "sshjobs wait $id && echo passed",
            vec![vec!["sshjobs", "wait", "$id"]],
        ),
        (
            "sudo -u sshjobs sshjobs jobs > file",
            vec![vec!["sshjobs", "jobs"]],
        ),
        ("claude mcp add sshjobs x", vec![]),
        ("echo sshjobs-x", vec![]),
    ];
    for (line, expected) in cases {
        assert_eq!(commands(line), expected, "{line}");
    }
}
