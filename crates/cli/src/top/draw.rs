//! Draws the model of `top`. Pure: the same model and size give the same screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Clear, Paragraph, Row, Table, TableState};

use ansi_to_tui::IntoText;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::keys::SIGNALS;
use super::list_columns::{GAP, JOB, LINES, STATE, columns_within};
use super::model::{JobOrder, ListRows, Mode, Model};
use super::output::VisibleOutput;
use super::panel::{DrawnPanel, Panel, PanelView};
use super::queue_panel;
use crate::terminal::padded;
use sshjobs_core::jobs::{coloured, printable};
use sshjobs_wire::{
    ApproverAnswer, JobEntry, JobKind, JobState, LineRecord, ScreenPart, StreamName,
};

/// Minimum height of the screen for showing list and output together.
const SHARED: u16 = 10;
const TAB: usize = 8;

/// The keys, and what they do, in lines that fit 40 columns.
const KEYS: [(&str, &str); 28] = [
    ("↑ ↓ j k", "select a job, or scroll"),
    ("Enter", "open a fleet, or the output"),
    ("Esc", "back"),
    ("PgUp PgDn", "scroll the output"),
    ("← →", "move it to the side"),
    ("g", "its start"),
    ("G", "its end, which is followed"),
    ("v", "the screen, or the lines"),
    ("/", "look for a pattern"),
    ("n N", "newer match, older match"),
    ("f", "follow the end"),
    ("l", "all output in the pager"),
    ("t", "sit in the job's terminal"),
    ("a", "answer: a line for its stdin"),
    ("", "(Tab hides what you type)"),
    ("m M", "mark it; unmark all"),
    ("s", "signal it or the marked"),
    ("d", "delete it or the marked"),
    ("y", "copy its id"),
    ("i", "processes, or why it ended"),
    ("Q", "queues: hold, release, move"),
    ("A", "approvals: agree, or refuse"),
    ("F", "only jobs with a word"),
    ("o", "another order"),
    ("r", "only jobs that run, or all"),
    ("^L ^Z", "redraw; suspend"),
    ("mouse", "select a job; scroll"),
    ("q ^C", "quit; jobs continue"),
];
/// Width of the keys in the help.
const KEY_WIDTH: usize = 10;

/// Draws the model, and sets its number of rows for output.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model, is_coloured: bool) {
    let paint = Paint { is_coloured };
    let area = frame.area();
    let list = match (model.is_zoomed, area.height) {
        (true, _) => 0,
        (false, ..SHARED) => area.height.saturating_sub(2),
        // The height that the list needs, within its share.
        (false, height) => u16::try_from(model.jobs.len() + 1)
            .unwrap_or(u16::MAX)
            .clamp(4, (height * 2 / 5).max(4)),
    };
    let [head, list, title, output, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(list),
        Constraint::Length(u16::from(model.is_zoomed || area.height >= SHARED)),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    // The height is known only here. `Top::draw` then requests the missing lines.
    model.output.resize(output.height);
    frame.render_widget(paint.head(model), head);
    paint.list(frame, list, model);
    frame.render_widget(paint.title(model), title);
    frame.render_widget(paint.output(model, output.height), output);
    frame.render_widget(foot_of(model), foot);
    match &mut model.mode {
        Mode::Help { from } => draw_help(frame, from, area),
        Mode::Panel(panel) => {
            let selected = (panel.view == PanelView::Queue).then(|| model.queues.selected());
            draw_panel(frame, panel, &model.panel_lines, selected, area);
        }
        Mode::Browse | Mode::Typing(_) | Mode::Signal { .. } | Mode::Forget { .. } => {}
    }
}

/// The screen without its first and its last row.
fn middle(area: Rect) -> Rect {
    Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(2),
        ..area
    }
}

