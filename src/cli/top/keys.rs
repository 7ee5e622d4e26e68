//! Keys of `top`: each changes the model, and some request an action from `top.rs`.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::{Action, Mode, Model};
use super::prompt::{Prompt, Purpose, asks_for_a_secret};

/// Columns by which output scrolls to the side.
const SHIFT: usize = 8;
/// Keys that select a signal.
pub(super) const SIGNALS: [(char, &str); 5] = [
    ('i', "INT"),
    ('t', "TERM"),
    ('k', "KILL"),
    ('h', "HUP"),
    ('u', "USR1"),
];

impl Model {
    /// Handles a key. Returns an action if the key needs more than the model.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.message = None;
        if key.modifiers.contains(KeyModifiers::ALT) {
            // Escape and the next key, which arrived together.
            let escaped = self.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
            return escaped
                .or_else(|| self.key(KeyEvent::new(key.code, key.modifiers - KeyModifiers::ALT)));
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return self.control_key(key.code);
        }
        // A key leaves its mode; a handler that stays in the mode sets it again.
        match std::mem::take(&mut self.mode) {
            Mode::Browse => self.browse(key.code),
            Mode::Typing(prompt) => self.type_on(prompt, key.code),
            Mode::Signal => self.choose_signal(key.code),
            Mode::Help => None,
        }
    }

    fn control_key(&mut self, code: KeyCode) -> Option<Action> {
        match (code, &mut self.mode) {
            (KeyCode::Char('c'), _) => return Some(Action::Quit),
            (KeyCode::Char('z'), _) => return Some(Action::Suspend),
            (KeyCode::Char('l'), _) => return Some(Action::Redraw),
            (KeyCode::Char('u'), Mode::Typing(prompt)) => prompt.text.clear(),
            (KeyCode::Char('w'), Mode::Typing(prompt)) => prompt.erase_word(),
            (KeyCode::Char('d' | 'f'), Mode::Browse) => self.output.scroll(self.output.page()),
            (KeyCode::Char('u' | 'b'), Mode::Browse) => self.output.scroll(-self.output.page()),
            _ => {}
        }
        None
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other keys mean nothing"
    )]
    fn browse(&mut self, code: KeyCode) -> Option<Action> {
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Enter => self.open(),
            KeyCode::Esc => self.close(),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.output.scroll(self.output.page()),
            KeyCode::PageUp | KeyCode::Char('b') => self.output.scroll(-self.output.page()),
            KeyCode::Home | KeyCode::Char('g') => self.output.scroll_to_start(),
            KeyCode::End | KeyCode::Char('G') => self.output.scroll_to_end(),
            KeyCode::Right => self.output.shift += SHIFT,
            KeyCode::Left => self.output.shift = self.output.shift.saturating_sub(SHIFT),
            KeyCode::Char('r') => self.toggle_running(),
            KeyCode::Char('/') => self.prompt(Purpose::Search),
            KeyCode::Char('a') => self.prompt(Purpose::Answer),
            KeyCode::Char('n') => self.find_next(true),
            KeyCode::Char('N') => self.find_next(false),
            KeyCode::Char('s') if self.output.job().is_some() => self.mode = Mode::Signal,
            _ => {}
        }
        None
    }

    /// Moves up or down: in the list, or in the output when that fills the screen.
    fn step(&mut self, by: isize) {
        if self.is_zoomed {
            self.output.scroll(by.try_into().unwrap_or(0));
        } else {
            self.move_by(by);
        }
    }

    fn find_next(&mut self, is_older: bool) {
        if self.output.found.is_empty() {
            self.message = Some("search first: press / and type a pattern".to_owned());
        } else if !self.output.scroll_to_found(is_older) {
            let side = if is_older { "older" } else { "newer" };
            self.message = Some(format!("there is no {side} match"));
        }
    }

    fn prompt(&mut self, purpose: Purpose) {
        if self.output.job().is_none() {
            return;
        }
        let is_hidden = purpose == Purpose::Answer
            && self.output.partial.iter().any(|question| asks_for_a_secret(question));
        self.mode = Mode::Typing(Prompt::new(purpose, is_hidden));
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other keys mean nothing"
    )]
    fn type_on(&mut self, mut prompt: Prompt, code: KeyCode) -> Option<Action> {
        match code {
            KeyCode::Esc => return None,
            KeyCode::Enter => return self.typed(prompt),
            // The guard itself erases the character; on an empty line Backspace leaves the prompt.
            KeyCode::Backspace if prompt.text.pop().is_none() => return None,
            KeyCode::Tab if prompt.purpose == Purpose::Answer => {
                prompt.is_hidden = !prompt.is_hidden
            }
            KeyCode::Char(c) => prompt.text.push(c),
            _ => {}
        }
        self.mode = Mode::Typing(prompt);
        None
    }

    fn typed(&self, prompt: Prompt) -> Option<Action> {
        let job = self.output.job()?.to_owned();
        match prompt.purpose {
            Purpose::Answer => Some(Action::Answer {
                job,
                text: prompt.text,
            }),
            Purpose::Search if prompt.text.is_empty() => None,
            Purpose::Search => Some(Action::Search {
                job,
                pattern: prompt.text,
            }),
        }
    }

    fn choose_signal(&mut self, code: KeyCode) -> Option<Action> {
        let KeyCode::Char(key) = code else { return None };
        let (_, signal) = SIGNALS.into_iter().find(|(name, _)| *name == key)?;
        Some(Action::Signal {
            job: self.output.job()?.to_owned(),
            signal,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{JobEntry, JobsReply};

    fn entry(id: &str, is_fleet: bool) -> JobEntry {
        let mut entry = serde_json::json!({
            "job_id": id, "host": "web1", "command": "true", "state": "running", "started_at": 0
        });
        if is_fleet {
            entry["members"] = serde_json::json!({"running": 2});
        }
        serde_json::from_value(entry).unwrap()
    }

    fn model(ids: &[&str]) -> Model {
        let mut model = Model::default();
        give(&mut model, ids);
        model.output.resize(10);
        model
    }

    fn give(model: &mut Model, ids: &[&str]) {
        let jobs = ids.iter().map(|id| entry(id, id.starts_with("fleet"))).collect();
        model.take(
            &model.list(),
            JobsReply {
                jobs,
                total: ids.len(),
                clamped: Vec::new(),
            },
            0,
        );
    }

    fn press(model: &mut Model, keys: &str) -> Option<Action> {
        let code = |key| match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\x7f' => KeyCode::Backspace,
            key => KeyCode::Char(key),
        };
        keys.chars()
            .map(|key| model.key(KeyEvent::new(code(key), KeyModifiers::NONE)))
            .last()
            .flatten()
    }

    #[test]
    fn the_selection_stays_with_its_job_when_others_begin_above_it() {
        let mut model = model(&["a", "b", "c"]);
        press(&mut model, "j");
        give(&mut model, &["new", "a", "b", "c"]);
        assert_eq!((model.selected(), model.output.job()), (2, Some("b")));
        give(&mut model, &["a"]);
        assert_eq!(
            model.output.job(),
            Some("a"),
            "a line that is evicted can't be selected"
        );
    }

    #[test]
    fn a_fleet_is_gone_into_and_out_of() {
        let mut model = model(&["fleet-1", "b"]);
        press(&mut model, "\n");
        assert_eq!(model.list().fleet.as_deref(), Some("fleet-1"));
        give(&mut model, &["fleet-1/web1", "fleet-1/web2"]);
        press(&mut model, "j\n");
        assert!(model.is_zoomed);
        assert_eq!(model.output.job(), Some("fleet-1/web2"));
        press(&mut model, "\x1b\x1b");
        assert!(!model.is_zoomed && model.list().fleet.is_none());
    }

    #[test]
    fn a_signal_takes_two_keys_and_any_other_key_takes_it_back() {
        let mut model = model(&["a"]);
        assert_eq!(press(&mut model, "sx"), None);
        assert_eq!(press(&mut model, "t"), None);
        assert_eq!(
            press(&mut model, "sk"),
            Some(Action::Signal {
                job: "a".to_owned(),
                signal: "KILL"
            })
        );
    }

    #[test]
    fn a_question_for_a_password_is_answered_unseen() {
        let mut model = model(&["a"]);
        model.output.partial = vec!["Password: ".to_owned()];
        press(&mut model, "axy");
        assert!(matches!(&model.mode, Mode::Typing(prompt) if prompt.shown() == "answer: **"));
        let answer = Action::Answer {
            job: "a".to_owned(),
            text: "xy".to_owned(),
        };
        assert_eq!(press(&mut model, "\n"), Some(answer));
    }

    #[test]
    fn keys_typed_into_a_line_do_nothing_else() {
        let mut model = model(&["a", "b"]);
        assert_eq!(
            press(&mut model, "/jq\x7f\n"),
            Some(Action::Search {
                job: "a".to_owned(),
                pattern: "j".to_owned()
            })
        );
        assert_eq!(press(&mut model, "/j\x1bj"), None);
        assert_eq!(model.output.job(), Some("b"));
    }

    #[test]
    fn without_jobs_no_key_does_anything_but_end_it() {
        let mut model = model(&[]);
        assert_eq!(press(&mut model, "jk\nas/nNgG\x1b"), None);
        assert_eq!(press(&mut model, "q"), Some(Action::Quit));
    }
}
