use super::*;
use crate::Nonce;
use crate::log::{Log, LogEvent};
use sshjobs_output::{LineNo, Page, PageQuery, Render, RingLimits};

const DRAIN: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Played {
    Out,
    Err,
    Eof,
    Status,
    Signal,
    Close,
    Lost,
    /// Nothing for this many seconds.
    Pause(u64),
}

/// A recorder and the log to which its changes are applied.
struct Scene {
    recorder: Recorder,
    log: Log,
    now: Instant,
}

impl Scene {
    fn new(prelude: Announcements) -> Self {
        let log = Log::new(RingLimits::default());
        Self {
            recorder: Recorder::new(prelude, DRAIN),
            log,
            now: Instant::now(),
        }
    }

    fn plain() -> Self {
        Self::new(Announcements::new(&Nonce::new(), 0))
    }

    fn apply(&mut self, recorded: Recorded) -> Option<End> {
        recorded.changes.iter().for_each(|change| self.log.apply(change, self.now));
        if let Some(End::Outcome(outcome)) = &recorded.end {
            self.log.take(
                &LogEvent::End(outcome.clone()),
                self.log.time_at(self.now),
                self.now,
            );
        }
        recorded.end
    }

    fn take(&mut self, event: FarEvent) -> Option<End> {
        let recorded = self.recorder.take(event, self.now);
        self.apply(recorded)
    }

    /// Advances the time. Returns the end if the drain time has passed meanwhile.
    fn wait_until(&mut self, then: Instant) -> Option<End> {
        match self.recorder.drain_ends_at() {
            Some(end) if end < then => {
                self.now = end;
                let recorded = self.recorder.drained();
                self.apply(recorded)
            }
            _ => {
                self.now = then;
                None
            }
        }
    }

    fn texts(&self) -> Vec<String> {
        let query = PageQuery {
            render: Render::Raw,
            ..PageQuery::after(LineNo::START)
        };
        Page::read(self.log.ring(), &query)
            .lines
            .into_iter()
            .map(|line| line.text)
            .collect()
    }
}

/// Plays `script` and returns the outcome, the lines and the time in seconds; no outcome if nothing
/// would ever end it.
fn play(script: &[Played]) -> (Option<Outcome>, Vec<String>, u64) {
    let mut scene = Scene::plain();
    let start = scene.now;
    scene.take(FarEvent::Started);
    let mut end = None;
    for played in script {
        end = match *played {
            Played::Out => scene.take(FarEvent::Data(Stream::Stdout.into(), "o\n".into())),
            Played::Err => scene.take(FarEvent::Data(Stream::Stderr.into(), "e".into())),
            Played::Eof => scene.take(FarEvent::Eof),
            Played::Status => scene.take(FarEvent::Exit(Exit::Status(7))),
            Played::Signal => scene.take(FarEvent::Exit(Exit::Signal("KILL".into()))),
            Played::Close => scene.take(FarEvent::Closed),
            Played::Lost => scene.take(FarEvent::Lost),
            Played::Pause(seconds) => scene.wait_until(scene.now + Duration::from_secs(seconds)),
        };
        if end.is_some() {
            break;
        }
    }
    let end = end.or_else(|| scene.wait_until(scene.now + Duration::from_secs(3600)));
    let outcome = end.map(|end| match end {
        End::Outcome(outcome) => outcome,
        End::Detached => panic!("nothing detaches it"),
    });
    (outcome, scene.texts(), (scene.now - start).as_secs())
}

/// The expected result of a script, as plainly as possible.
fn model(script: &[Played]) -> (Option<Outcome>, Vec<String>) {
    let end = script.iter().position(|event| matches!(event, Played::Close | Played::Lost));
    let before = &script[..end.unwrap_or(script.len())];
    let exit = before.iter().find_map(|event| match event {
        Played::Status => Some(Exit::Status(7)),
        Played::Signal => Some(Exit::Signal("KILL".into())),
        Played::Out
        | Played::Err
        | Played::Eof
        | Played::Close
        | Played::Lost
        | Played::Pause(_) => None,
    });
    let eof = before.contains(&Played::Eof);
    let outcome = match (end.map(|end| script[end]), exit) {
        (Some(Played::Lost), Some(exit)) if eof => Some(Outcome::Ended(exit)),
        (Some(Played::Lost), exit) => Some(Outcome::Lost(LostWhy::Connection, exit)),
        (Some(_), None) => Some(Outcome::Closed),
        (_, Some(exit)) => Some(Outcome::Ended(exit)),
        (None, None) => None,
    };
    let mut lines = Vec::new();
    let mut unfinished = String::new();
    for event in before {
        match event {
            Played::Out => lines.push("o".to_owned()),
            Played::Err => unfinished.push('e'),
            Played::Eof if !unfinished.is_empty() => lines.push(std::mem::take(&mut unfinished)),
            Played::Eof
            | Played::Status
            | Played::Signal
            | Played::Close
            | Played::Lost
            | Played::Pause(_) => {}
        }
    }
    if outcome.is_some() && !unfinished.is_empty() {
        lines.push(unfinished);
    }
    (outcome, lines)
}