/// Draws a panel over everything but the first and the last row. Lines are wrapped: nothing of a call that
/// is to be approved may be hidden at the side.
fn draw_panel(
    frame: &mut Frame<'_>,
    panel: &mut Panel,
    lines: &[String],
    selected: Option<usize>,
    area: Rect,
) {
    let over = middle(area);
    // One column stays free for a wide character that does not fit.
    let columns = usize::from(over.width.saturating_sub(1)).max(1);
    let mut rows: Vec<Line<'_>> =
        lines.iter().flat_map(|line| wrapped(line, columns)).map(Line::from).collect();
    if rows.is_empty() {
        rows.push(Line::from("…"));
    }
    if let Some(selected) = selected {
        // The rows of the selected line are shown.
        let rows_of = |count: usize| {
            let rows =
                lines.iter().take(count).map(|line| wrapped(line, columns).len()).sum::<usize>();
            u16::try_from(rows).unwrap_or(u16::MAX)
        };
        let (first, end) = (rows_of(selected), rows_of(selected + 1));
        panel.from = panel.from.max(end.saturating_sub(over.height)).min(first);
    }
    let count = u16::try_from(rows.len()).unwrap_or(u16::MAX);
    panel.from = panel.from.min(count.saturating_sub(over.height));
    let is_other = panel.drawn.view.as_ref() != Some(&panel.view);
    if is_other {
        panel.drawn = DrawnPanel {
            view: Some(panel.view.clone()),
            ..DrawnPanel::default()
        };
    }
    panel.drawn.rows_below = count.saturating_sub(panel.from).saturating_sub(over.height);
    panel.drawn.was_at_end |= panel.drawn.rows_below == 0 && over.height > 0;
    frame.render_widget(Clear, over);
    let text = Paragraph::new(rows);
    frame.render_widget(text.scroll((panel.from, 0)), over);
}

/// Explains the keys over everything but the first and the last row. Scrolls no further than to the
/// last key.
fn draw_help(frame: &mut Frame<'_>, from: &mut u16, area: Rect) {
    let over = middle(area);
    let rows = u16::try_from(KEYS.len()).unwrap_or(u16::MAX);
    *from = (*from).min(rows.saturating_sub(over.height));
    let lines =
        KEYS.map(|(keys, meaning)| Line::from(format!(" {}{meaning}", padded(keys, KEY_WIDTH))));
    frame.render_widget(Clear, over);
    frame.render_widget(Paragraph::new(lines.to_vec()).scroll((*from, 0)), over);
}

/// Styles: colours, or only weight and inversion.
#[derive(Clone, Copy)]
struct Paint {
    is_coloured: bool,
}

