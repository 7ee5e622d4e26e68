//! Work on other machines: a working tree for the command, restarts, a host that is free.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::command::{sshjobs, told};
use crate::support::{HOST, McpClient, PATIENCE, Sshd, eventually};

/// A directory of the account on the host, which is this machine's. Removed with its copies when dropped.
struct InHome(PathBuf);

impl InHome {
    fn of(tree: &Value) -> Self {
        let below = tree["path"].as_str().unwrap().strip_prefix("~/").unwrap();
        Self(std::env::home_dir().unwrap().join(below))
    }
}

impl Drop for InHome {
    fn drop(&mut self) {
        for copy in 2..=4 {
            let path = format!("{}.{copy}", self.0.display());
            fs::remove_dir_all(path).ok();
        }
        fs::remove_dir_all(&self.0).ok();
    }
}

fn entry(sshd: &Sshd, job: &str) -> Value {
    let listed = told(&sshjobs(sshd, &["jobs", "--json"]));
    let mut entries = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.find(|entry| entry["job_id"] == job).unwrap()
}

fn spawn(sshd: &Sshd, words: &[&str]) -> String {
    told(&sshjobs(sshd, &[&["spawn"], words].concat())).trim().to_owned()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The words of a run with the tree in `here`.
fn with_tree<'a>(here: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    [&["run", "-n", "--sync", here], rest].concat()
}

