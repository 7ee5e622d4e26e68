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
    commands.retain_mut(|words| match program_index(words) {
        Some(index) if words[index] == "sshjobs" => {
            words.drain(..index);
            true
        }
        _ => false,
    });
    commands
}

/// Index of the program that a command runs, behind assignments, sudo and its options, or docker exec.
fn program_index(words: &[String]) -> Option<usize> {
    let first = words.iter().position(|word| !word.contains('='))?;
    let second = words.get(first + 1).map(String::as_str);
    let index = match words[first].as_str() {
        "sudo" if second == Some("-u") => first + 3,
        "sudo" => first + 1,
        "docker" if second == Some("exec") => first + 3,
        _ => first,
    };
    (index < words.len()).then_some(index)
}

/// The shell lines of a page: those of its blocks that begin with a prompt.
fn shell_lines(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter_map(|line| line.strip_prefix("$ "))
}

#[test]
fn every_command_of_the_documentation_is_accepted() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
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
        ("sudo install -o sshjobs -m 600 x y", vec![]),
        ("claude mcp add sshjobs x", vec![]),
        ("echo sshjobs-x", vec![]),
    ];
    for (line, expected) in cases {
        assert_eq!(commands(line), expected, "{line}");
    }
}
