use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A program on a terminal of tmux's. Dropping it ends both.
pub struct Tmux {
    socket: tempfile::TempDir,
}

impl Tmux {
    /// Runs a command of sh on a terminal of this size. After it comes "ended with N".
    pub fn start(command: &str, (cols, rows): (u16, u16)) -> Self {
        let socket =
            tempfile::Builder::new().prefix("sshjobs-tmux").tempdir().expect("a directory");
        let tmux = Self { socket };
        let command = format!("{command}; echo \"ended with $?\"; exec sleep 600");
        let (cols, rows) = (cols.to_string(), rows.to_string());
        tmux.run(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &cols,
            "-y",
            &rows,
            &command,
        ]);
        tmux
    }

    /// Presses keys, as tmux names them: "q", "Enter", "Escape", "C-c".
    pub fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Types text as it is.
    pub fn text(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
    }

    pub fn resize(&self, (cols, rows): (u16, u16)) {
        self.run(&[
            "resize-window",
            "-x",
            &cols.to_string(),
            "-y",
            &rows.to_string(),
        ]);
    }

    /// Text of the screen.
    pub fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// The same with what colours it.
    pub fn coloured(&self) -> String {
        self.run(&["capture-pane", "-p", "-e"])
    }

    /// Waits until the screen has all of these.
    pub async fn shows(&self, texts: &[&str]) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(90);
        loop {
            let screen = self.screen();
            if texts.iter().all(|text| screen.contains(text)) {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{texts:?} is not on the screen:\n{screen}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn run(&self, arguments: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S")
            .arg(socket(self.socket.path()))
            .args(arguments)
            .env("TERM", "xterm-256color");
        let output = tmux.output().expect("`make test` installs tmux");
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn socket(directory: &Path) -> std::path::PathBuf {
    directory.join("socket")
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(socket(self.socket.path())).arg("kill-server").status().ok();
    }
}