/// Every command of docs/elsewhere.md, in a project that has the scripts which it names.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_run_as_they_stand() {
    let sshd = Sshd::start().await;
    sshd.alias(["gpubox", "buildbox", "debian", "fedora", "alpine"]);
    let project = sshd.path("nightly-model");
    for (file, text) in [
        ("env.sh", "name=value\n"),
        (
            "train.sh",
            "#!/bin/sh\nmkdir -p runs\necho trained >runs/model\n",
        ),
        ("test.sh", "#!/bin/sh\necho tested\n"),
        ("Makefile", "all:\n\techo built >out.txt\n"),
    ] {
        write(&project.join(file), text);
        fs::set_permissions(project.join(file), PermissionsExt::from_mode(0o755)).unwrap();
    }
    fs::create_dir(sshd.path("config")).unwrap();
    fs::create_dir(sshd.path("config/sshjobs")).unwrap();
    let config = format!(
        "ssh_config = {:?}\n[hosts.gpubox]\ntags = [\"gpu\"]\n",
        sshd.ssh_config().display().to_string()
    );
    fs::write(sshd.path("config/sshjobs/config.toml"), config).unwrap();
    // The directories that the page names are in the home of the host's account.
    let home = std::env::home_dir().unwrap();
    let _made = [home.join("build/project")].map(|path| {
        assert!(!path.exists(), "{} is not this test's", path.display());
        InHome(path)
    });
    let binary = Path::new(env!("CARGO_BIN_EXE_sshjobs")).parent().unwrap();
    let page = include_str!("../docs/elsewhere.md");
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut count = 0;
    for block in blocks {
        count += 1;
        let mut shell = std::process::Command::new("bash");
        shell
            .args(["-eo", "pipefail", "-c", block])
            .current_dir(&project)
            .stdin(std::process::Stdio::null())
            .env(
                "PATH",
                format!("{}:{}", binary.display(), std::env::var("PATH").unwrap()),
            )
            .env("XDG_CONFIG_HOME", sshd.path("config"))
            .env("XDG_STATE_HOME", sshd.path("state"));
        let output = tokio::task::spawn_blocking(move || shell.output().unwrap());
        let output = tokio::time::timeout(PATIENCE, output).await.unwrap().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{block}\n{error}");
    }
    assert_eq!(count, 7);
    for fetched in ["runs/model", "results/runs/model"] {
        assert!(project.join(fetched).exists(), "{fetched}");
    }
    assert_eq!(
        fs::read_to_string(project.join("out.txt")).unwrap(),
        "built\n"
    );
    for entry in fs::read_dir(home.join(".cache/sshjobs/trees")).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("nightly-model-") {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_in_the_tree_that_it_is_given() {
    let sshd = Sshd::start().await;
    let here = sshd.path("project");
    write(&here.join("src/hello.txt"), "hello\n");
    write(&here.join("big.bin"), "left out\n");
    let word = here.display().to_string();

    let words = with_tree(
        &word,
        &[
            "--exclude",
            "*.bin",
            "--json",
            HOST,
            "--",
            "cat src/hello.txt; ls; pwd",
        ],
    );
    let output = told(&sshjobs(&sshd, &words));
    let summary: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    let _home = InHome::of(&summary["tree"]);
    let path = summary["tree"]["path"].as_str().unwrap();
    assert!(
        path.starts_with("~/.cache/sshjobs/trees/project-"),
        "{path}"
    );
    assert_eq!(summary["tree"]["hash"].as_str().unwrap().len(), 64);
    assert!(output.starts_with("hello\nsrc\n"), "{output}");

    // Below the tree, and from a directory that the caller has chosen.
    let below = with_tree(&word, &["--cwd", "src", HOST, "--", "cat hello.txt"]);
    assert_eq!(told(&sshjobs(&sshd, &below)), "hello\n");
    let own = sshd.path("own");
    let chosen = format!("{word}:{}", own.display());
    assert_eq!(
        told(&sshjobs(&sshd, &with_tree(&chosen, &[HOST, "--", "pwd"]))).trim(),
        own.display().to_string()
    );
    assert!(own.join("big.bin").exists());

    for (words, part) in [
        (&["--sync", "/nonexistent"][..], "is not a directory"),
        (&["--exclude", "x"], "--sync"),
        (&["--sync", &word, "--exclude", "a["], "can't be read"),
    ] {
        let wrong = sshjobs(&sshd, &[&["run"], words, &[HOST, "--", "true"]].concat());
        let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
        assert_eq!(wrong.status.code(), Some(2), "{error}");
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_of_a_running_job_does_not_change() {
    let sshd = Sshd::start().await;
    let here = sshd.path("project");
    write(&here.join("version"), "1\n");
    let word = here.display().to_string();
    let first = spawn(&sshd, &["--sync", &word, HOST, "--", "sleep 600"]);
    let tree = entry(&sshd, &first)["tree"].clone();
    let _home = InHome::of(&tree);

    // Unchanged, so that the job shares the tree.
    let same = spawn(&sshd, &["--sync", &word, HOST, "--", "sleep 600"]);
    assert_eq!(entry(&sshd, &same)["tree"], tree);
    write(&here.join("version"), "22\n");
    let second = told(&sshjobs(
        &sshd,
        &with_tree(&word, &[HOST, "--", "cat version; pwd"]),
    ));
    let (version, directory) = second.split_once('\n').unwrap();
    assert_eq!(version, "22");
    assert!(directory.trim().ends_with(".2"), "{directory}");
    let path = tree["path"].as_str().unwrap();
    let seen = told(&sshjobs(
        &sshd,
        &["run", HOST, "--", &format!("cat {path}/version")],
    ));
    assert_eq!(seen, "1\n");

    // The tree is free again when the jobs have ended.
    for job in [&first, &same] {
        told(&sshjobs(&sshd, &["signal", job, "KILL"]));
        sshjobs(&sshd, &["wait", job]);
    }
    let third = told(&sshjobs(
        &sshd,
        &with_tree(&word, &[HOST, "--", "cat version; pwd"]),
    ));
    assert!(
        third.starts_with("22\n") && !third.trim().ends_with(".2"),
        "{third}"
    );

    // A job that is started again says what has changed.
    write(&here.join("version"), "333\n");
    let again = sshjobs(&sshd, &["rerun", "last"]);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        said.contains("other contents than that of the earlier job"),
        "{said}"
    );
    assert!(told(&again).starts_with("333\n"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_sends_trees_below_its_roots_only() {
    let sshd = Sshd::start().await;
    let root = sshd.path("root");
    write(&root.join("project/a"), "from the root\n");
    write(&sshd.path("private/a"), "private\n");
    let config = sshd.path("agent.toml");
    fs::write(
        &config,
        format!("transfer_roots = [{:?}]\n", root.display().to_string()),
    )
    .unwrap();
    let mut agent = McpClient::start_with(&sshd.ssh_config(), &config);
    let run = |path: &str, far: &str| json!({"host": HOST, "sync": format!("{path}:{far}"), "command": "cat a"});
    let far = sshd.path("far").display().to_string();
    let project = root.join("project").display().to_string();

    let reply = agent.ok("ssh_run", run(&project, &far));
    assert_eq!(reply["head"], json!(["from the root"]), "{reply}");
    let private = sshd.path("private").display().to_string();
    assert_eq!(agent.code("ssh_run", run(&private, &far)), "policy_denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_restarted_on_its_host() {
    let sshd = Sshd::start().await;
    let count = sshd.path("count").display().to_string();
    let counting =
        |rest: &str| format!("echo x >>{count}; n=$(wc -l <{count}); echo attempt $n; {rest}");
    let run = |words: &[&str], command: &str| {
        fs::remove_file(&count).ok();
        let words = [&["run", "-n", "--json"], words, &[HOST, "--", command]].concat();
        let output = sshjobs(&sshd, &words);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (summary, text, said)
    };

    // It fails twice, and then succeeds.
    let (summary, output, said) = run(&["--restart", "on-failure:3"], &counting("[ $n -ge 3 ]"));
    assert_eq!(summary["exit_status"], 0, "{summary}\n{said}");
    assert_eq!(summary["attempts"], 3, "{summary}");
    assert!(
        output.starts_with("attempt 1\nattempt 2\nattempt 3\n"),
        "{output}"
    );
    assert!(
        said.contains("attempt 1 of 4 has ended with exit status 1; attempt 2 begins"),
        "{said}"
    );

    // The exit is that of the last attempt.
    let (summary, ..) = run(
        &["--restart", "on-failure:1"],
        &counting("exit $((40 + n))"),
    );
    assert_eq!(
        (&summary["exit_status"], &summary["attempts"]),
        (&json!(42), &json!(2))
    );

    // A success ends it, unless it is always restarted.
    let (summary, ..) = run(&["--restart", "on-failure"], &counting("true"));
    assert_eq!(
        (&summary["exit_status"], &summary["attempts"]),
        (&json!(0), &json!(1))
    );
    let (summary, ..) = run(&["--restart", "always:1"], &counting("true"));
    assert_eq!(
        (&summary["exit_status"], &summary["attempts"]),
        (&json!(0), &json!(2))
    );

    // Only some failures count.
    let only = [
        "--restart",
        "on-failure:2",
        "--retry-if",
        "75",
        "--retry-if",
        "out of (memory|files)",
    ];
    for (command, attempts) in [
        (counting("exit 1"), 1),
        (counting("[ $n = 2 ] && exit 1; exit 75"), 2),
        (counting("[ $n = 1 ] && echo it is out of files; exit 3"), 2),
    ] {
        let (summary, _, said) = run(&only, &command);
        assert_eq!(
            summary["attempts"], attempts,
            "{command}: {summary}\n{said}"
        );
    }

    // A signal and a time limit end it, and start nothing.
    let job = spawn(&sshd, &["--restart", "always", HOST, "--", "sleep 600"]);
    told(&sshjobs(&sshd, &["signal", &job, "TERM"]));
    sshjobs(&sshd, &["wait", &job]);
    assert_eq!(
        entry(&sshd, &job)["exit_signal"],
        "TERM",
        "{}",
        entry(&sshd, &job)
    );
    let (summary, ..) = run(&["--restart", "always", "--timeout", "2"], "sleep 600");
    assert_eq!(summary["state"], "timed_out", "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_needs_neither_a_connection_nor_this_machine() {
    let sshd = Sshd::start().await;
    let tried = sshd.path("tried").display().to_string();
    let cut = sshd.path("cut").display().to_string();
    // The first attempt fails once the connection is cut, and the second succeeds.
    let command = format!(
        "echo began; [ -e {tried} ] && exit 0; : >{tried}; while [ ! -e {cut} ]; do sleep 0.1; done; exit 9"
    );
    let job = spawn(&sshd, &["--restart", "on-failure", HOST, "--", &command]);
    sshd.cut();
    fs::write(&cut, "").unwrap();

    let waited = sshjobs(&sshd, &["wait", &job]);
    assert!(waited.status.success(), "{waited:?}");
    let log = told(&sshjobs(&sshd, &["log", &job]));
    assert_eq!(
        log.lines().filter(|line| *line == "began").count(),
        2,
        "{log}"
    );
    assert_eq!(entry(&sshd, &job)["attempts"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_started_again_after_a_reboot_if_that_is_wanted() {
    let sshd = Sshd::start().await;
    let command = "echo began with $WORD; sleep 600";
    let words = [
        "--restart",
        "on-failure",
        "--restart-after-reboot",
        "--env",
        "WORD=secret-word",
    ];
    let job = spawn(&sshd, &[&words[..], &[HOST, "--", command]].concat());
    let spool = sshd.spool(&job);
    eventually("it runs", async || {
        fs::read_to_string(spool.join("out")).is_ok_and(|out| out.contains("began"))
    })
    .await;
    // A follower that saw only half of the reboot would report a loss.
    let followers = spool.parent().unwrap().join("f");
    eventually("no process follows it", async || {
        fs::read_dir(&followers).unwrap().count() == 0
    })
    .await;
    // The traces of a reboot: no process, and the id of an earlier boot.
    let supervisor = fs::read_to_string(spool.join("sup")).unwrap();
    let fields: Vec<&str> = supervisor.split_whitespace().collect();
    let own = fs::read_to_string(spool.join("pid")).unwrap();
    for process in [fields[0], own.split_whitespace().next().unwrap()] {
        let process = nix::unistd::Pid::from_raw(process.parse().unwrap());
        nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL).ok();
    }
    fs::write(
        spool.join("sup"),
        format!("{} {} another-boot.1\n", fields[0], fields[1]),
    )
    .unwrap();

    let log = || told(&sshjobs(&sshd, &["log", &job]));
    eventually("it runs again", async || {
        log().matches("began with secret-word").count() == 2
    })
    .await;
    let both = told(&sshjobs(&sshd, &["tail", &job, "--stream", "stderr"]));
    assert!(
        both.contains("the host was rebooted; attempt 2 begins"),
        "{both}"
    );
    let running = entry(&sshd, &job);
    assert_eq!(
        (&running["state"], &running["attempts"]),
        (&json!("running"), &json!(2))
    );
    told(&sshjobs(&sshd, &["signal", &job, "KILL"]));
    sshjobs(&sshd, &["wait", &job]);
    assert_eq!(entry(&sshd, &job)["attempts"], 2);
    let names: Vec<_> = fs::read_dir(&spool).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(
        !names.iter().any(|name| name == "order.kept" || name == "order"),
        "{names:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_comes_before_the_time_limit() {
    let sshd = Sshd::start().await;
    let command = "trap 'echo saved; exit 0' USR1; echo began; while :; do sleep 0.1; done";
    let started = std::time::Instant::now();
    let words = [
        "run",
        "-n",
        "--timeout",
        "60",
        "--warn",
        "USR1@58s",
        HOST,
        "--",
        command,
    ];
    let output = sshjobs(&sshd, &words);
    assert_eq!(told(&output), "began\nsaved\n");
    assert!(started.elapsed() < Duration::from_secs(50));

    // A shell that waits for the program does not die of it.
    let program =
        "sh -c 'trap \"echo saved; exit 7\" USR1; while :; do sleep 0.1; done'; echo exit $?";
    let words = [
        "run",
        "-n",
        "--timeout",
        "60",
        "--warn",
        "USR1@58s",
        HOST,
        "--",
        program,
    ];
    assert_eq!(told(&sshjobs(&sshd, &words)), "saved\nexit 7\n");

    for wrong in [
        &["--warn", "USR1@5"][..],
        &["--timeout", "5", "--warn", "USR1@9"],
        &["--timeout", "9", "--warn", "X@2"],
    ] {
        let output = sshjobs(&sshd, &[&["run"], wrong, &[HOST, "--", "true"]].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_is_set_up_first_and_its_failure_is_told_apart() {
    let sshd = Sshd::start().await;
    for durable in [&[][..], &["--durable"]] {
        let run = |setup: &str, command: &str| {
            let words = [
                &["run", "-n", "--env-setup", setup],
                durable,
                &[HOST, "--", command],
            ];
            sshjobs(&sshd, &words.concat())
        };
        let output = run("greeting=hello; cd /", "echo $greeting $PWD");
        assert_eq!(told(&output), "hello /\n");
        let failed = run("false", "echo not reached");
        assert_eq!(failed.status.code(), Some(125), "{failed:?}");
        let said = String::from_utf8_lossy(&failed.stderr);
        assert!(
            said.contains("env_setup has failed with exit status 1"),
            "{said}"
        );
        assert!(failed.stdout.is_empty());
        assert_eq!(run("true", "exit 3").status.code(), Some(3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_sets_environments_up_by_host_and_by_tag() {
    let sshd = Sshd::start().await;
    sshd.alias(["gpu1", "gpu2"]);
    let config = sshd.path("config.toml");
    fs::write(
        &config,
        "[tags.gpu]\nenv_setup = \"W=tag\"\n[hosts.gpu1]\ntags = [\"gpu\"]\n\
         [hosts.gpu2]\ntags = [\"gpu\"]\nenv_setup = \"W=host\"\n",
    )
    .unwrap();
    let config = config.display().to_string();
    let run = |words: &[&str]| {
        let all = [
            &["--config", &config, "run", "-n"],
            words,
            &["--", "echo $W"],
        ]
        .concat();
        told(&sshjobs(&sshd, &all))
    };
    assert_eq!(run(&["gpu1"]), "tag\n");
    assert_eq!(run(&["gpu2"]), "host\n");
    assert_eq!(run(&["--env-setup", "W=call", "gpu2"]), "call\n");
    assert_eq!(run(&[HOST]), "\n");
    let mut of_fleet: Vec<String> = run(&["tag:gpu"]).lines().map(str::to_owned).collect();
    of_fleet.sort_unstable();
    assert_eq!(of_fleet, ["gpu1 | tag", "gpu2 | host"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_free_gpus_is_chosen() {
    let (few, many) = (GpuHost::with(1).await, GpuHost::with(2).await);
    let sshd = &few.sshd;
    sshd.alias(["few"]);
    let other = fs::read_to_string(many.sshd.ssh_config()).unwrap();
    sshd.append(&other.replacen(&format!("Host {HOST}"), "Host many", 1));
    let two = told(&sshjobs(
        sshd,
        &[
            "run",
            "-n",
            "--json",
            "--gpus",
            "2",
            "any(few,many)",
            "--",
            "true",
        ],
    ));
    let two: Value = serde_json::from_str(two.lines().last().unwrap()).unwrap();
    assert_eq!(two["host"], "many");

    let start = || {
        let words = [
            "spawn",
            "--json",
            "--gpus",
            "1",
            "any(few,many)",
            "--",
            "sleep 600",
        ];
        let started: Value = serde_json::from_str(&told(&sshjobs(sshd, &words))).unwrap();
        let job = started["job_id"].as_str().unwrap().to_owned();
        (entry(sshd, &job)["host"].as_str().unwrap().to_owned(), job)
    };
    let [first, second] = [start(), start()];
    assert_ne!(first.0, second.0);
    for (_, job) in [&first, &second] {
        eventually("it has its GPU", async || {
            entry(sshd, job)["state"] == "running"
        })
        .await;
    }
    let third = start();
    // Both hosts have one job, and only one has a free device.
    assert_eq!(third.0, "many");
    for (_, job) in [first, second, third] {
        told(&sshjobs(sshd, &["signal", &job, "KILL"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_gets_one_of_several_hosts() {
    let sshd = Sshd::start().await;
    sshd.alias(["gpu1", "gpu2"]);
    fs::write(
        sshd.path("config.toml"),
        "[hosts.gpu1]\ntags = [\"gpu\"]\n[hosts.gpu2]\ntags = [\"gpu\"]\n[hosts.gpu0]\naddress = \"127.0.0.1\"\nport = 1\ntags = [\"gpu\"]\n",
    )
    .unwrap();
    let config = sshd.path("config.toml").display().to_string();
    let call = |words: &[&str]| sshjobs(&sshd, &[&["--config", config.as_str()], words].concat());
    let spawn = |words: &[&str]| -> Value {
        let output = told(&call(
            &[&["spawn", "--json"], words, &["--", "sleep 600"]].concat(),
        ));
        serde_json::from_str(&output).unwrap()
    };

    // The host that can't be reached is passed over, and jobs spread.
    let first = spawn(&["any(tag:gpu)"]);
    let second = spawn(&["any:tag:gpu"]);
    let mut hosts = [
        first["host"].as_str().unwrap(),
        second["host"].as_str().unwrap(),
    ];
    hosts.sort_unstable();
    assert_eq!(hosts, ["gpu1", "gpu2"]);
    assert_eq!(first["chosen_from"], "any(tag:gpu)");
    // Or they are packed.
    let third = spawn(&["any(gpu1,gpu2)"]);
    let packed = spawn(&["--pack", "any(gpu1,gpu2)"]);
    assert_eq!(packed["host"], third["host"]);

    // A start that is repeated with its key is the same job, wherever it runs.
    let keyed = spawn(&["--key", "nightly", "any(gpu1,gpu2)"]);
    spawn(&["any(gpu1,gpu2)"]);
    assert_eq!(
        spawn(&["--key", "nightly", "any(gpu1,gpu2)"])["job_id"],
        keyed["job_id"]
    );

    let run = call(&["run", "-n", "any(tag:gpu,!gpu1)", "--", "echo ran"]);
    assert_eq!(told(&run), "ran\n");
    let none = call(&["run", "-n", "any(gpu0)", "--", "true"]);
    assert_eq!(none.status.code(), Some(255));
    assert!(
        String::from_utf8_lossy(&none.stderr).contains("none of gpu0 can be reached"),
        "{none:?}"
    );
    let unknown = call(&["run", "any(tag:none)", "--", "true"]);
    let error = String::from_utf8_lossy(&unknown.stderr);
    assert!(error.contains("has the tag \"none\""), "{error}");
}

/// An sshd on a host with a fake nvidia-smi.
struct GpuHost {
    sshd: Sshd,
    place: tempfile::TempDir,
}

impl GpuHost {
    async fn with(count: usize) -> Self {
        let place = tempfile::tempdir().unwrap();
        let devices: String = (0..count)
            .map(|n| format!("GPU-{n}{n}, NVIDIA A100-SXM4-40GB, 40960, 0, 0, 30\n"))
            .collect();
        // The use is that in the file `use`.
        let program = format!(
            "#!/bin/sh\ncase $1 in --query-gpu=utilization*) echo \"$(cat {}/use 2>/dev/null || echo 80), 2048, 61\";;\n\
             --query-gpu=*) cat <<X\n{devices}X\nesac\n",
            place.path().display()
        );
        let bin = place.path().join("bin");
        write(&bin.join("nvidia-smi"), &program);
        fs::set_permissions(bin.join("nvidia-smi"), PermissionsExt::from_mode(0o755)).unwrap();
        // Other users may have to enter it.
        fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let options = format!(
            "SetEnv SHLVL=1 XDG_STATE_HOME={}/state PATH={}:{}",
            place.path().display(),
            bin.display(),
            std::env::var("PATH").unwrap()
        );
        let sshd = Sshd::with(&options).await;
        Self { sshd, place }
    }

    /// The directory of all jobs on the host.
    fn spool(&self) -> PathBuf {
        let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        self.place.path().join("state/sshjobs/spool").join(machine.trim())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_gets_free_gpus_and_others_wait_for_them() {
    let host = GpuHost::with(3).await;
    let sshd = &host.sshd;
    let first = spawn(
        sshd,
        &[
            "--gpus",
            "2",
            HOST,
            "--",
            "echo $CUDA_VISIBLE_DEVICES; sleep 600",
        ],
    );
    eventually("it runs", async || {
        entry(sshd, &first)["state"] == "running"
    })
    .await;
    assert_eq!(entry(sshd, &first)["gpus"], json!(["GPU-00", "GPU-11"]));
    let log = || told(&sshjobs(sshd, &["log", &first]));
    eventually("it sees its GPUs", async || log() == "GPU-00,GPU-11\n").await;
    let listed = told(&sshjobs(sshd, &["hosts", "--gpus", HOST]));
    assert_eq!(listed.matches(&first).count(), 2, "{listed}");
    assert_eq!(listed.matches("free").count(), 1, "{listed}");

    // The third is free, but not for two.
    let second = spawn(
        sshd,
        &["--gpus", "2:a100", HOST, "--", "echo $CUDA_VISIBLE_DEVICES"],
    );
    // Also a process that does not wait itself knows why, once the host was asked.
    eventually("it waits for two", async || {
        let waiting = entry(sshd, &second);
        assert_eq!(waiting["state"], "queued", "{waiting}");
        waiting["reason"] == "needs 2 of 3 GPUs on web1"
    })
    .await;
    let third = sshjobs(
        sshd,
        &[
            "run",
            "-n",
            "--gpus",
            "1:40GB",
            HOST,
            "--",
            "echo $CUDA_VISIBLE_DEVICES",
        ],
    );
    assert_eq!(told(&third), "GPU-22\n");

    // The claim ends with the job.
    told(&sshjobs(sshd, &["signal", &first, "KILL"]));
    let waited = sshjobs(sshd, &["wait", &second]);
    assert!(waited.status.success(), "{waited:?}");
    let log = told(&sshjobs(sshd, &["log", &second]));
    assert_eq!(log.split(',').count(), 2, "{log}");

    // More than there are, or than fit.
    for (wanted, part) in [
        ("4", "has 3 GPUs, of which 3 fit"),
        ("1:H100", "of which 0 fit"),
        ("1:80GB", "of which 0 fit"),
    ] {
        let refused = sshjobs(sshd, &["run", "-n", "--gpus", wanted, HOST, "--", "true"]);
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && error.contains(part), "{error}");
    }
    let wrong = sshjobs(sshd, &["run", "--gpus", "0", HOST, "--", "true"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_of_a_supervisor_that_was_killed_is_free_again() {
    let host = GpuHost::with(1).await;
    let sshd = &host.sshd;
    let first = spawn(sshd, &["--gpus", "1", HOST, "--", "sleep 600"]);
    eventually("it runs", async || {
        entry(sshd, &first)["state"] == "running"
    })
    .await;
    let spool = host.spool().join(&first);
    let supervisor = fs::read_to_string(spool.join("sup")).unwrap();
    let own = fs::read_to_string(spool.join("pid")).unwrap();
    for process in [&supervisor, &own] {
        let process = process.split_whitespace().next().unwrap().parse().unwrap();
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(process),
            nix::sys::signal::Signal::SIGKILL,
        )
        .ok();
    }
    // It is lost, and its claim is taken over.
    let waited = sshjobs(sshd, &["wait", &first]);
    assert!(!waited.status.success());
    let run = sshjobs(
        sshd,
        &[
            "run",
            "-n",
            "--gpus",
            "1",
            HOST,
            "--",
            "echo $CUDA_VISIBLE_DEVICES",
        ],
    );
    assert_eq!(told(&run), "GPU-00\n");
}

/// As a server leaves it that is killed between the claim and the start.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_without_a_job_holds_a_gpu_for_a_minute() {
    let host = GpuHost::with(1).await;
    let sshd = &host.sshd;
    let job = spawn(sshd, &["--gpus", "1", HOST, "--", "true"]);
    told(&sshjobs(sshd, &["wait", &job]));
    let claim = host.spool().join("gpu/GPU-00/never-started");
    write(&claim, "");
    let listed = || told(&sshjobs(sshd, &["hosts", "--gpus", HOST]));
    assert!(listed().contains("never-started"), "{}", listed());

    let old = std::time::SystemTime::now() - Duration::from_secs(120);
    fs::File::options().write(true).open(&claim).unwrap().set_modified(old).unwrap();
    assert!(!listed().contains("never-started"), "{}", listed());
    let words = [
        "run",
        "-n",
        "--gpus",
        "1",
        HOST,
        "--",
        "echo $CUDA_VISIBLE_DEVICES",
    ];
    assert_eq!(told(&sshjobs(sshd, &words)), "GPU-00\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_use_of_gpus_is_sampled_on_the_host_and_told_when_they_are_idle() {
    let host = GpuHost::with(2).await;
    let sshd = &host.sshd;
    let told_file = sshd.path("told");
    let config = sshd.path("config.toml");
    fs::write(
        &config,
        format!(
            "[notify.targets.me]\ncommand = [\"sh\", \"-c\", \"cat >>{}\"]\n\
             [[notify.rules]]\ntargets = [\"me\"]\non = [\"gpu_idle\"]\ngpu_idle_s = 5\n",
            told_file.display()
        ),
    )
    .unwrap();
    let mut agent = McpClient::start_with(&sshd.ssh_config(), &config);
    let spin = "i=0; while :; do i=$((i+1)); done";
    let started = agent.ok(
        "ssh_spawn",
        json!({"host": HOST, "gpus": "2", "durable": true, "command": spin}),
    );
    let job = started["job_id"].as_str().unwrap().to_owned();
    let usage = async || {
        let inspected = told(&sshjobs(sshd, &["inspect", "--json", &job]));
        serde_json::from_str::<Value>(&inspected).unwrap()["usage"].clone()
    };
    eventually("it has two samples", async || {
        usage().await.as_array().is_some_and(|samples| samples.len() >= 2)
    })
    .await;
    let usage = usage().await;
    let newest = usage.as_array().unwrap().last().unwrap();
    assert_eq!(
        newest["gpus"],
        json!({"percent": 80, "memory_mib": 2048, "temperature": 61})
    );
    assert!(newest["cpu_percent"].as_u64().unwrap() > 0, "{usage}");
    assert!(newest["memory_kib"].as_u64().unwrap() > 100, "{usage}");
    assert!(!told_file.exists());

    write(&host.place.path().join("use"), "0");
    eventually("it is told", async || {
        fs::read_to_string(&told_file).is_ok_and(|text| text.contains("\"gpu_idle\""))
    })
    .await;
    // A model gets the newest sample only.
    let reply = agent.ok("ssh_jobs", json!({"job_id": job}));
    assert_eq!(
        reply["jobs"][0]["usage"].as_array().unwrap().len(),
        1,
        "{reply}"
    );
    agent.ok("ssh_signal", json!({"job_id": job, "signal": "KILL"}));
    agent.ok("ssh_wait", json!({"job_ids": [job]}));
    // The series stays with the job, and people see it.
    let inspected = told(&sshjobs(sshd, &["inspect", &job]));
    assert!(
        inspected.contains("GPU heat") && inspected.contains("61 °C"),
        "{inspected}"
    );
    assert!(inspected.contains("GPU-00, GPU-11"), "{inspected}");
}

/// Of two concurrent claims at most one succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_claims_at_once_one_gets_the_devices() {
    let host = GpuHost::with(2).await;
    let sshd = &host.sshd;
    // Installs the script.
    let job = spawn(sshd, &["--gpus", "1", HOST, "--", "true"]);
    sshjobs(sshd, &["wait", &job]);
    let spool = host.spool();
    let script = fs::read_dir(spool.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.is_file() && path.extension().is_none())
        .unwrap();
    let state = spool.parent().unwrap().parent().unwrap().to_owned();
    let racing = format!(
        "for n in $(seq 1000); do \
           for j in a b; do sh {s} {d} claim race-$j-$n GPU-00 GPU-11 >{d}/$j.out & done; wait; \
           ok=$(cat {d}/a.out {d}/b.out | grep -c 'sshjobs-spool ok'); \
           files=$(ls {d}/spool/*/gpu/* 2>/dev/null | grep -c race); \
           [ $ok -le 1 ] && [ $files -eq $((ok * 2)) ] || {{ echo \"round $n: $ok claims, $files files\"; exit 1; }}; \
           total=$((${{total:-0}} + ok)); rm -rf {d}/spool/*/gpu; \
         done; echo $total",
        s = script.display(),
        d = state.display()
    );
    let raced = std::process::Command::new("sh").args(["-c", &racing]).output().unwrap();
    let total: u32 = String::from_utf8_lossy(&raced.stdout)
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("{raced:?}"));
    assert!(total > 100, "rounds have winners: {total}");
}