#[test]
fn every_order_of_up_to_seven_events_comes_out_as_in_the_model() {
    const GOING_ON: [Played; 5] = [
        Played::Out,
        Played::Err,
        Played::Eof,
        Played::Status,
        Played::Signal,
    ];
    let mut prefixes: Vec<Vec<Played>> = vec![vec![]];
    let mut played = 0;
    for length in 0..=7 {
        for prefix in &prefixes {
            let ends: &[&[Played]] = if length < 7 {
                &[&[Played::Close], &[Played::Lost], &[]]
            } else {
                &[&[]]
            };
            for end in ends {
                let script = [prefix, *end].concat();
                let (outcome, lines, _) = play(&script);
                assert_eq!((outcome, lines), model(&script), "{script:?}");
                played += 1;
            }
        }
        prefixes = prefixes
            .iter()
            .flat_map(|prefix: &Vec<Played>| {
                GOING_ON.map(|event| [prefix.as_slice(), &[event]].concat())
            })
            .collect();
    }
    assert_eq!(played, 3 * (1 + 5 + 25 + 125 + 625 + 3125 + 15625) + 78125);
}

#[test]
fn output_that_comes_late_after_the_exit_is_kept() {
    let late = [
        Played::Status,
        Played::Pause(1),
        Played::Out,
        Played::Pause(1),
        Played::Err,
        Played::Close,
    ];
    let (outcome, lines, _) = play(&late);
    assert_eq!(
        (outcome, lines.len()),
        (Some(Outcome::Ended(Exit::Status(7))), 2)
    );
}

#[test]
fn a_background_child_that_is_silent_holds_the_job_for_the_drain_time() {
    let (outcome, _, seconds) = play(&[Played::Out, Played::Status]);
    assert_eq!(
        (outcome, seconds),
        (Some(Outcome::Ended(Exit::Status(7))), 2)
    );
}

#[test]
fn a_background_child_that_never_stops_talking_is_left_after_a_bounded_time() {
    let chatter = [Played::Out, Played::Pause(1)].repeat(200);
    let (outcome, _, seconds) = play(&[&[Played::Status], chatter.as_slice()].concat());
    assert_eq!(
        (outcome, seconds),
        (Some(Outcome::Ended(Exit::Status(7))), 60)
    );
}

#[test]
fn a_refused_exec_is_refused_and_nothing_else() {
    assert_eq!(
        Scene::plain().take(FarEvent::Refused),
        Some(End::Outcome(Outcome::Refused))
    );
    let mut started = Scene::plain();
    started.take(FarEvent::Started);
    assert_eq!(started.take(FarEvent::Refused), None);
    assert_eq!(
        started.take(FarEvent::Closed),
        Some(End::Outcome(Outcome::Closed))
    );
}

#[test]
fn the_process_group_is_known_and_its_line_is_not_output() {
    let nonce = Nonce::new();
    let mut scene = Scene::new(Announcements::new(&nonce, 1));
    let line = format!("{} 4711\nhello\n", nonce.as_str());
    for part in line.as_bytes().chunks(9) {
        scene.take(FarEvent::Data(Stream::Stdout.into(), part.to_vec().into()));
    }
    assert_eq!(
        (scene.log.pgid(), scene.recorder.announced()),
        (Some(4711), 1)
    );
    assert_eq!(scene.texts(), ["hello"]);
}

#[test]
fn what_the_prelude_held_back_is_given_out_at_the_end() {
    for (end, lines) in [
        (FarEvent::Closed, ["sshjobs-"]),
        (FarEvent::Lost, ["sshjobs-"]),
    ] {
        let mut scene = Scene::new(Announcements::new(&Nonce::new(), 1));
        scene.take(FarEvent::Data(Stream::Stdout.into(), "sshjobs-".into()));
        scene.take(end);
        assert_eq!(scene.texts(), lines);
    }
}

#[test]
fn a_job_that_is_detached_has_no_outcome_and_keeps_what_came() {
    let mut scene = Scene::plain();
    scene.take(FarEvent::Started);
    scene.take(FarEvent::Data(Stream::Stdout.into(), "one\nhalf".into()));
    assert_eq!(scene.take(FarEvent::Detached), Some(End::Detached));
    assert_eq!(
        (scene.log.outcome(), scene.texts()),
        (None, vec!["one".to_owned()])
    );
}

#[test]
fn time_for_which_a_far_end_was_held_back_does_not_count_as_silence() {
    let mut scene = Scene::plain();
    scene.take(FarEvent::Exit(Exit::Status(0)));
    let held_until = scene.now + Duration::from_secs(600);
    scene.recorder.was_held(held_until);
    assert_eq!(scene.recorder.drain_ends_at(), Some(held_until + DRAIN));
}
