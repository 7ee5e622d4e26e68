//! Full-screen programs, driven to an end by a caller that sees only their screens.

use std::time::Duration;

use crate::support::tmux::Tmux;
use crate::support::{HOST, Sshd, Target, durable, eventually, stored_service};
use sshjobs_core::jobs::Limits;
use sshjobs_output::{TerminalScreen, TerminalSize};
use sshjobs_wire::{
    Because, Code, JobState, ReadRequest, Screen, SpawnRequest, TailReply, TailRequest, UnitArg,
    WaitRequest, WriteRequest, WriteUnit,
};

/// A program on a terminal, and a caller that looks at its screen.
struct Driven {
    target: Target,
    job: String,
}

impl Driven {
    async fn start(command: &str) -> Self {
        Self::with(SpawnRequest::new(HOST, command)).await
    }

    async fn with(request: SpawnRequest) -> Self {
        let target = Target::start().await;
        let request = SpawnRequest {
            pty: true,
            ..request
        };
        let job = target.service.spawn(request).await.unwrap().job_id;
        Self { target, job }
    }

    async fn screen(&self) -> Screen {
        let request = ReadRequest {
            unit: UnitArg::Screen,
            ..ReadRequest::new(&self.job)
        };
        self.target.service.read(request).await.unwrap().screen.unwrap()
    }

    /// The screen as one text.
    async fn text(&self) -> String {
        self.screen().await.rows.unwrap().join("\n")
    }

    /// Waits until the screen shows all of these.
    async fn shows(&self, texts: &[&str]) -> Screen {
        eventually(&format!("{texts:?} is on the screen"), async || {
            let shown = self.text().await;
            texts.iter().all(|text| shown.contains(text))
        })
        .await;
        self.screen().await
    }

    async fn press(&self, keys: &[&str]) -> Screen {
        self.write(WriteRequest {
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            ..WriteRequest::new(&self.job)
        })
        .await
    }

    async fn type_text(&self, text: &str) -> Screen {
        self.write(WriteRequest {
            data: Some(text.into()),
            ..WriteRequest::new(&self.job)
        })
        .await
    }

    async fn write(&self, request: WriteRequest) -> Screen {
        let request = WriteRequest {
            unit: WriteUnit::Screen,
            ..request
        };
        *self.target.service.write(request).await.unwrap().screen.unwrap()
    }

    /// Waits until a row of the screen matches, as an agent does.
    async fn until(&self, pattern: &str) -> u32 {
        self.until_reply(pattern).await.matched_row.unwrap_or_default()
    }

    async fn until_reply(&self, pattern: &str) -> TailReply {
        let request = TailRequest {
            until: Some(pattern.to_owned()),
            ..TailRequest::new(&self.job, 0, 30_000)
        };
        let reply = self.target.service.tail(request).await.unwrap();
        assert_eq!(reply.returned_because, Because::Matched, "{reply:?}");
        reply
    }

    /// The state in which the job has ended.
    async fn end(&self) -> JobState {
        let request = WaitRequest {
            wait_ms: Some(50_000),
            ..WaitRequest::new(vec![self.job.clone()])
        };
        let reply = self.target.service.wait(request).await.unwrap();
        reply.jobs[0].standing.state
    }
}

#[tokio::test]
async fn vim_edits_a_file() {
    let vim = Driven::start(
        "d=$(mktemp -d); printf 'one\\ntwo\\n' >$d/f; vim -u NONE -N $d/f; cat $d/f; rm -r $d",
    )
    .await;
    let shown = vim.shows(&["one", "two", "~"]).await;
    assert!(shown.alternate, "{shown:?}");
    vim.type_text("ofirst").await;
    vim.press(&["esc"]).await;
    let shown = vim.shows(&["first"]).await;
    assert_eq!(shown.cursor.row, 2);
    vim.type_text(":wq\r").await;
    assert_eq!(vim.end().await, JobState::Exited);
    let shown = vim.shows(&["one\nfirst\ntwo"]).await;
    assert!(!shown.alternate);
}

