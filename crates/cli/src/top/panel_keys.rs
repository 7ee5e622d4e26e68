//! Keys and content of the open panel of `top`.

use ratatui::crossterm::event::KeyCode;

use super::model::{Action, Mode, Model};
use super::panel::{Panel, PanelView};
use super::queue_panel::QueueRow;
use crate::verbs::approval_in_words;
use sshjobs_wire::{ApprovalEntry, ApproverAnswer};

/// Lines by which a page of a panel scrolls.
const PAGE: u16 = 10;

impl Model {
    /// The view of the panel, if one is open.
    pub(super) fn view(&self) -> Option<&PanelView> {
        match &self.mode {
            Mode::Panel(panel) => Some(&panel.view),
            Mode::Browse
            | Mode::Typing(_)
            | Mode::Signal { .. }
            | Mode::Forget { .. }
            | Mode::Help { .. } => None,
        }
    }

    /// Opens a panel.
    pub(super) fn open_panel(&mut self, view: PanelView) {
        self.panel_lines = Vec::new();
        self.mode = Mode::Panel(Panel::new(view));
        self.show_approval();
    }

    /// Applies the lines of a view, if it is still shown.
    pub(super) fn take_panel(&mut self, view: &PanelView, lines: Vec<String>) {
        if self.view() == Some(view) {
            self.panel_lines = lines;
        }
    }

    /// Applies the rows of the queues, if they are still shown.
    pub(super) fn take_queues(&mut self, rows: Vec<QueueRow>) {
        if self.view() == Some(&PanelView::Queue) {
            self.queues.take(rows);
            self.panel_lines = self.queues.lines();
        }
    }

    /// Applies the approvals that wait.
    pub(super) fn take_approvals(&mut self, approvals: Vec<ApprovalEntry>) {
        self.approvals = approvals;
        self.show_approval();
    }

    /// The panel stays with its approval, also when that was decided elsewhere: keys that were meant for one
    /// call must never reach another.
    fn show_approval(&mut self) {
        let Mode::Panel(panel) = &mut self.mode else { return };
        let PanelView::Approval(shown) = &mut panel.view else { return };
        if shown.is_none() {
            *shown = self.approvals.first().map(|entry| entry.id.clone());
        }
        let entry = self.approvals.iter().find(|entry| Some(&entry.id) == shown.as_ref());
        self.panel_lines = match (entry, &shown) {
            (Some(entry), _) => approval_in_words(entry),
            (None, Some(id)) => {
                panel.vote = None;
                vec![format!("{id} waits no more; n shows the next one")]
            }
            (None, None) => vec!["no call waits for an approval".to_owned()],
        };
    }

