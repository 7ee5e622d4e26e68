//! Runs `top`: one task that waits for keys, lists, output and actions, and redraws after each.

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write, stdin, stdout};
use std::mem::ManuallyDrop;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::StreamExt;
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{
    self, DisableMouseCapture, EnableMouseCapture, Event, EventStream,
};
use ratatui::crossterm::execute;
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::{Notify, mpsc};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::draw::draw;
use super::model::{Action, ListRequest, Model};
use super::output::{Arrived, Wish};
use super::panel::PanelView;
use super::queue_panel::{QueueRow, queue_rows};
use crate::terminal::{Signals, colours_are_wanted};
use crate::verbs::{attach_to, detail_in_words, page_log};
use crate::{ProgramExit, report};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{
    ApprovalsRequest, ApproverAnswer, Code, DetailArg, Error, ForgetRequest, Format, JobState,
    JobsReply, JobsRequest, KeepArg, QueueAction, QueueRequest, ReadReply, ReadRequest, RenderArg,
    SearchRequest, SignalRequest, StreamArg, TailReply, TailRequest, UnitArg, VoteRequest,
};

/// Interval at which jobs are listed.
const LIST: Duration = Duration::from_secs(1);
/// Minimum time between two requests for output, and between two screens.
const REST: Duration = Duration::from_millis(100);
const FRAME: Duration = Duration::from_millis(40);
/// Length of one wait for output, before the next.
const WAIT_MS: i64 = 10_000;
/// Pause after an error.
const RETRY: Duration = Duration::from_secs(2);
/// Time limit for a job to read an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum queued jobs shown.
const QUEUED: i64 = 500;
/// Number of matches for n and N: the newest ones.
const MATCHES: i64 = 1000;
/// Maximum time for queued actions to end when the screen is left.
const FINISH: Duration = Duration::from_secs(15);
/// Maximum actions that wait for the previous one.
const ACTIONS: usize = 16;

/// Shows jobs and their output on a full screen until the user quits.
pub async fn top(api: &Api) -> ProgramExit {
    let exit = match attempt(api).await {
        Ok(exit) => exit,
        Err(error) => {
            report(&error);
            ProgramExit::of_error(&error)
        }
    };
    api.shutdown().await;
    exit
}

async fn attempt(api: &Api) -> Result<ProgramExit, Error> {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(Error::invalid(
            "top needs a terminal",
            "`sshjobs jobs` and `sshjobs tail -f` need none",
        ));
    }
    let mut signals = Signals::catch()?;
    // List before switching the screen, so that an error is reported as by any other verb.
    let model = Model::default();
    let list = model.list();
    let listed = listed(api, &list).await?;
    let top = Top {
        api,
        model: RefCell::new(model),
        changed: Notify::new(),
        relist: Notify::new(),
        panel_changed: Notify::new(),
        other_panel: Notify::new(),
        dirty: Notify::new(),
        pending: Cell::new(0),
    };
    top.model.borrow_mut().take(&list, listed.0, listed.1);
    loop {
        let leave = top.session(&mut signals).await?;
        match leave {
            Leave::Program(exit) => return Ok(exit),
            Leave::ForPager(job) => top.page(&job).await,
            Leave::ForAttach(job) => top.attach(&job, &mut signals).await,
        }
    }
}

/// Why the full screen is left.
enum Leave {
    /// The program ends.
    Program(ProgramExit),
    /// A job's output is shown in the pager. The screen returns afterwards.
    ForPager(String),
    /// The person sits in a job's terminal. The screen returns afterwards.
    ForAttach(String),
}

fn trouble(error: &std::io::Error) -> Error {
    Error::new(
        Code::Io,
        format!("the terminal can't be used: {error}"),
        "`sshjobs jobs` and `sshjobs tail -f` need none",
    )
}

/// The terminal in full-screen mode, with the mouse. Dropping this restores it.
///
/// Ratatui's own value is never dropped: it prints an error if the terminal is gone, which panics where stderr is gone, too.
struct TopScreen(ManuallyDrop<RefCell<DefaultTerminal>>);

