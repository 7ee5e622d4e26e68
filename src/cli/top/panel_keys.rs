//! Keys of `top` while a panel is open, and what it shows.

use ratatui::crossterm::event::KeyCode;

use super::model::{Action, Mode, Model};
use super::panel::{Panel, View};
use crate::cli::verbs::approval_in_words;
use crate::wire::{ApprovalEntry, Decision};

/// Lines by which a page of a panel scrolls.
const PAGE: u16 = 10;

impl Model {
    /// The view of the panel, if one is open.
    pub(super) fn view(&self) -> Option<&View> {
        match &self.mode {
            Mode::Panel(panel) => Some(&panel.view),
            Mode::Browse | Mode::Typing(_) | Mode::Signal | Mode::Forget | Mode::Help { .. } => {
                None
            }
        }
    }

    /// Opens a panel.
    pub(super) fn open_panel(&mut self, view: View) {
        self.panel_lines = Vec::new();
        self.mode = Mode::Panel(Panel::new(view));
        self.show_approval();
    }

    /// Applies the lines of a view, if it is still shown.
    pub(super) fn take_panel(&mut self, view: &View, lines: Vec<String>) {
        if self.view() == Some(view) {
            self.panel_lines = lines;
        }
    }

    /// Applies the approvals that wait.
    pub(super) fn take_approvals(&mut self, approvals: Vec<ApprovalEntry>) {
        self.approvals = approvals;
        self.show_approval();
    }

    /// The panel stays with its approval while that waits. A vote for one that has gone is dropped, so that it
    /// can't reach another one.
    fn show_approval(&mut self) {
        let Mode::Panel(panel) = &mut self.mode else { return };
        let View::Approval(shown) = &mut panel.view else { return };
        let waits = self.approvals.iter().any(|entry| Some(&entry.id) == shown.as_ref());
        if !waits {
            panel.vote = None;
            panel.from = 0;
            *shown = self.approvals.first().map(|entry| entry.id.clone());
        }
        let entry = self.approvals.iter().find(|entry| Some(&entry.id) == shown.as_ref());
        self.panel_lines = entry.map_or_else(
            || vec!["no call waits for an approval".to_owned()],
            approval_in_words,
        );
    }

    /// Handles a key while a panel is open.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other keys close the panel"
    )]
    pub(super) fn panel_key(&mut self, mut panel: Panel, code: KeyCode) -> Option<Action> {
        if let Some(decision) = panel.vote.take() {
            return self.confirm_vote(panel, decision, code);
        }
        let from = panel.from;
        panel.from = match code {
            KeyCode::Down | KeyCode::Char('j') => from.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => from.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => from.saturating_add(PAGE),
            KeyCode::PageUp | KeyCode::Char('b') => from.saturating_sub(PAGE),
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::Char(key) => return self.panel_letter(panel, key),
            _ => return None,
        };
        self.mode = Mode::Panel(panel);
        None
    }

    fn panel_letter(&mut self, mut panel: Panel, key: char) -> Option<Action> {
        let View::Approval(shown) = &panel.view else { return None };
        match key {
            'a' if shown.is_some() => panel.vote = Some(Decision::Approve),
            'x' if shown.is_some() => panel.vote = Some(Decision::Deny),
            'n' => panel = Panel::new(self.other_approval(shown.as_deref(), 1)),
            'N' => panel = Panel::new(self.other_approval(shown.as_deref(), -1)),
            _ => return None,
        }
        self.mode = Mode::Panel(panel);
        self.show_approval();
        None
    }

    /// The approval before or after one, in a circle.
    fn other_approval(&self, shown: Option<&str>, step: isize) -> View {
        let at = self.approvals.iter().position(|entry| Some(entry.id.as_str()) == shown);
        let count = isize::try_from(self.approvals.len()).unwrap_or(isize::MAX).max(1);
        let at = at.and_then(|at| isize::try_from(at).ok()).unwrap_or_default();
        let other = usize::try_from((at + step).rem_euclid(count)).unwrap_or_default();
        View::Approval(self.approvals.get(other).map(|entry| entry.id.clone()))
    }

    fn confirm_vote(&mut self, panel: Panel, decision: Decision, code: KeyCode) -> Option<Action> {
        let View::Approval(Some(id)) = panel.view.clone() else { return None };
        self.mode = Mode::Panel(panel);
        if code != KeyCode::Char('y') {
            self.message = Some("nothing was decided".to_owned());
            return None;
        }
        Some(Action::Vote { id, decision })
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::{KeyEvent, KeyModifiers};

    use super::*;
    use crate::cli::top::panel::queue_lines;

    fn approval(id: &str) -> ApprovalEntry {
        serde_json::from_value(serde_json::json!({
            "id": id, "state": "pending", "asker": "agent", "host": "web1", "rule": "deploys",
            "call": {"command": format!("deploy {id}")}, "sha256": "", "needed": 1, "asked_at": 0,
            "expires_at": 0, "votes": []
        }))
        .unwrap()
    }

    fn press(model: &mut Model, keys: &str) -> Option<Action> {
        keys.chars()
            .map(|key| model.key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE)))
            .last()
            .flatten()
    }

    fn shown(model: &Model) -> String {
        model.panel_lines.join("\n")
    }

    #[test]
    fn a_vote_is_for_the_call_that_is_shown_and_takes_two_keys() {
        let mut model = Model::default();
        model.take_approvals(vec![approval("one"), approval("two")]);
        press(&mut model, "An");
        assert!(shown(&model).contains("deploy two"), "{}", shown(&model));

        assert_eq!(press(&mut model, "ax"), None);
        assert_eq!(
            press(&mut model, "ay"),
            Some(Action::Vote {
                id: "two".to_owned(),
                decision: Decision::Approve
            })
        );
        assert_eq!(
            press(&mut model, "Nxy"),
            Some(Action::Vote {
                id: "one".to_owned(),
                decision: Decision::Deny
            })
        );
    }

    #[test]
    fn a_vote_for_a_call_that_was_decided_elsewhere_does_not_reach_the_next_call() {
        let mut model = Model::default();
        model.take_approvals(vec![approval("one"), approval("two")]);
        press(&mut model, "Aa");

        model.take_approvals(vec![approval("two")]);

        assert!(shown(&model).contains("deploy two"), "{}", shown(&model));
        assert_eq!(press(&mut model, "y"), None);
    }

    #[test]
    fn lines_of_another_view_are_dropped() {
        let mut model = Model::default();
        press(&mut model, "Q");
        let other = View::Detail {
            job: "web1-a".to_owned(),
        };
        model.take_panel(&other, vec!["process".to_owned()]);
        assert!(model.panel_lines.is_empty());
        model.take_panel(&View::Queue, queue_lines(&[]));
        assert_eq!(shown(&model), "no job is queued");
    }
}