#[tokio::test]
async fn a_dialog_menu_is_read_and_answered() {
    let menu = "dialog --menu 'Choose a disk' 12 40 4 sda 'system' sdb 'data' sdc 'backup' 2>/tmp/sshjobs-$$; \
        printf '\\n[chosen: %s]\\n' \"$(cat /tmp/sshjobs-$$)\"; rm /tmp/sshjobs-$$";
    let menu = Driven::start(menu).await;
    let reply = menu.until_reply("sdb").await;
    assert!(reply.matched_row > Some(1), "{reply:?}");
    assert!(
        reply.partial.is_none(),
        "what it draws is no text: {reply:?}"
    );
    let selected =
        |shown: &Screen, item: &str| shown.reversed.iter().any(|span| span.text.contains(item));
    let shown = menu.shows(&["sda"]).await;
    assert!(
        selected(&shown, "sda") && !selected(&shown, "sdb"),
        "{shown:?}"
    );
    let shown = menu.shows(&["Choose a disk", "sda", "<  OK  >", "<Cancel>", "┌──", "│"]).await;
    assert!(shown.rows.unwrap().iter().any(|row| row.contains("─┐")));
    let shown = menu.press(&["down"]).await;
    assert!(
        selected(&shown, "sdb") && !selected(&shown, "sda"),
        "{shown:?}"
    );
    menu.press(&["enter"]).await;
    menu.until(r"\[chosen: sdb\]").await;
    assert_eq!(menu.end().await, JobState::Exited);
}

#[tokio::test]
async fn less_pages_and_searches() {
    let less = Driven::start("seq 1 500 | sed 's/^/line /' | less").await;
    less.shows(&["line 1\n", "line 23"]).await;
    let shown = less.press(&["pagedown"]).await;
    assert!(
        shown.rows.as_ref().unwrap()[0].starts_with("line 2"),
        "{shown:?}"
    );
    less.type_text("/line 321\r").await;
    let shown = less.shows(&["line 321"]).await;
    assert!(
        shown.reversed.iter().any(|span| span.text.contains("line 321")),
        "the match is reversed: {:?}",
        shown.reversed
    );
    less.type_text("q").await;
    assert_eq!(less.end().await, JobState::Exited);
}

#[tokio::test]
async fn htop_is_sorted_and_left() {
    let htop = Driven::with(SpawnRequest {
        cols: Some(100),
        rows: Some(30),
        ..SpawnRequest::new(HOST, "htop -d 5")
    })
    .await;
    let shown = htop.shows(&["PID", "F1Help", "Load average"]).await;
    assert!(shown.alternate && shown.size.rows == 30);
    htop.press(&["f6"]).await;
    htop.shows(&["Sort by"]).await;
    htop.press(&["esc"]).await;
    htop.press(&["f10"]).await;
    assert_eq!(htop.end().await, JobState::Exited);
}

#[tokio::test]
async fn midnight_commander_makes_a_directory() {
    let mc = "d=$(mktemp -d); cd $d; HOME=$d mc -u -d; ls -d made; rm -r $d";
    let mc = Driven::start(mc).await;
    mc.shows(&["1Help", "10Quit"]).await;
    mc.press(&["f7"]).await;
    mc.shows(&["Create a new Directory"]).await;
    mc.type_text("made\r").await;
    mc.shows(&["/made"]).await;
    mc.press(&["f10"]).await;
    eventually("it asks or ends", async || {
        mc.target.service.library().job(&mc.job).await.unwrap().is_over()
            || mc.text().await.contains("Do you really want to quit")
    })
    .await;
    if mc.text().await.contains("Do you really want to quit") {
        mc.press(&["enter"]).await;
    }
    assert_eq!(mc.end().await, JobState::Exited);
    mc.shows(&["made"]).await;
}

#[tokio::test]
async fn nano_writes_a_file() {
    let nano = Driven::start("f=$(mktemp); nano -I $f; cat $f; rm $f").await;
    nano.shows(&["GNU nano", "^X Exit"]).await;
    nano.type_text("hello from nano").await;
    nano.press(&["ctrl+x"]).await;
    nano.shows(&["Save modified buffer"]).await;
    nano.type_text("y").await;
    nano.shows(&["File Name to Write"]).await;
    nano.press(&["enter"]).await;
    assert_eq!(nano.end().await, JobState::Exited);
    nano.shows(&["hello from nano"]).await;
}

#[tokio::test]
async fn a_python_prompt_answers() {
    let python = Driven::start("exec python3 -q").await;
    python.shows(&[">>>"]).await;
    let shown = python.type_text("print(6 * 7)\r").await;
    assert!(
        shown.rows.unwrap().iter().any(|row| row == "42"),
        "one call shows the answer"
    );
    python.press(&["ctrl+d"]).await;
    assert_eq!(python.end().await, JobState::Exited);
}

#[tokio::test]
async fn a_prompt_as_apt_asks_is_answered_once() {
    let apt = "printf 'After this operation, 13 MB of additional disk space will be used.\\nDo you want to continue? [Y/n] '; \
        read answer; [ \"$answer\" = n ] && echo Abort. && exit 1; echo installed";
    let apt = Driven::start(apt).await;
    apt.until(r"\[Y/n\]\s*$").await;
    let shown = apt.type_text("n\r").await;
    assert!(shown.rows.unwrap().contains(&"Abort.".to_owned()));
    assert_eq!(apt.end().await, JobState::Exited);
}