impl Paint {
    fn colour(self, colour: Color) -> Style {
        if self.is_coloured {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    fn head(self, model: &Model) -> Line<'static> {
        let waiting = model.waiting();
        let running = match waiting {
            0 => format!("{} running", model.running),
            waiting => {
                format!(
                    "{waiting} waiting, {} running",
                    model.running.saturating_sub(waiting)
                )
            }
        };
        let what = match &model.fleet {
            _ if !model.is_listed => "…".to_owned(),
            Some(fleet) => format!("{fleet}: {} members", model.total),
            None if !model.filter.is_empty() => {
                format!(
                    "{} of {} jobs with {:?}",
                    model.jobs.len(),
                    model.total,
                    model.filter
                )
            }
            None if model.only_running => format!("{} running", model.total),
            None if model.total == 1 => format!("1 job, {running}"),
            None => format!("{} jobs, {running}", model.total),
        };
        let order = match model.order {
            JobOrder::Attention => String::new(),
            order @ (JobOrder::Age
            | JobOrder::Host
            | JobOrder::State
            | JobOrder::Duration
            | JobOrder::Lines) => {
                format!(", by {}", order.name())
            }
        };
        let marks = match model.marked.len() {
            0 => String::new(),
            count => format!(", {count} marked"),
        };
        let approvals = match (model.approvals.len(), model.view()) {
            (_, Some(view)) => format!(", {}", view.title(&model.approvals)),
            (0, None) => String::new(),
            (1, None) => ", 1 approval waits: A".to_owned(),
            (count, None) => format!(", {count} approvals wait: A"),
        };
        let told = printable(&format!(" {what}{order}{marks}{approvals}"));
        Line::from(vec![" sshjobs top ".bold(), Span::raw(told)]).reversed()
    }

    fn list(self, frame: &mut Frame<'_>, area: Rect, model: &mut Model) {
        model.list_rows = ListRows::default();
        if area.height == 0 {
            return;
        }
        if model.jobs.is_empty() {
            let told = match (model.is_listed, model.only_running) {
                (false, _) => "…",
                (true, _) if !model.filter.is_empty() => "no job contains this word; F changes it",
                (true, true) => "no job runs; r shows all",
                (true, false) => "no jobs yet: sshjobs spawn HOST -- COMMAND",
            };
            frame.render_widget(Line::from(format!(" {told}")).dim(), area);
            return;
        }
        // A mark stands before the id of each marked job.
        let mark_width = u16::from(!model.marked.is_empty());
        let mut columns = columns_within(area.width.saturating_sub(mark_width), &model.jobs);
        if let Some((_, width)) = columns.iter_mut().find(|(column, _)| column.name == JOB) {
            *width += mark_width;
        }
        let rows = model.jobs.iter().map(|entry| {
            let style = self.of_standing(entry);
            let mark = if model.marked.contains(&entry.job_id) {
                "*"
            } else {
                ""
            };
            Row::new(columns.iter().map(move |(column, _)| match column.name {
                JOB => Cell::new(format!("{mark}{}", (column.text)(entry))),
                STATE => Cell::new((column.text)(entry)).style(style),
                LINES => Cell::new(Line::from((column.text)(entry)).right_aligned()),
                _ => Cell::new((column.text)(entry)),
            }))
        });
        let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
        let head = Row::new(columns.iter().map(|(column, _)| column.name)).style(Modifier::DIM);
        let table = Table::new(rows, widths)
            .header(head)
            .column_spacing(GAP)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::default().with_selected(Some(model.selected()));
        frame.render_stateful_widget(table, area, &mut state);
        model.list_rows = ListRows {
            // After the head of the table.
            first: area.y + 1,
            count: area.height.saturating_sub(1),
            offset: state.offset(),
        };
    }

    fn of_standing(self, entry: &JobEntry) -> Style {
        match entry.kind() {
            JobKind::Waiting => self.colour(Color::Yellow).add_modifier(Modifier::BOLD),
            JobKind::Running | JobKind::Queued => self.colour(Color::Green),
            JobKind::Failed => self.colour(Color::Red),
            JobKind::Succeeded | JobKind::NotStarted => Style::new(),
        }
    }

    fn title(self, model: &Model) -> Line<'static> {
        let output = &model.output;
        let Some(job) = output.job() else { return Line::default() };
        let mut parts = vec![Span::raw(format!("── {job}: ")).bold()];
        // Only the list has the reason for which a job is queued.
        let queued = model
            .jobs
            .iter()
            .find(|entry| entry.job_id == job && entry.standing.state == JobState::Queued);
        let standing = queued.map(|entry| &entry.standing).or(output.standing.as_ref());
        parts.extend(standing.map(|standing| Span::raw(printable(&standing.to_string()))));
        if output.shows_screen {
            let size = output.screen.as_ref().map(|screen| screen.size);
            let size =
                size.map_or_else(String::new, |size| format!(" {}×{}", size.cols, size.rows));
            parts.push(Span::raw(format!(", screen{size}, v shows lines")));
        } else if let (Some(first), Some(last)) = (output.lines.front(), output.lines.back()) {
            parts.push(Span::raw(format!(
                ", lines {}–{} of {}",
                first.line_no, last.line_no, output.total
            )));
        }
        if !output.is_at_end() {
            parts.push(Span::styled(", G follows", self.colour(Color::Yellow)));
        }
        if let Some(position) = output.match_position() {
            parts.push(Span::raw(format!(", {position}")));
        }
        if output.dropped > 0 {
            parts.push(Span::styled(
                format!(", {} lines were evicted", output.dropped),
                self.colour(Color::Yellow),
            ));
        }
        if output.awaits_input {
            parts.push(Span::styled(
                ", waits for input: a answers",
                self.colour(Color::Yellow),
            ));
        }
        if output.shift > 0 {
            parts.push(Span::raw(format!(", from column {}", output.shift + 1)));
        }
        Line::from(parts)
    }

