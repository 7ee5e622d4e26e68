/// Whether an unfinished line looks like a prompt: it ends like the prompts of questions, shells
/// and pagers.
///
/// The shape alone proves nothing; the caller also waits for silence. A percentage does not count.
pub fn looks_like_prompt(line: &str) -> bool {
    let text = line.trim_end();
    let ends_like_a_prompt = match text.chars().last() {
        Some('?' | ':' | '>' | '$' | '#' | '»' | '❯' | '➜') => true,
        // Prompts of csh and zsh end with `%`, but so does progress.
        Some('%') => !text.trim_end_matches('%').ends_with(|c: char| c.is_ascii_digit()),
        Some(')' | ']') => offers_a_choice(text),
        _ => false,
    };
    let lower = text.to_lowercase();
    ends_like_a_prompt
        || ["--more--", "(end)"].iter().any(|pager| lower.ends_with(pager))
        || (lower.contains("press ")
            && ["key", "enter", "return"].iter().any(|key| lower.contains(key)))
}

/// Whether the last bracket has a choice or a default: `[Y/n]`, `(yes/no)`, `[y|n]`, `(default 5)`.
fn offers_a_choice(text: &str) -> bool {
    let open = if text.ends_with(')') { '(' } else { '[' };
    let Some((question, choice)) = text.rsplit_once(open) else { return false };
    let choice = choice.to_lowercase();
    let has_default = choice.contains("default");
    // With digits it is progress, such as `(3/7)`.
    let has_choice = (choice.contains('/') || choice.contains('|'))
        && !choice.contains(|c: char| c.is_ascii_digit());
    !question.trim().is_empty() && (has_default || has_choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_look_like_prompts() {
        for prompt in [
            "name? ",
            "Password: ",
            "root@host:~# ",
            "$ ",
            ">>> ",
            "host% ",
            "Continue? [Y/n] ",
            "Do you want to continue (yes/no) ",
            "Overwrite [y|n]",
            "Port (default 22)",
            "Press any key to continue . . .",
            "--More--",
            "(END)",
            "mysql> ",
        ] {
            assert!(looks_like_prompt(prompt), "{prompt:?}");
        }
    }

    #[test]
    fn progress_does_not() {
        for text in [
            "",
            " ",
            "45%",
            "downloading 12 of 30",
            "[=====>   ]",
            "(3/7)",
            "fetch [12/40]",
            "in the press",
            "enter the key",
            "...",
            "done",
        ] {
            assert!(!looks_like_prompt(text), "{text:?}");
        }
    }
}