#[tokio::test]
async fn only_the_rows_that_changed_since_a_version_are_returned() {
    let program =
        "printf '\\033[2J\\033[Hone\\r\\ntwo\\r\\nthree'; read x; printf '\\033[2;1HTWO'; read x";
    let program = Driven::start(program).await;
    let before = program.shows(&["three"]).await;
    program.type_text("\r").await;
    program.shows(&["TWO"]).await;
    let request = ReadRequest {
        unit: UnitArg::Screen,
        since_version: Some(before.version),
        ..ReadRequest::new(&program.job)
    };
    let screen = program.target.service.read(request).await.unwrap().screen.unwrap();
    assert!(screen.rows.is_none());
    let changed = screen.changed_rows.unwrap();
    assert!(
        changed.iter().any(|row| row.row == 2 && row.text == "TWO"),
        "{changed:?}"
    );
    assert!(!changed.iter().any(|row| row.row == 1), "{changed:?}");
}

#[tokio::test]
async fn a_read_waits_for_a_newer_screen() {
    let program = Driven::start("printf one; sleep 0.5; printf two; sleep 60").await;
    let before = program.shows(&["one"]).await;
    let request = ReadRequest {
        unit: UnitArg::Screen,
        since_version: Some(before.version),
        wait_ms: 30_000,
        ..ReadRequest::new(&program.job)
    };
    let screen = program.target.service.read(request).await.unwrap().screen.unwrap();
    assert_eq!(screen.changed_rows.unwrap()[0].text, "onetwo");
}

#[tokio::test]
async fn terminal_queries_are_answered_with_answer_queries() {
    // As crossterm's `position()` and many shells ask.
    let command = "stty raw -echo; printf '\\033[5;7H\\033[6n'; \
        answer=$(dd bs=1 count=6 2>/dev/null | tr '\\033' E); stty sane; echo; echo \"got $answer\"";
    let asked = Driven::with(SpawnRequest {
        answer_queries: true,
        ..SpawnRequest::new(HOST, command)
    })
    .await;
    asked.shows(&["got E[5;7R"]).await;
    assert_eq!(asked.end().await, JobState::Exited);

    let unasked = Driven::start(&command.replace("count=6", "count=1")).await;
    unasked.type_text("x").await;
    unasked.shows(&["got x"]).await;
}

#[tokio::test]
async fn a_screen_follows_the_size_of_the_terminal() {
    let program = "trap 'printf \"\\033[2J\\033[H\"; stty size' WINCH; printf ready; while :; do sleep 0.1; done";
    let program = Driven::start(program).await;
    program.shows(&["ready"]).await;
    program
        .write(WriteRequest {
            cols: Some(132),
            rows: Some(43),
            ..WriteRequest::new(&program.job)
        })
        .await;
    let shown = program.shows(&["43 132"]).await;
    assert_eq!((shown.size.cols, shown.size.rows), (132, 43));
}

#[tokio::test]
async fn a_job_without_a_terminal_has_no_screen() {
    let target = Target::start().await;
    let job = target.service.spawn(SpawnRequest::new(HOST, "cat")).await.unwrap().job_id;
    let read = ReadRequest {
        unit: UnitArg::Screen,
        ..ReadRequest::new(&job)
    };
    let error = target.service.read(read).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.hint.contains("pty=true"), "{error:?}");
    let write = WriteRequest {
        unit: WriteUnit::Screen,
        data: Some("lost".into()),
        ..WriteRequest::new(&job)
    };
    assert_eq!(
        target.service.write(write).await.unwrap_err().code,
        Code::InvalidArgument
    );
    let total = target.service.library().job(&job).await.unwrap().status().total_bytes;
    assert_eq!(total, 0, "nothing was written");
}

#[tokio::test]
async fn the_screen_of_a_job_that_printed_more_than_is_kept_says_so() {
    let limits = Limits {
        ring_buffer_bytes: 64 << 10,
        max_line_bytes: 4 << 10,
        ..Limits::default()
    };
    let target = Target::with_limits(limits).await;
    let request = SpawnRequest {
        pty: true,
        ..SpawnRequest::new(HOST, "seq 1 50000; printf '\\033[2J\\033[Hmenu'; sleep 60")
    };
    let job = target.service.spawn(request).await.unwrap().job_id;
    let driven = Driven { target, job };
    let shown = driven.shows(&["menu"]).await;
    assert!(!shown.from_start && shown.rows.unwrap() == ["menu"]);
}