impl Drop for TopScreen {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> Result<DefaultTerminal, Error> {
    let terminal = ratatui::try_init().map_err(|error| trouble(&error))?;
    // A terminal without a mouse ignores it.
    execute!(stdout(), EnableMouseCapture).ok();
    Ok(terminal)
}

fn leave() {
    // Errors are dropped: the terminal may be gone.
    execute!(stdout(), DisableMouseCapture, Show).ok();
    ratatui::try_restore().ok();
}

impl TopScreen {
    fn new() -> Result<Self, Error> {
        Ok(Self(ManuallyDrop::new(RefCell::new(enter()?))))
    }

    fn draw(&self, model: &RefCell<Model>, is_coloured: bool) -> Result<(), Error> {
        let mut terminal = self.0.borrow_mut();
        let drawn = terminal.draw(|frame| draw(frame, &mut model.borrow_mut(), is_coloured));
        drawn.map(drop).map_err(|error| trouble(&error))
    }

    fn redraw(&self) -> Result<(), Error> {
        self.0.borrow_mut().clear().map_err(|error| trouble(&error))
    }

    /// Restores the terminal and stops the program, as Ctrl-Z does for other programs. Returns when
    /// the shell resumes it.
    fn suspend(&self) -> Result<(), Error> {
        leave();
        // Stops this process here, until the shell sends CONT.
        if let Err(error) = kill_process(getpid(), Signal::TSTP) {
            tracing::debug!(%error, "it could not be suspended");
        }
        *self.0.borrow_mut() = enter()?;
        self.redraw()
    }
}

/// Everything that runs concurrently in one task: keys, lists, output, actions, and the screen.
struct Top<'a> {
    api: &'a Api,
    model: RefCell<Model>,
    /// Other output of a job may be needed.
    changed: Notify,
    /// Another list may be needed.
    relist: Notify,
    /// The content of the open panel has changed by an action.
    panel_changed: Notify,
    /// Another panel may be open.
    other_panel: Notify,
    /// The screen must be redrawn.
    dirty: Notify,
    /// Number of actions that are queued or run.
    pending: Cell<usize>,
}

