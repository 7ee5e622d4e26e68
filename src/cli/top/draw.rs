//! Draws the model of `top`. Pure: the same model and size give the same screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Clear, Paragraph, Row, Table, TableState};

use unicode_width::UnicodeWidthStr;

use super::keys::SIGNALS;
use super::model::{Mode, Model};
use crate::cli::verbs::age;
use crate::jobs::printable;
use crate::wire::{JobEntry, JobState, Members, Record, StreamName};

/// Minimum height of the screen for showing list and output together.
const SHARED: u16 = 10;
const TAB: usize = 8;

const KEYS: &str = "\
 ↑ ↓  j k      select a job; scroll when the output has the screen
 Enter         the members of a fleet; the output alone
 Esc           back
 PgUp PgDn     scroll the output          ← →    move it to the side
 g  G          its start; its end, which is followed
 /             look for a pattern         n  N   the next older, newer match
 a             answer: write a line to the job's stdin
               (Tab hides what you type)
 s             signal the job
 r             only jobs that run, or all
 ^L            redraw                     ^Z     suspend
 q  ^C         quit; jobs continue";

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
    if matches!(model.mode, Mode::Help) {
        let height = u16::try_from(KEYS.lines().count())
            .unwrap_or(u16::MAX)
            .min(output.height + title.height);
        let over = Rect {
            y: foot.y.saturating_sub(height),
            height,
            ..area
        };
        frame.render_widget(Clear, over);
        frame.render_widget(Paragraph::new(KEYS), over);
    }
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
        let what = match &model.fleet {
            _ if !model.is_listed => "…".to_owned(),
            Some(fleet) => format!("{fleet}: {} members", model.total),
            None if model.only_running => format!("{} running", model.total),
            None if model.total == 1 => format!("1 job, {} running", model.running),
            None => format!("{} jobs, {} running", model.total, model.running),
        };
        Line::from(vec![" sshjobs top ".bold(), Span::raw(format!(" {what}"))]).reversed()
    }

    fn list(self, frame: &mut Frame<'_>, area: Rect, model: &Model) {
        if area.height == 0 {
            return;
        }
        if model.jobs.is_empty() {
            let told = match (model.is_listed, model.only_running) {
                (false, _) => "…",
                (true, true) => "no job runs; r shows all",
                (true, false) => "no jobs yet: sshjobs spawn HOST -- COMMAND",
            };
            frame.render_widget(Line::from(format!(" {told}")).dim(), area);
            return;
        }
        let columns = columns_within(area.width, &model.jobs);
        let rows = model.jobs.iter().map(|entry| {
            let style = self.of_standing(entry);
            Row::new(columns.iter().map(move |(column, _)| match column.name {
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
    }

    fn of_standing(self, entry: &JobEntry) -> Style {
        match (entry.standing.state, entry.standing.exit_status) {
            (JobState::Running | JobState::Starting, _) => self.colour(Color::Green),
            (JobState::Exited, Some(0)) => Style::new(),
            _ => self.colour(Color::Red),
        }
    }

    fn title(self, model: &Model) -> Line<'static> {
        let output = &model.output;
        let Some(job) = output.job() else { return Line::default() };
        let mut parts = vec![Span::raw(format!("── {job}: ")).bold()];
        parts.extend(output.standing.iter().map(|standing| Span::raw(standing.to_string())));
        if let (Some(first), Some(last)) = (output.lines.front(), output.lines.back()) {
            parts.push(Span::raw(format!(
                ", lines {}–{} of {}",
                first.line_no, last.line_no, output.total
            )));
        }
        if !output.is_at_end() {
            parts.push(Span::styled(", G follows", self.colour(Color::Yellow)));
        }
        if output.dropped > 0 {
            parts.push(Span::styled(
                format!(", {} lines are gone", output.dropped),
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
        let mut lines: Vec<Line<'static>> =
            output.lines.iter().map(|record| self.record(record, model)).collect();
        if output.is_at_end() {
            let partial = output
                .partial
                .iter()
                .map(|text| Line::raw(shifted(&printable(text), output.shift)));
            lines.extend(partial.map(|line| line.italic()));
        }
        // Unfinished lines push the oldest lines out.
        let surplus = lines.len().saturating_sub(rows.into());
        Text::from(lines.split_off(surplus))
    }

    fn record(self, record: &Record, model: &Model) -> Line<'static> {
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
        let text = shifted(&printable(&record.text), output.shift);
        line.push_span(Span::styled(text, style));
        line
    }
}

/// A column of the list.
struct Column {
    name: &'static str,
    text: fn(&JobEntry) -> String,
    /// Maximum width.
    most: usize,
    /// Columns with less weight shrink first on a narrow terminal.
    weight: u8,
}

const STATE: &str = "STATE";
const LINES: &str = "LINES";
/// Minimum width of a shortened column. Below that it is omitted.
const LEAST: usize = 4;
/// Space between two columns.
const GAP: u16 = 2;

const COLUMNS: [Column; 6] = [
    Column {
        name: "JOB",
        text: |entry| entry.job_id.clone(),
        most: 30,
        weight: 5,
    },
    Column {
        name: "HOST",
        text: |entry| printable(&entry.host),
        most: 20,
        weight: 2,
    },
    Column {
        name: STATE,
        text: standing,
        most: 34,
        weight: 4,
    },
    Column {
        name: "AGE",
        text: |entry| age(entry.started_at),
        most: 4,
        weight: 0,
    },
    Column {
        name: LINES,
        text: |entry| entry.total_lines.to_string(),
        most: 9,
        weight: 1,
    },
    Column {
        name: "COMMAND",
        text: command,
        most: 200,
        weight: 3,
    },
];

fn width_of(column: &Column, jobs: &[JobEntry]) -> u16 {
    let widest = jobs.iter().map(|entry| (column.text)(entry).width()).max().unwrap_or(0);
    u16::try_from(widest.max(column.name.len()).min(column.most)).unwrap_or(u16::MAX)
}

/// The columns that fit, with their widths.
fn columns_within(width: u16, jobs: &[JobEntry]) -> Vec<(&'static Column, u16)> {
    let mut by_weight: Vec<(usize, &Column)> = COLUMNS.iter().enumerate().collect();
    by_weight.sort_by_key(|(_, column)| std::cmp::Reverse(column.weight));
    let mut left = width;
    let mut chosen = Vec::new();
    for (index, column) in by_weight {
        // The last one may be shortened.
        let wanted = width_of(column, jobs).min(left);
        // One column is always shown, however narrow the terminal is.
        let is_useful = usize::from(wanted) >= column.name.len().min(LEAST) || chosen.is_empty();
        if is_useful {
            chosen.push((index, wanted));
            left = left.saturating_sub(wanted + GAP);
        }
    }
    // Back into the order of `COLUMNS`.
    chosen.sort_unstable();
    chosen
        .into_iter()
        .filter_map(|(index, width)| Some((COLUMNS.get(index)?, width)))
        .collect()
}

fn command(entry: &JobEntry) -> String {
    let label = entry.label.as_ref().map(|label| format!("[{label}] ")).unwrap_or_default();
    printable(&format!("{label}{}", entry.command)).replace('\n', " ")
}

fn standing(entry: &JobEntry) -> String {
    let Some(members) = &entry.members else { return entry.standing.to_string() };
    let Members {
        ok,
        failed,
        unreachable,
        running,
        not_started,
    } = *members;
    let kinds = [
        (ok, "ok"),
        (failed, "failed"),
        (unreachable, "unreachable"),
        (running, "running"),
        (not_started, "to come"),
    ];
    let told = kinds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{count} {kind}"));
    told.collect::<Vec<_>>().join(", ")
}

/// Text with its tabs expanded, from this column on.
fn shifted(text: &str, columns: usize) -> String {
    let mut expanded = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\t' {
            let width = expanded.chars().count();
            expanded.push_str(&" ".repeat(TAB - width % TAB));
        } else {
            expanded.push(c);
        }
    }
    if columns == 0 {
        expanded
    } else {
        expanded.chars().skip(columns).collect()
    }
}

fn foot_of(model: &Model) -> Line<'static> {
    match (&model.mode, &model.message) {
        (Mode::Typing(prompt), _) => Line::from(format!("{}▏", prompt.shown())).bold(),
        (Mode::Signal, _) => {
            let keys = SIGNALS.map(|(key, signal)| format!("{key} {signal}")).join("  ");
            Line::from(format!(
                "signal {}: {keys}  Esc none",
                model.output.job().unwrap_or_default()
            ))
            .bold()
        }
        (Mode::Browse | Mode::Help, Some(message)) => Line::from(printable(message)).bold(),
        (Mode::Browse | Mode::Help, None) => Line::from(
            "? keys  Enter open  Esc back  / search  a answer  s signal  r running  q quit",
        )
        .dim(),
    }
}