#[tokio::test]
async fn another_process_sees_and_resizes_the_screen_of_a_durable_job() {
    let sshd = Sshd::start().await;
    let start = || stored_service(sshd.ssh_config(), sshd.path("state"), Limits::default());
    let first = start();
    let program = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done";
    let request = SpawnRequest {
        pty: true,
        ..durable(program)
    };
    let job = first.spawn(request).await.unwrap().job_id;

    let second = start();
    let screen = async |service: &sshjobs_wire::Service| {
        let request = ReadRequest {
            unit: UnitArg::Screen,
            ..ReadRequest::new(&job)
        };
        service.read(request).await.unwrap().screen.unwrap()
    };
    eventually("the other process shows it", async || {
        screen(&second).await.rows.unwrap().contains(&"ready".to_owned())
    })
    .await;
    let resize = WriteRequest {
        cols: Some(100),
        rows: Some(50),
        ..WriteRequest::new(&job)
    };
    second.write(resize).await.unwrap();
    for service in [&first, &second] {
        eventually("both show the new size", async || {
            let shown = screen(service).await;
            shown.size.cols == 100 && shown.rows.unwrap().contains(&"50 100".to_owned())
        })
        .await;
    }
    first.shutdown().await;
    // Its jobs can be taken over once nothing of it is left.
    drop(first);

    // Without its owner, too.
    let third = start();
    let resize = WriteRequest {
        cols: Some(90),
        rows: Some(40),
        ..WriteRequest::new(&job)
    };
    third.write(resize).await.unwrap();
    eventually("the program knows the size", async || {
        screen(&third).await.rows.unwrap().contains(&"40 90".to_owned())
    })
    .await;
    let mut end = sshjobs_wire::SignalRequest::new(&job);
    end.signal = Some("KILL".to_owned());
    third.signal(end).await.unwrap();
    third.shutdown().await;
    second.shutdown().await;
}

#[tokio::test]
async fn a_list_shows_which_job_waits_for_input() {
    let asking = Driven::start("printf 'Overwrite? [y/N] '; read x").await;
    let target = &asking.target;
    let silent = target
        .service
        .spawn(SpawnRequest::new(HOST, "echo busy; sleep 60"))
        .await
        .unwrap();
    eventually("only the one that asks is marked", async || {
        let jobs = target.service.jobs(sshjobs_wire::JobsRequest::default()).await.unwrap().jobs;
        let waits = |id: &str| jobs.iter().any(|job| job.job_id == id && job.awaiting_input);
        waits(&asking.job) && !waits(&silent.job_id)
    })
    .await;
}

/// What tmux shows after the same bytes, on a terminal of this size.
async fn tmux_shows(bytes: &[u8], size: (u16, u16)) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bytes");
    std::fs::write(&file, bytes).unwrap();
    // Raw, so that no line end is changed on the way to tmux.
    let show = format!(
        "stty raw -echo; cat {}; touch {0}.done; sleep 600",
        file.display()
    );
    let tmux = Tmux::start(&format!("LC_ALL=C.UTF-8 sh -c '{show}'"), size);
    eventually("all of it is written", async || {
        file.with_extension("done").exists()
    })
    .await;
    // tmux reads what was written a moment later: until two looks are the same.
    let mut before = tmux.screen();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = tmux.screen();
        let is_same = now == before;
        before = now;
        if is_same {
            break;
        }
    }
    let mut rows: Vec<String> = before.lines().map(|row| row.trim_end().to_owned()).collect();
    rows.resize(usize::from(size.1), String::new());
    rows
}

fn drawn(bytes: &[u8], size: (u16, u16)) -> Vec<String> {
    let size = TerminalSize {
        cols: size.0.into(),
        rows: size.1.into(),
    };
    let mut screen = TerminalScreen::new(size);
    screen.feed(bytes);
    screen.view().rows.into_iter().map(|row| row.text).collect()
}

/// tmux copies characters of the line-drawing set as the letters that stand for them.
fn lines_as_letters(row: &str) -> String {
    let letter = |c: char| match c {
        '─' => 'q',
        '│' => 'x',
        '┌' => 'l',
        '┐' => 'k',
        '└' => 'm',
        '┘' => 'j',
        '├' => 't',
        '┤' => 'u',
        other => other,
    };
    row.chars().map(letter).collect()
}