impl Top<'_> {
    /// The full screen, until it is left.
    async fn session(&self, signals: &mut Signals) -> Result<Leave, Error> {
        let (actions, to_do) = mpsc::channel(ACTIONS);
        // The `EventStream` of the last session has left a wake-up, and would take a key that comes
        // together with it only with the next key.
        event::poll(Duration::ZERO).map_err(|error| trouble(&error))?;
        let screen = TopScreen::new()?;
        // All in one task: no borrow of the model is held across an await.
        let ended = tokio::select! {
            ended = self.keys(&screen, &actions) => ended,
            ended = self.draw(&screen) => ended.map(Leave::Program),
            () = self.list() => Ok(Leave::Program(ProgramExit::SUCCESS)),
            () = self.follow() => Ok(Leave::Program(ProgramExit::SUCCESS)),
            () = self.fill_panel() => Ok(Leave::Program(ProgramExit::SUCCESS)),
            () = self.act(to_do) => Ok(Leave::Program(ProgramExit::SUCCESS)),
            number = signals.next() => Ok(Leave::Program(ProgramExit::signaled(number))),
        };
        // Before the caller reports an error, which the full screen would hide.
        drop(screen);
        ended
    }

    async fn page(&self, job: &str) {
        if let Err(error) = page_log(self.api, job).await {
            self.tell(&error.message);
        }
    }

    async fn attach(&self, job: &str, signals: &mut Signals) {
        match attach_to(self.api, job, false, signals).await {
            Ok(_) => self.tell("back from the job's terminal"),
            Err(error) => self.tell(&error.message),
        }
    }

    async fn keys(
        &self,
        screen: &TopScreen,
        actions: &mpsc::Sender<Action>,
    ) -> Result<Leave, Error> {
        let mut events = EventStream::new();
        while let Some(event) = events.next().await {
            let action = match event.map_err(|error| trouble(&error))? {
                Event::Key(key) => self.model.borrow_mut().key(key),
                Event::Mouse(event) => {
                    self.model.borrow_mut().mouse(event);
                    None
                }
                Event::Resize(..) | Event::FocusGained | Event::FocusLost | Event::Paste(_) => None,
            };
            match action {
                None => {}
                Some(Action::Quit) => {
                    self.finish_actions().await;
                    return Ok(Leave::Program(ProgramExit::SUCCESS));
                }
                Some(Action::Suspend) => screen.suspend()?,
                Some(Action::Redraw) => screen.redraw()?,
                Some(Action::Copy { job }) => self.copy(&job),
                Some(Action::Page { job }) => {
                    self.finish_actions().await;
                    return Ok(Leave::ForPager(job));
                }
                Some(Action::Attach { job }) => {
                    self.finish_actions().await;
                    return Ok(Leave::ForAttach(job));
                }
                Some(action) => self.queue(action, actions),
            }
            self.show();
        }
        // The terminal has closed.
        Ok(Leave::Program(ProgramExit::signaled(Signals::HANG_UP)))
    }

    /// Queues an action, so that keys are still read while it runs.
    fn queue(&self, action: Action, actions: &mpsc::Sender<Action>) {
        if actions.try_send(action).is_err() {
            self.tell("still busy with the previous request");
        } else {
            self.pending.set(self.pending.get() + 1);
        }
    }

    /// Waits for the queued actions, which leaving the screen would cancel: a list of jobs may be
    /// half deleted.
    async fn finish_actions(&self) {
        if self.pending.get() > 0 {
            self.tell("finishing the last request …");
        }
        let finishing = async {
            while self.pending.get() > 0 {
                sleep(FRAME).await;
            }
        };
        drop(timeout(FINISH, finishing).await);
    }

    /// Copies a job's id to the clipboard of the terminal, if that allows it (OSC 52 of xterm).
    fn copy(&self, job: &str) {
        let encoded = BASE64_STANDARD.encode(job);
        let written = write!(stdout(), "\x1b]52;c;{encoded}\x07").and_then(|()| stdout().flush());
        self.tell(&match written {
            Ok(()) => format!("{job} was copied, if the terminal allows it"),
            Err(error) => error.to_string(),
        });
    }

    fn show(&self) {
        self.changed.notify_one();
        self.relist.notify_one();
        self.other_panel.notify_one();
        self.dirty.notify_one();
    }

    fn tell(&self, message: &str) {
        self.model.borrow_mut().message = Some(message.to_owned());
        self.dirty.notify_one();
    }

    async fn draw(&self, screen: &TopScreen) -> Result<ProgramExit, Error> {
        let is_coloured = colours_are_wanted(&stdout());
        loop {
            let wish = self.model.borrow().output.wish_number();
            screen.draw(&self.model, is_coloured)?;
            // Drawing has set another number of rows, so other lines are needed.
            if self.model.borrow().output.wish_number() != wish {
                self.changed.notify_one();
            }
            // First, so that all changes in this time share one screen.
            sleep(FRAME).await;
            self.dirty.notified().await;
        }
    }

    async fn list(&self) {
        let mut ticks = interval(LIST);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let list = self.model.borrow().list();
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.other_list(&list) => {}
            }
            // Again, because the wait ends when another list is needed.
            let list = self.model.borrow().list();
            match listed(self.api, &list).await {
                Ok((reply, running)) => self.model.borrow_mut().take(&list, reply, running),
                Err(error) => self.tell(&error.message),
            }
            // Not every caller may see approvals, and without a policy there are none.
            let approvals = self.api.approvals(ApprovalsRequest::default()).await;
            // None after an error: an old list may have calls that were decided or changed since.
            let approvals = approvals.map(|reply| reply.approvals).unwrap_or_default();
            self.model.borrow_mut().take_approvals(approvals);
            self.changed.notify_one();
            self.dirty.notify_one();
        }
    }

    /// Fetches the content of the open panel, once a second.
    async fn fill_panel(&self) {
        loop {
            let view = self.model.borrow().view().cloned();
            let Some(view) = view else {
                self.other_panel.notified().await;
                continue;
            };
            tokio::select! {
                content = panel_content(self.api, &view) => {
                    let is_final = matches!(content, PanelContent::Final(_));
                    match content {
                        PanelContent::Queues(rows) => self.model.borrow_mut().take_queues(rows),
                        PanelContent::Lines(lines) | PanelContent::Final(lines) => {
                            self.model.borrow_mut().take_panel(&view, lines);
                        }
                    }
                    self.dirty.notify_one();
                    if is_final {
                        self.panel_other_than(&view).await;
                    }
                }
                () = self.panel_other_than(&view) => {}
            }
            tokio::select! {
                () = sleep(LIST) => {}
                () = self.panel_changed.notified() => {}
                () = self.panel_other_than(&view) => {}
            }
        }
    }

    async fn panel_other_than(&self, view: &PanelView) {
        while self.model.borrow().view() == Some(view) {
            self.other_panel.notified().await;
        }
    }

    async fn other_list(&self, list: &ListRequest) {
        while self.model.borrow().list().number == list.number {
            self.relist.notified().await;
        }
    }

    async fn follow(&self) {
        loop {
            let wish = self.model.borrow().output.wish();
            let Some(wish) = wish else {
                self.changed.notified().await;
                continue;
            };
            let reply = tokio::select! {
                reply = fetched(self.api, &wish) => reply,
                // A read changes nothing, so an outdated one can be dropped.
                () = self.other_wish(&wish) => continue,
            };
            let pause = if reply.is_err() { RETRY } else { REST };
            self.model.borrow_mut().output.take(&wish, reply);
            self.dirty.notify_one();
            tokio::select! {
                () = sleep(pause) => {}
                () = self.other_wish(&wish) => {}
            }
        }
    }

    async fn other_wish(&self, wish: &Wish) {
        while self.model.borrow().output.wish_number() == wish.number {
            self.changed.notified().await;
        }
    }

    async fn act(&self, mut to_do: mpsc::Receiver<Action>) {
        while let Some(action) = to_do.recv().await {
            let done = match action {
                Action::Answer { job, text } => self.answer(&job, text).await,
                Action::Signal { jobs, signal } => self.signal_all(&jobs, signal).await,
                Action::Forget { jobs } => self.forget_all(&jobs).await,
                Action::Vote { id, decision } => self.vote(&id, decision).await,
                Action::Queue(request) => self.change_queue(request).await,
                Action::Search { job, pattern } => self.search(&job, pattern).await,
                Action::Quit
                | Action::Suspend
                | Action::Redraw
                | Action::Copy { .. }
                | Action::Page { .. }
                | Action::Attach { .. } => Ok(String::new()),
            };
            match done {
                Ok(message) => self.tell(&message),
                Err(error) => self.tell(&format!(
                    "{}: {} ({})",
                    error.code.as_str(),
                    error.message,
                    error.hint.for_a_person()
                )),
            }
            self.pending.set(self.pending.get().saturating_sub(1));
            self.show();
        }
    }

    async fn answer(&self, job: &str, text: String) -> Result<String, Error> {
        self.api.write_bytes(job, format!("{text}\n").as_bytes(), PATIENCE).await?;
        Ok(match text.chars().count() {
            1 => "1 character and a newline were written".to_owned(),
            count => format!("{count} characters and a newline were written"),
        })
    }

    async fn vote(&self, id: &str, decision: ApproverAnswer) -> Result<String, Error> {
        let request = VoteRequest {
            decision,
            reason: None,
        };
        let entry = self.api.vote(id, request).await?;
        Ok(format!("{id} is {}", entry.state.as_str()))
    }

    async fn change_queue(&self, request: QueueRequest) -> Result<String, Error> {
        let done = match request.action {
            QueueAction::Hold => "held",
            QueueAction::Release => "released",
            QueueAction::Move => "moved",
            QueueAction::List => "listed",
        };
        let what = request.name.clone().or_else(|| request.job_id.clone()).unwrap_or_default();
        self.api.queue(request).await?;
        self.panel_changed.notify_one();
        Ok(format!("{what} is {done}"))
    }

    /// Signals jobs, one after the other, also after an error.
    async fn signal_all(&self, jobs: &[String], signal: &str) -> Result<String, Error> {
        if let [job] = jobs {
            return self.signal(job, signal).await;
        }
        let mut failures = 0;
        for job in jobs {
            failures += usize::from(self.signal(job, signal).await.is_err());
        }
        Ok(format!(
            "{signal} was sent to {} jobs; {failures} had ended or could not be reached",
            jobs.len() - failures
        ))
    }

    /// Deletes jobs, one after the other, also after an error.
    async fn forget_all(&self, jobs: &[String]) -> Result<String, Error> {
        let mut failure = None;
        let mut deleted = 0;
        for job in jobs {
            match self.api.forget(ForgetRequest::new(job)).await {
                Ok(_) => deleted += 1,
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if deleted == 0 => Err(error),
            Some(error) => Ok(format!("{deleted} deleted; {}", error.message)),
            None => Ok(format!("{deleted} deleted")),
        }
    }

    async fn signal(&self, job: &str, signal: &str) -> Result<String, Error> {
        let request = SignalRequest {
            signal: Some(signal.to_owned()),
            ..SignalRequest::new(job)
        };
        let reply = self.api.signal(request).await?;
        Ok(match (reply.unverified, reply.confirmed_dead) {
            (Some(why), _) => why,
            (None, true) => format!("{signal} was sent; no process of the job is left"),
            (None, false) => format!("{signal} was sent; the job still runs"),
        })
    }

    async fn search(&self, job: &str, pattern: String) -> Result<String, Error> {
        self.tell("searching …");
        let mut found = Vec::new();
        let mut since = 0;
        loop {
            let request = SearchRequest {
                job_id: job.to_owned(),
                pattern: pattern.clone(),
                stream: StreamArg::Both,
                since_line_no: since,
                until_line_no: None,
                context: Some(0),
                max_matches: Some(MATCHES),
                max_bytes: None,
                ..SearchRequest::default()
            };
            let reply = self.api.search(request).await?;
            found.extend(reply.matches.iter().map(|found| found.line_no));
            let surplus =
                found.len().saturating_sub(usize::try_from(MATCHES).unwrap_or(usize::MAX));
            found.drain(..surplus);
            let next = i64::try_from(reply.last_line_no).unwrap_or(i64::MAX);
            if !reply.has_more || next <= since {
                break;
            }
            since = next;
            if self.model.borrow().output.job() != Some(job) {
                return Ok("the search was stopped".to_owned());
            }
            self.tell(&format!(
                "searching … {next} lines so far; select another job to stop"
            ));
        }
        let count = found.len();
        let mut model = self.model.borrow_mut();
        if model.output.job() == Some(job) {
            model.output.take_found(found);
        }
        Ok(match count {
            0 => format!("nothing matches {pattern}"),
            1 => "one match".to_owned(),
            count => format!("{count} matches; N shows the next older one"),
        })
    }
}