    fn output(self, model: &Model, rows: u16) -> Text<'static> {
        let output = &model.output;
        if let Some(error) = &output.error {
            return Text::styled(printable(error), self.colour(Color::Red));
        }
        if output.shows_screen {
            return self.screen(output, rows);
        }
        let mut lines: Vec<Line<'static>> =
            output.lines.iter().map(|record| self.record(record, model)).collect();
        if output.is_at_end() {
            let partial = output
                .partial
                .iter()
                .map(|text| Line::from(self.coloured_spans(text, Style::new(), output.shift)));
            lines.extend(partial.map(|line| line.italic()));
        }
        // Unfinished lines push the oldest lines out.
        let surplus = lines.len().saturating_sub(rows.into());
        Text::from(lines.split_off(surplus))
    }

    fn record(self, record: &LineRecord, model: &Model) -> Line<'static> {
        let output = &model.output;
        let style = match record.stream {
            StreamName::Stderr => self.colour(Color::Red),
            StreamName::Stdout => Style::new(),
        };
        // A search returns its matches oldest first, so the numbers are sorted.
        let is_found = output.found.binary_search(&record.line_no).is_ok();
        let style = if is_found {
            style.add_modifier(Modifier::REVERSED)
        } else {
            style
        };
        let mut line = Line::default();
        if output.shift == 0
            && let Some(name) = &record.member
        {
            let label = format!("{} | ", printable(name));
            line.push_span(Span::styled(label, self.colour(Color::Cyan)));
        }
        line.spans.extend(self.coloured_spans(&record.text, style, output.shift));
        line
    }

    /// The bottom rows of a job's screen, which has what was printed last.
    fn screen(self, output: &VisibleOutput, rows: u16) -> Text<'static> {
        let Some(screen) = &output.screen else { return Text::raw("…") };
        let shown = screen.rows.iter().flatten();
        let mut lines: Vec<Line<'static>> = (1..)
            .zip(shown)
            .map(|(number, row)| {
                let reversed = screen.reversed.iter().filter(move |part| part.row == number);
                reversed_parts(row, reversed, output.shift)
            })
            .collect();
        let surplus = lines.len().saturating_sub(rows.into());
        Text::from(lines.split_off(surplus))
    }

    /// A line with the colours of the program, in which its other parts have `style`.
    fn coloured_spans(self, text: &str, style: Style, shift: usize) -> Vec<Span<'static>> {
        let shown = coloured(text.as_bytes());
        let line = shown.into_text().unwrap_or_default().lines.into_iter().next();
        let spans = line.unwrap_or_default().spans;
        let spans = spans.into_iter().map(|span| {
            let own = if self.is_coloured {
                span.style
            } else {
                Style::new()
            };
            Span::styled(span.content.into_owned(), style.patch(own))
        });
        shifted(spans, shift)
    }
}

/// A row of a screen whose reversed parts are shown as such.
fn reversed_parts<'a>(
    row: &str,
    parts: impl Iterator<Item = &'a ScreenPart>,
    shift: usize,
) -> Line<'static> {
    let mut spans = Vec::new();
    let mut rest = row;
    let mut column = 1;
    for part in parts {
        let before = usize::try_from(part.col).unwrap_or(usize::MAX).saturating_sub(column);
        let (plain, after) = split_at_column(rest, before);
        spans.push(Span::raw(printable(plain)));
        let (reversed, after) = split_at_column(after, part.text.width());
        spans.push(Span::raw(printable(reversed)).reversed());
        column += before + part.text.width();
        rest = after;
    }
    spans.push(Span::raw(printable(rest)));
    Line::from(shifted(spans.into_iter(), shift))
}

/// A line in pieces of at most this width, or one column more.
fn wrapped(line: &str, columns: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = line;
    loop {
        let (piece, after) = split_at_column(rest, columns);
        pieces.push(piece);
        if after.is_empty() {
            return pieces;
        }
        rest = after;
    }
}

/// A text up to some columns of a terminal, and the rest.
fn split_at_column(text: &str, columns: usize) -> (&str, &str) {
    let mut width = 0;
    let end = text
        .char_indices()
        .find(|(_, c)| {
            let is_past = width >= columns;
            width += c.width().unwrap_or(0);
            is_past
        })
        .map_or(text.len(), |(index, _)| index);
    text.split_at(end)
}

