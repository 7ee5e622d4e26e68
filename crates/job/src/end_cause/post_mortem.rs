//! Parses a host's report about processes that its kernel killed.

use std::time::Duration;

/// A host's report about processes that its kernel killed because memory ran out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostMortem {
    /// Time of the report in seconds since 1970, by the host's clock.
    pub now: Option<u64>,
    /// Time since the boot.
    pub up: Option<Duration>,
    /// Number of such processes since the boot, if the host counts them.
    pub kills_since_boot: Option<u64>,
    /// Those that the kernel's log names, oldest first. `None` if the account may not read that log.
    pub logged: Option<Vec<KilledProcess>>,
}

/// A process that the kernel killed because memory ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KilledProcess {
    /// Its id on the host.
    pub pid: u32,
    /// Name of its program, at most 15 bytes.
    pub name: String,
    /// Time since it was killed.
    pub ago: Duration,
}

impl PostMortem {
    /// Reads the output of [`post_mortem_script`](crate::post_mortem_script). `None` if the script did
    /// not finish.
    pub fn parse(stdout: &str) -> Option<Self> {
        let (_, rest) = stdout.split_once("sshjobs-postmortem:begin\n")?;
        let (lines, _) = rest.split_once("sshjobs-postmortem:end")?;
        let mut report = Self::default();
        for line in lines.lines() {
            let (word, value) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "now" => report.now = value.parse().ok(),
                "up" => report.up = seconds(value),
                "kills" => report.kills_since_boot = value.parse().ok(),
                "log" => report.logged = Some(Vec::new()),
                "killed" => {
                    let process = report.up.and_then(|up| KilledProcess::parse(value, up));
                    if let Some(logged) = &mut report.logged {
                        logged.extend(process);
                    }
                }
                _ => {}
            }
        }
        Some(report)
    }
}

impl KilledProcess {
    /// Reads a line of the kernel's log, such as `[73837.225234] Memory cgroup out of memory: Killed
    /// process 10628 (perl) total-vm:105540kB, …`.
    fn parse(line: &str, up: Duration) -> Option<Self> {
        let (time, message) = line.trim_start().strip_prefix('[')?.split_once(']')?;
        let (_, process) = message.split_once("Killed process ")?;
        let (pid, name) = process.split_once(" (")?;
        let (name, _) = name.split_once(')')?;
        Some(Self {
            pid: pid.parse().ok()?,
            name: name.to_owned(),
            ago: up.saturating_sub(seconds(time.trim())?),
        })
    }
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_log_names_the_processes_that_it_killed() {
        let report = PostMortem::parse(
            "welcome\nsshjobs-postmortem:begin\nnow 1700000000\nup 1000.50\nkills 2\nlog\n\
             killed [  990.500000] Memory cgroup out of memory: Killed process 10628 (perl) total-vm:105540kB\n\
             killed [999.5] host kernel: Out of memory: Killed process 7 (a (b) total-vm:1kB\n\
             killed [yesterday] Killed process 8 (c)\nsshjobs-postmortem:end\n",
        );

        let killed = |pid, name: &str, ago| KilledProcess {
            pid,
            name: name.to_owned(),
            ago: Duration::from_secs(ago),
        };
        let expected = PostMortem {
            now: Some(1_700_000_000),
            up: Some(Duration::from_millis(1_000_500)),
            kills_since_boot: Some(2),
            logged: Some(vec![killed(10628, "perl", 10), killed(7, "a (b", 1)]),
        };
        assert_eq!(report, Some(expected));
    }

    #[test]
    fn a_log_that_may_not_be_read_is_no_empty_log() {
        let hidden = PostMortem::parse("sshjobs-postmortem:begin\nsshjobs-postmortem:end");
        assert_eq!(hidden, Some(PostMortem::default()));
        assert_eq!(
            PostMortem::parse("sshjobs-postmortem:begin\nup 1.0\n"),
            None
        );
    }
}
