//! Keys of `top`: each changes the model, and some request an action from `top.rs`.

use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::model::{Action, Mode, Model};
use super::panel::PanelView;
use super::prompt::{Prompt, Purpose, asks_for_a_secret};

/// Columns by which output scrolls to the side.
const SHIFT: usize = 8;
/// Lines by which the wheel scrolls.
const WHEEL: i64 = 3;
/// Lines by which a page of the help scrolls.
const HELP_PAGE: u16 = 5;
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
            Mode::Signal { jobs } => self.choose_signal(jobs, key.code),
            Mode::Forget { jobs } => self.confirm_forget(jobs, key.code),
            Mode::Help { from } => {
                self.scroll_help(from, key.code);
                None
            }
            Mode::Panel(panel) => self.panel_key(panel, key.code),
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

    /// Handles the mouse: a click selects a job, the wheel scrolls the output.
    pub(super) fn mouse(&mut self, event: MouseEvent) {
        if !matches!(self.mode, Mode::Browse) {
            return;
        }
        match event.kind {
            MouseEventKind::Down(MouseButton::Left) => self.select_row(event.row),
            MouseEventKind::ScrollDown => self.output.scroll(WHEEL),
            MouseEventKind::ScrollUp => self.output.scroll(-WHEEL),
            MouseEventKind::Down(_)
            | MouseEventKind::Up(_)
            | MouseEventKind::Drag(_)
            | MouseEventKind::Moved
            | MouseEventKind::ScrollLeft
            | MouseEventKind::ScrollRight => {}
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other keys mean nothing"
    )]
    fn scroll_help(&mut self, from: u16, code: KeyCode) {
        let from = match code {
            KeyCode::Down | KeyCode::Char('j') => from.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => from.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => from.saturating_add(HELP_PAGE),
            KeyCode::PageUp | KeyCode::Char('b') => from.saturating_sub(HELP_PAGE),
            _ => return,
        };
        self.mode = Mode::Help { from };
    }

    fn confirm_forget(&mut self, jobs: Vec<String>, code: KeyCode) -> Option<Action> {
        if code != KeyCode::Char('y') {
            self.message = Some("nothing was deleted".to_owned());
            return None;
        }
        self.marked.clear();
        Some(Action::Forget { jobs })
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other keys mean nothing"
    )]
    fn browse(&mut self, code: KeyCode) -> Option<Action> {
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('?') => self.mode = Mode::Help { from: 0 },
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
            KeyCode::Char('n') => self.find_next(false),
            KeyCode::Char('N') => self.find_next(true),
            KeyCode::Char('f') => self.output.scroll_to_end(),
            KeyCode::Char('Q') => self.open_panel(PanelView::Queue),
            KeyCode::Char('A') => self.open_panel(PanelView::Approval(None)),
            KeyCode::Char('F') => {
                self.mode = Mode::Typing(Prompt {
                    text: self.filter.clone(),
                    ..Prompt::new(Purpose::Filter, None)
                })
            }
            KeyCode::Char('o') => {
                self.order = self.order.next();
                self.arrange();
                self.message = Some(format!("sorted by {}", self.order.name()));
            }
            KeyCode::Char('m') => self.toggle_mark(),
            KeyCode::Char('M') => self.marked.clear(),
            KeyCode::Char(key @ ('s' | 'd' | 'y' | 'l' | 't' | 'v' | 'i')) => {
                return self.on_job(key);
            }
            KeyCode::Char(key) => {
                self.message = Some(format!("{key} means nothing here; ? explains the keys"));
            }
            _ => self.message = Some("this key means nothing here; ? explains the keys".to_owned()),
        }
        None
    }

    /// Keys that need a job.
    fn on_job(&mut self, key: char) -> Option<Action> {
        let Some(job) = self.selected_job() else {
            self.message = Some("there is no job".to_owned());
            return None;
        };
        match key {
            // The jobs are those of this moment: the list may change before the next key.
            's' => {
                self.mode = Mode::Signal {
                    jobs: self.targets(),
                }
            }
            'd' => {
                self.mode = Mode::Forget {
                    jobs: self.targets(),
                }
            }
            'v' => self.output.toggle_screen(),
            'i' => self.open_panel(PanelView::Detail { job }),
            'y' => return Some(Action::Copy { job }),
            'l' => return Some(Action::Page { job }),
            _ => return Some(Action::Attach { job }),
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
        let Some(job) = self.output.job().map(str::to_owned) else { return };
        let is_hidden = purpose == Purpose::Answer
            && self.output.partial.iter().any(|question| asks_for_a_secret(question));
        self.mode = Mode::Typing(Prompt {
            is_hidden,
            ..Prompt::new(purpose, Some(job))
        });
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

    fn typed(&mut self, prompt: Prompt) -> Option<Action> {
        if prompt.purpose == Purpose::Filter {
            self.filter = prompt.text;
            self.arrange();
            return None;
        }
        let job = prompt.job?;
        match prompt.purpose {
            Purpose::Filter => None,
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

    fn choose_signal(&mut self, jobs: Vec<String>, code: KeyCode) -> Option<Action> {
        let KeyCode::Char(key) = code else { return None };
        let (_, signal) = SIGNALS.into_iter().find(|(name, _)| *name == key)?;
        self.marked.clear();
        (!jobs.is_empty()).then_some(Action::Signal { jobs, signal })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sshjobs_wire::{JobEntry, JobsReply};

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
                counts: None,
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
        assert!(model.targets() == ["a"] && matches!(model.mode, Mode::Browse));
        assert_eq!(
            press(&mut model, "sk"),
            Some(Action::Signal {
                jobs: vec!["a".to_owned()],
                signal: "KILL"
            })
        );
    }

    #[test]
    fn keys_for_a_job_do_not_reach_another_that_takes_its_place() {
        let mut model = model(&["a", "b"]);
        press(&mut model, "s");
        give(&mut model, &["b"]);
        let signal = Action::Signal {
            jobs: vec!["a".to_owned()],
            signal: "KILL",
        };
        assert_eq!(press(&mut model, "k"), Some(signal));

        let mut model = self::model(&["a", "b"]);
        press(&mut model, "asecret");
        give(&mut model, &["b"]);
        let answer = Action::Answer {
            job: "a".to_owned(),
            text: "secret".to_owned(),
        };
        assert_eq!(press(&mut model, "\n"), Some(answer));
    }

    #[test]
    fn an_action_is_for_the_marked_jobs() {
        let mut model = model(&["a", "b", "c"]);
        press(&mut model, "mjm");
        assert_eq!(model.marked.len(), 2);
        assert_eq!(press(&mut model, "dn"), None);
        assert_eq!(
            press(&mut model, "dy"),
            Some(Action::Forget {
                jobs: vec!["a".to_owned(), "c".to_owned()]
            })
        );
        assert!(model.marked.is_empty());
    }

    #[test]
    fn the_list_is_filtered_and_the_filter_is_removed() {
        let mut model = model(&["web-1", "db-2"]);
        press(&mut model, "FDB\n");
        assert_eq!(model.jobs.len(), 1);
        assert_eq!(model.output.job(), Some("db-2"));
        press(&mut model, "F\x7f\x7f\n");
        assert_eq!(model.jobs.len(), 2);
    }

    #[test]
    fn jobs_that_wait_for_input_come_first() {
        let mut model = model(&["a", "b"]);
        let mut reply = JobsReply {
            jobs: vec![entry("a", false), entry("b", false)],
            total: 2,
            counts: None,
            clamped: Vec::new(),
        };
        reply.jobs[1].awaiting_input = true;
        model.take(&model.list(), reply, 2);
        assert_eq!(model.jobs[0].job_id, "b");
        assert_eq!(model.output.job(), Some("a"), "the selection stays");
    }

    #[test]
    fn a_key_without_a_meaning_says_so() {
        let mut model = model(&["a"]);
        assert_eq!(press(&mut model, "x"), None);
        assert!(model.message.unwrap().starts_with("x means nothing"));
    }

    #[test]
    fn a_click_selects_the_job_in_that_row() {
        let mut model = model(&["a", "b", "c"]);
        model.list_rows = crate::top::model::ListRows {
            first: 2,
            count: 2,
            offset: 1,
        };
        let click = |row| MouseEvent {
            kind: MouseEventKind::Down(MouseButton::Left),
            column: 3,
            row,
            modifiers: KeyModifiers::NONE,
        };
        model.mouse(click(3));
        assert_eq!(model.output.job(), Some("c"));
        model.mouse(click(9));
        assert_eq!(model.output.job(), Some("c"), "nothing is there");
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