#[tokio::test]
async fn screens_are_those_of_tmux() {
    let size = (80, 24);
    let samples: [(&str, Vec<u8>); 7] = [
        (
            "index, next line and reverse index",
            b"\x1b[2J\x1b[3;10Ha\x1bDb\x1bEc\x1bMd\x1b[24;1Hlast\x1bDafter\x1b[1;1Htop\x1bMabove".to_vec(),
        ),
        (
            "scroll regions",
            b"\x1b[2J\x1b[H1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\x1b[2;5r\x1b[5;1H\n\n\x1b[2;1H\x1bM\x1b[rX\x1b[20;1Hend".to_vec(),
        ),
        (
            "inserted and deleted characters and lines",
            b"\x1b[Habcdefgh\x1b[1;3H\x1b[2@\x1b[1;7H\x1b[P\r\nline 2\r\nline 3\r\nline 4\x1b[2;1H\x1b[L\x1b[4;1H\x1b[Mtail\x1b[1;1H\x1b[2X".to_vec(),
        ),
        (
            "wide characters",
            "\x1b[H漢字 kana かな|\r\ne\u{301}galite\u{301}\r\n\x1b[3;79H漢\x1b[4;1H漢字\x1b[4;3Hx".as_bytes().to_vec(),
        ),
        (
            "the alternate screen",
            b"shell $ vi\r\n\x1b[?1049h\x1b[2J\x1b[5;5Hfile\x1b[?1049lshell $ ".to_vec(),
        ),
        (
            "wrapped lines",
            format!("{}\r\n{}tail", "x".repeat(100), "y".repeat(80)).into_bytes(),
        ),
        (
            "a recorded menu of dialog",
            include_bytes!("../fixtures/screens/dialog").to_vec(),
        ),
    ];
    for (what, bytes) in samples {
        let expected = tmux_shows(&bytes, size).await;
        let shown: Vec<String> =
            drawn(&bytes, size).iter().map(|row| lines_as_letters(row)).collect();
        assert_eq!(shown, expected, "{what}");
    }
}

#[tokio::test]
async fn recorded_sessions_show_what_tmux_shows() {
    let size = (80, 24);
    for program in ["vim", "less", "mc"] {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/screens/");
        let bytes = std::fs::read(format!("{file}{program}")).unwrap();
        let expected = tmux_shows(&bytes, size).await;
        assert_eq!(drawn(&bytes, size), expected, "{program}");
    }
}

#[tokio::test]
async fn the_first_page_of_vttest_is_drawn() {
    // It asks for the attributes of the terminal, and waits for the answer.
    let vttest = Driven::with(SpawnRequest {
        answer_queries: true,
        ..SpawnRequest::new(HOST, "vttest 24x80.80")
    })
    .await;
    vttest.shows(&["Test of cursor movements", "Enter choice number"]).await;
    vttest.type_text("1\r").await;
    // A border of * and + around a text. (The field of E inside comes from DECALN, which the
    // terminal emulation does not know.)
    let page = vttest.shows(&["The screen should be cleared", "Push <RETURN>"]).await;
    let rows = page.rows.unwrap();
    let stars = "*".repeat(80);
    let pluses = format!("*{}*", "+".repeat(78));
    assert_eq!((&rows[0], &rows[1]), (&stars, &pluses), "{rows:#?}");
    assert_eq!((&rows[22], &rows[23]), (&pluses, &stars), "{rows:#?}");
    assert!(rows[2..22].iter().all(|row| row.starts_with("*+") && row.ends_with("+*")));
}

#[tokio::test]
async fn coloured_parts_are_told_and_a_matched_row_brings_its_screen() {
    let target = Target::start().await;
    let service = &target.service;
    let draw = r"printf '\033[2J\033[1;1HName \033[32mRunning \033[0m(3)\n\033[7m chosen \033[0m other\n\033[3;1Hplain row'; sleep 30";
    let request = SpawnRequest {
        pty: true,
        ..SpawnRequest::new(HOST, draw)
    };
    let job = service.spawn(request).await.unwrap().job_id;
    let reply = service
        .tail(TailRequest {
            until: Some("^plain row$".into()),
            ..TailRequest::new(&job, 0, 20_000)
        })
        .await
        .unwrap();
    assert_eq!(reply.matched_row, Some(3), "{reply:?}");
    assert!(reply.partial.is_none(), "{reply:?}");
    let screen = reply.screen.unwrap();
    assert_eq!(screen.rows.as_ref().unwrap()[2], "plain row");
    let parts = |parts: &[sshjobs_wire::ScreenPart]| {
        parts
            .iter()
            .map(|part| (part.row, part.col, part.text.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        parts(&screen.highlighted),
        [(1, 6, "Running".to_owned())],
        "{screen:?}"
    );
    assert_eq!(
        parts(&screen.reversed),
        [(2, 1, " chosen ".to_owned())],
        "{screen:?}"
    );
}