/// The jobs of a list, and the number of running ones.
async fn listed(api: &Api, list: &ListRequest) -> Result<(JobsReply, usize), Error> {
    let shows_running = list.only_running && list.fleet.is_none();
    let state = shows_running.then_some(JobState::Running);
    let limit = i64::try_from(list.limit).ok();
    let request = JobsRequest {
        state,
        fleet: list.fleet.clone(),
        limit,
        cached: true,
        examine_input: true,
        running_first: true,
        ..JobsRequest::default()
    };
    let reply = api.jobs(request).await?;
    if list.fleet.is_some() || state.is_some() {
        return Ok((reply, 0));
    }
    let request = JobsRequest {
        state: Some(JobState::Running),
        limit: Some(1),
        cached: true,
        ..JobsRequest::default()
    };
    let running = api.jobs(request).await?.total;
    Ok((reply, running))
}

/// Content of a panel.
enum PanelContent {
    /// Lines that may change.
    Lines(Vec<String>),
    /// Lines that don't change any more.
    Final(Vec<String>),
    /// Rows of the queues.
    Queues(Vec<QueueRow>),
}

async fn panel_content(api: &Api, view: &PanelView) -> PanelContent {
    match view {
        PanelView::Detail { job } => detail_of(api, job).await,
        PanelView::Queue => match queues(api).await {
            Ok(rows) => PanelContent::Queues(rows),
            Err(error) => PanelContent::Lines(vec![error.message]),
        },
        // It comes with each list.
        PanelView::Approval(_) => std::future::pending().await,
    }
}