    /// Handles a key while a panel is open.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other keys mean nothing"
    )]
    pub(super) fn panel_key(&mut self, mut panel: Panel, code: KeyCode) -> Option<Action> {
        if let Some(decision) = panel.vote.take() {
            return self.confirm_vote(panel, decision, code);
        }
        if panel.view == PanelView::Queue
            && let KeyCode::Char(key @ ('h' | 'r' | 'u' | 'd' | 't' | 'b')) = code
        {
            self.mode = Mode::Panel(panel);
            return self.change_queue(key);
        }
        let from = panel.from;
        match code {
            KeyCode::Esc | KeyCode::Char('q') => return None,
            KeyCode::Down | KeyCode::Char('j') if panel.view == PanelView::Queue => {
                self.step_in_queues(1);
            }
            KeyCode::Up | KeyCode::Char('k') if panel.view == PanelView::Queue => {
                self.step_in_queues(-1);
            }
            KeyCode::Down | KeyCode::Char('j') => panel.from = from.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => panel.from = from.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => panel.from = from.saturating_add(PAGE),
            KeyCode::PageUp | KeyCode::Char('b') => panel.from = from.saturating_sub(PAGE),
            KeyCode::Home | KeyCode::Char('g') => panel.from = 0,
            // Drawing stops at the last row.
            KeyCode::End | KeyCode::Char('G') => panel.from = u16::MAX,
            KeyCode::Char('a') => self.ask_for_vote(&mut panel, ApproverAnswer::Approve),
            KeyCode::Char('x') => self.ask_for_vote(&mut panel, ApproverAnswer::Deny),
            KeyCode::Char('n') => self.show_other_approval(&mut panel, 1),
            KeyCode::Char('N') => self.show_other_approval(&mut panel, -1),
            _ => {
                self.message = Some("this key means nothing here; Esc goes back".to_owned());
            }
        }
        self.mode = Mode::Panel(panel);
        self.show_approval();
        None
    }

    /// The action of a key that changes a queue.
    fn change_queue(&mut self, key: char) -> Option<Action> {
        match self.queues.change(key) {
            Ok(request) => Some(Action::Queue(request)),
            Err(why) => {
                self.message = Some(why.to_owned());
                None
            }
        }
    }

    /// Selects another row of the queues. Drawing scrolls to it.
    fn step_in_queues(&mut self, by: isize) {
        self.queues.step(by);
        self.panel_lines = self.queues.lines();
    }

    /// Asks for the confirmation of a vote, once the person can have seen the whole call.
    fn ask_for_vote(&mut self, panel: &mut Panel, decision: ApproverAnswer) {
        let PanelView::Approval(Some(shown)) = &panel.view else { return };
        if !self.approvals.iter().any(|entry| entry.id == *shown) {
            return;
        }
        let is_drawn = panel.drawn.view.as_ref() == Some(&panel.view);
        if is_drawn && panel.drawn.was_at_end {
            panel.vote = Some(decision);
        } else {
            self.message = Some("read the whole call first: G goes to its end".to_owned());
        }
    }

    fn show_other_approval(&self, panel: &mut Panel, step: isize) {
        if let PanelView::Approval(shown) = &panel.view {
            *panel = Panel::new(self.other_approval(shown.as_deref(), step));
        }
    }

    /// The approval before or after one, in a circle.
    fn other_approval(&self, shown: Option<&str>, step: isize) -> PanelView {
        let at = self.approvals.iter().position(|entry| Some(entry.id.as_str()) == shown);
        let count = isize::try_from(self.approvals.len()).unwrap_or(isize::MAX).max(1);
        let at = at.and_then(|at| isize::try_from(at).ok()).unwrap_or_default();
        let other = usize::try_from((at + step).rem_euclid(count)).unwrap_or_default();
        PanelView::Approval(self.approvals.get(other).map(|entry| entry.id.clone()))
    }

    fn confirm_vote(
        &mut self,
        panel: Panel,
        decision: ApproverAnswer,
        code: KeyCode,
    ) -> Option<Action> {
        let PanelView::Approval(Some(id)) = panel.view.clone() else { return None };
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
    use crate::top::panel::DrawnPanel;

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

    /// Draws the panel so high that it has seen its last row.
    fn draw(model: &mut Model) {
        let Mode::Panel(panel) = &mut model.mode else { panic!("no panel is open") };
        panel.drawn = DrawnPanel {
            view: Some(panel.view.clone()),
            rows_below: 0,
            was_at_end: true,
        };
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

        draw(&mut model);
        assert_eq!(press(&mut model, "ax"), None);
        assert_eq!(
            press(&mut model, "ay"),
            Some(Action::Vote {
                id: "two".to_owned(),
                decision: ApproverAnswer::Approve
            })
        );
        press(&mut model, "N");
        draw(&mut model);
        assert_eq!(
            press(&mut model, "xy"),
            Some(Action::Vote {
                id: "one".to_owned(),
                decision: ApproverAnswer::Deny
            })
        );
    }

    #[test]
    fn a_call_that_was_not_shown_to_its_end_is_not_voted_on() {
        let mut model = Model::default();
        model.take_approvals(vec![approval("one")]);
        assert_eq!(press(&mut model, "Aay"), None);
        let Mode::Panel(panel) = &mut model.mode else { panic!("no panel is open") };
        panel.drawn = DrawnPanel {
            view: Some(panel.view.clone()),
            rows_below: 3,
            was_at_end: false,
        };
        assert_eq!(press(&mut model, "a"), None);
        assert!(model.message.as_ref().unwrap().contains("whole call"));
        assert_eq!(press(&mut model, "y"), None);
    }

    #[test]
    fn keys_for_a_call_that_was_decided_elsewhere_do_not_reach_another_call() {
        let mut model = Model::default();
        model.take_approvals(vec![approval("one"), approval("two")]);
        press(&mut model, "A");
        draw(&mut model);

        model.take_approvals(vec![approval("two")]);

        assert!(
            shown(&model).contains("one waits no more"),
            "{}",
            shown(&model)
        );
        assert_eq!(press(&mut model, "ay"), None);
        press(&mut model, "n");
        assert!(shown(&model).contains("deploy two"), "{}", shown(&model));
    }

    #[test]
    fn other_keys_stay_in_the_panel() {
        let mut model = Model::default();
        press(&mut model, "Qz?");
        assert!(model.view().is_some());
        press(&mut model, "q");
        assert!(model.view().is_none());
    }

    #[test]
    fn lines_of_another_view_are_dropped() {
        let mut model = Model::default();
        press(&mut model, "Q");
        let other = PanelView::Detail {
            job: "web1-a".to_owned(),
        };
        model.take_panel(&other, vec!["process".to_owned()]);
        assert!(model.panel_lines.is_empty());
        model.take_queues(Vec::new());
        assert_eq!(shown(&model), "no job is queued");
    }
}
