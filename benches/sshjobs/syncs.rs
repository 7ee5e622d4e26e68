//! Syncs of a working tree beside rsync over ssh, to a host that is near and to one that is far away.

use std::path::Path;
use std::process::Command;

use crate::files::{Peer, best, far_config, ours_with, write_large, write_tree};
use crate::report::Report;
use crate::support::Sshd;

/// The two programs, over one link.
struct Programs {
    ours: String,
    rsync: String,
    /// Where the host is.
    place: &'static str,
}

pub(crate) async fn syncs(report: &mut Report) {
    let sshd = Sshd::start().await;
    let far = far_config(&sshd).await;
    let near = sshd.ssh_config();
    for (config, place) in [(near, "near"), (far, "50 ms away")] {
        let programs = Programs {
            ours: format!("{} sync -q", ours_with(&sshd, &config)),
            rsync: format!("rsync -rlt --delete -e 'ssh -F {}'", config.display()),
            place,
        };
        programs.many_files(report, &sshd);
        programs.one_byte(report, &sshd);
    }
}

impl Programs {
    /// Command lines that bring `there` to the state of `here`.
    fn lines(&self, here: &Path, there: [&Path; 2]) -> [String; 2] {
        let here = here.display();
        let [ours, rsync] = there.map(Path::display);
        [
            format!("{} {here} web1:{ours}", self.ours),
            format!("{} {here}/ web1:{rsync}", self.rsync),
        ]
    }

    fn row(&self, report: &mut Report, what: &str, bar: &str, lines: [&str; 2], fresh: [&Path; 2]) {
        let seconds = ["sshjobs", "rsync"].map(|name| {
            let index = usize::from(name == "rsync");
            let peer = Peer {
                name,
                line: lines[index].to_owned(),
                target: fresh[index],
            };
            best(&peer).0
        });
        report.row(
            &format!("{what}, host {}: rsync -e ssh", self.place),
            &format!("{:.2} s", seconds[0]),
            &format!("{:.2} s", seconds[1]),
            Some(seconds[0] / seconds[1]),
            bar,
        );
    }

    fn many_files(&self, report: &mut Report, sshd: &Sshd) {
        let here = sshd.path("sync-tree");
        write_tree(&here);
        let there = [sshd.path("sync-ours"), sshd.path("sync-rsync")];
        let there = [there[0].as_path(), there[1].as_path()];
        let lines = self.lines(&here, there);
        let lines = [lines[0].as_str(), lines[1].as_str()];
        self.row(report, "first sync of 10,000 files", "≤ 1", lines, there);
        let nothing = [Path::new(""); 2];
        self.row(
            report,
            "sync of 10,000 unchanged files",
            "≤ 0.5",
            lines,
            nothing,
        );
        for directory in [&here, there[0], there[1]] {
            std::fs::remove_dir_all(directory).unwrap();
        }
    }

    fn one_byte(&self, report: &mut Report, sshd: &Sshd) {
        let here = sshd.path("sync-large");
        std::fs::create_dir_all(&here).unwrap();
        let file = here.join("large");
        write_large(&file);
        let there = [sshd.path("large-ours"), sshd.path("large-rsync")];
        let there = [there[0].as_path(), there[1].as_path()];
        let lines = self.lines(&here, there);
        for line in &lines {
            let sent = Command::new("sh").args(["-c", line]).status().unwrap();
            assert!(sent.success(), "{line}");
        }
        // Another byte each time. Its time changes, too.
        let change = format!(
            "printf x | dd of={} bs=1 seek=$(($$ % 1000000 * 1000)) conv=notrunc",
            file.display()
        );
        let changed = lines.map(|line| format!("{change}; {line}"));
        let nothing = [Path::new(""); 2];
        let changed = [changed[0].as_str(), changed[1].as_str()];
        self.row(
            report,
            "one changed byte of 1 GiB",
            "≤ 1.2",
            changed,
            nothing,
        );
        for directory in [&here, there[0], there[1]] {
            std::fs::remove_dir_all(directory).unwrap();
        }
    }
}