async fn detail_of(api: &Api, job: &str) -> PanelContent {
    let request = JobsRequest {
        job_id: Some(job.to_owned()),
        detail: Some(DetailArg::Processes),
        ..JobsRequest::default()
    };
    match api.jobs(request).await.map(|mut reply| reply.jobs.pop()) {
        // The host of a job that was killed is asked only once.
        Ok(Some(entry)) if entry.why.is_some() => PanelContent::Final(detail_in_words(&entry)),
        Ok(Some(entry)) => PanelContent::Lines(detail_in_words(&entry)),
        Ok(None) => PanelContent::Final(vec!["the job is gone".to_owned()]),
        Err(error) if error.code == Code::UnknownJob => PanelContent::Final(vec![error.message]),
        Err(error) => PanelContent::Lines(vec![error.message]),
    }
}

/// The queues, and the jobs that wait for others without a queue.
async fn queues(api: &Api) -> Result<Vec<QueueRow>, Error> {
    let queued = JobsRequest {
        state: Some(JobState::Queued),
        limit: Some(QUEUED),
        cached: true,
        ..JobsRequest::default()
    };
    let queues = api.queue(QueueRequest::default()).await?.queues;
    Ok(queue_rows(&queues, &api.jobs(queued).await?.jobs))
}

async fn fetched(api: &Api, wish: &Wish) -> Result<Arrived, Error> {
    if wish.is_screen {
        return Ok(Arrived::Screen(Box::new(screen_of(api, wish).await?)));
    }
    Ok(Arrived::Lines(Box::new(tailed(api, wish).await?)))
}

/// A job's screen, once it is newer than the one that is shown.
async fn screen_of(api: &Api, wish: &Wish) -> Result<ReadReply, Error> {
    let whole = ReadRequest {
        unit: UnitArg::Screen,
        ..ReadRequest::new(&wish.job)
    };
    if wish.waits {
        let news = ReadRequest {
            since_version: wish.screen_version,
            wait_ms: WAIT_MS,
            ..whole.clone()
        };
        // Its reply has only the rows that changed.
        api.read(news).await?;
    }
    api.read(whole).await
}

async fn tailed(api: &Api, wish: &Wish) -> Result<TailReply, Error> {
    let request = TailRequest {
        max_lines: i64::try_from(wish.rows).ok(),
        max_bytes: Some(262_144),
        format: Format::Records,
        // With the colours of the program, which `draw` shows.
        render: RenderArg::Raw,
        keep: if wish.is_at_end {
            KeepArg::Last
        } else {
            KeepArg::First
        },
        wait_ms: if wish.waits { WAIT_MS } else { 0 },
        ..TailRequest::new(&wish.job, wish.since, 0)
    };
    api.tail(request).await
}