/// Text with its tabs expanded, from this column on.
fn shifted(spans: impl Iterator<Item = Span<'static>>, columns: usize) -> Vec<Span<'static>> {
    let mut width = 0;
    let mut shown = Vec::new();
    for span in spans {
        let mut text = String::new();
        for c in span.content.chars() {
            if c == '\t' {
                let cells = TAB - width % TAB;
                let shown = (width + cells).saturating_sub(columns).min(cells);
                text.push_str(&" ".repeat(shown));
                width += cells;
            } else {
                if width >= columns {
                    text.push(c);
                }
                width += c.width().unwrap_or(0);
            }
        }
        if !text.is_empty() {
            shown.push(Span::styled(text, span.style));
        }
    }
    shown
}

/// What an action is for.
fn in_words(jobs: &[String]) -> String {
    match jobs {
        [job] => job.clone(),
        jobs => format!("{} marked jobs", jobs.len()),
    }
}

fn foot_of_panel(panel: &Panel, message: Option<&str>) -> Line<'static> {
    let id = match &panel.view {
        PanelView::Approval(id) => id.as_deref().unwrap_or_default(),
        PanelView::Detail { .. } | PanelView::Queue => "",
    };
    let is_approval = !id.is_empty();
    let text = match (panel.vote, message) {
        (Some(ApproverAnswer::Approve), _) => format!("approve exactly {id}? y yes"),
        (Some(ApproverAnswer::Deny), _) => format!("refuse {id}? y yes"),
        (None, Some(message)) => printable(message),
        (None, None) if is_approval => {
            "a approve  x refuse  n N other  ↑ ↓ scroll  Esc back".to_owned()
        }
        (None, None) if panel.view == PanelView::Queue => queue_panel::KEYS.to_owned(),
        (None, None) => "↑ ↓ scroll, Esc back".to_owned(),
    };
    let more = match panel.drawn.rows_below {
        0 => String::new(),
        rows => format!("  ({rows} more below)"),
    };
    Line::from(format!("{text}{more}")).bold()
}

fn foot_of(model: &Model) -> Line<'static> {
    match (&model.mode, &model.message) {
        (Mode::Typing(prompt), _) => Line::from(format!("{}▏", prompt.shown())).bold(),
        (Mode::Signal { jobs }, _) => {
            let keys = SIGNALS.map(|(key, signal)| format!("{key} {signal}")).join("  ");
            Line::from(format!("signal {}: {keys}  Esc none", in_words(jobs))).bold()
        }
        (Mode::Forget { jobs }, _) => {
            Line::from(format!("delete {}, and all output? y yes", in_words(jobs))).bold()
        }
        (Mode::Panel(panel), message) => foot_of_panel(panel, message.as_deref()),
        (Mode::Help { .. }, _) => Line::from("↑ ↓ scroll, any other key returns").bold(),
        (Mode::Browse, Some(message)) => Line::from(printable(message)).bold(),
        (Mode::Browse, None) => Line::from(
            "? keys  Enter open  Esc back  / search  a answer  s signal  i inspect  q quit",
        )
        .dim(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_fits_forty_columns() {
        for (keys, meaning) in KEYS {
            assert!(keys.width() < KEY_WIDTH, "{keys}");
            assert!(1 + KEY_WIDTH + meaning.width() <= 40, "{meaning}");
        }
    }

    #[test]
    fn a_wrapped_line_loses_no_character() {
        assert_eq!(wrapped("", 3), [""]);
        assert_eq!(wrapped("abcdefg", 3), ["abc", "def", "g"]);
        assert_eq!(wrapped("a東京b", 2), ["a東", "京", "b"]);
    }

    #[test]
    fn reversed_parts_are_found_by_their_column_also_after_wide_characters() {
        let part = |col, text: &str| ScreenPart {
            row: 1,
            col,
            text: text.to_owned(),
        };
        let parts = [part(5, "ab"), part(9, "東")];
        let line = reversed_parts("東京ab c東d", parts.iter(), 0);
        let texts: Vec<(&str, bool)> = line
            .spans
            .iter()
            .map(|span| {
                let is_reversed = span.style.add_modifier.contains(Modifier::REVERSED);
                (span.content.as_ref(), is_reversed)
            })
            .collect();
        assert_eq!(
            texts,
            [
                ("東京", false),
                ("ab", true),
                (" c", false),
                ("東", true),
                ("d", false)
            ]
        );
    }

    #[test]
    fn tabs_are_expanded_and_columns_cut_across_colours() {
        let spans = vec![Span::raw("a\tb"), Span::raw("cd")];
        let text = |columns| {
            let shown = shifted(spans.clone().into_iter(), columns);
            shown.iter().map(|span| span.content.to_string()).collect::<String>()
        };
        assert_eq!(text(0), "a       bcd");
        assert_eq!(text(9), "cd");
    }
}
