//! The configuration file. An unknown key is an error with file, line and the nearest known key.

use std::io;
use std::path::{Path, PathBuf};

use sshjobs_base::bounded_file::read_trusted_text;
use sshjobs_base::toml_text::{explain, line_of};
use sshjobs_core::jobs::Config;

/// Why a configuration file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    /// It can't be read.
    #[error("can't read {}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It has an error.
    #[error("{}:{line}: {message}", file.display())]
    Mistake {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Description of the error. For a misspelt key it names the nearest known one.
        message: String,
    },
}

/// Reads `file`. Without it, reads the user's own (`$XDG_CONFIG_HOME/sshjobs/config.toml`), which need
/// not exist.
///
/// # Errors
/// [`ConfigFileError`].
pub fn load_config(file: Option<&Path>) -> Result<Config, ConfigFileError> {
    let (path, optional) = match file {
        Some(file) => (file.to_owned(), false),
        None => match Config::file() {
            Some(file) => (file, true),
            None => return Ok(Config::default()),
        },
    };
    match read_trusted_text(&path) {
        Ok(text) => parse_config(&path, &text),
        // Any other error is reported, so that a file without read permission is not ignored.
        Err(error) if optional && error.kind() == io::ErrorKind::NotFound => Ok(Config::default()),
        Err(source) => Err(ConfigFileError::Unreadable { file: path, source }),
    }
}

/// Parses a configuration. `file` is for error messages, and paths are relative to its directory.
///
/// # Errors
/// [`ConfigFileError::Mistake`].
pub fn parse_config(file: &Path, text: &str) -> Result<Config, ConfigFileError> {
    let mistake = |line, message| ConfigFileError::Mistake {
        file: file.to_owned(),
        line,
        message,
    };
    let mut config: Config = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        mistake(line_of(text, at), explain(error.message()))
    })?;
    if let Some(directory) = file.parent() {
        config.resolve_files(directory);
    }
    if let Some(name) = config.secrets.keys().find(|name| !is_name_of_secret(name)) {
        let message =
            format!("{name:?} is not a name for a secret; use letters, digits, '_', '.' and '-'");
        return Err(mistake(
            line_of(text, text.find("[secrets").unwrap_or(0)),
            message,
        ));
    }
    match config.validate() {
        Some(message) => {
            // The message begins with the key. If the file omits that key, line 1 is reported.
            let key = message.split(' ').next().unwrap_or_default();
            Err(mistake(line_of_key(text, key), message))
        }
        None => Ok(config),
    }
}

/// The line that sets a key, or 1 if the file omits the key.
fn line_of_key(text: &str, key: &str) -> usize {
    let index = text.lines().position(|line| sets_key(line, key));
    index.map_or(1, |index| index + 1)
}

fn sets_key(line: &str, key: &str) -> bool {
    let after_key = line.trim_start().strip_prefix(key);
    after_key.is_some_and(|rest| rest.trim_start().starts_with('='))
}

fn is_name_of_secret(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

#[cfg(test)]
mod tests {
    use sshjobs_core::jobs::SecretSource;

    use super::*;

    fn error(text: &str) -> String {
        parse_config(Path::new("c.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_full_file_is_read() {
        let config = parse_config(
            Path::new("c.toml"),
            "allow_any_host = true\n[limits]\nmax_jobs = 5\n[defaults]\nmax_lines = 10\n[hosts.web1]\nport = 2222\n",
        )
        .unwrap();
        assert_eq!((config.limits.max_jobs, config.defaults.max_lines), (5, 10));
        assert_eq!(config.hosts["web1"].port, Some(2222));
    }

    #[test]
    fn a_misspelt_key_is_named_with_file_line_and_the_nearest_known_key() {
        let text = "[limits]\nmax_jobs = 5\nring_buffer_line = 10\n";
        assert_eq!(
            error(text),
            "c.toml:3: unknown key \"ring_buffer_line\"; did you mean \"ring_buffer_lines\"?"
        );
        assert_eq!(
            error("[limit]\n"),
            "c.toml:1: unknown key \"limit\"; did you mean \"limits\"?"
        );
        assert_eq!(
            error("[hosts.a]\nprot = 22\n"),
            "c.toml:2: unknown key \"prot\"; did you mean \"port\"?"
        );
        assert_eq!(error("zzz = 1\n"), "c.toml:1: unknown key \"zzz\"");
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_its_line() {
        assert!(error("[limits]\nmax_jobs = 0\n").starts_with("c.toml:2: max_jobs must be"));
        assert_eq!(
            error("[defaults]\nmax_lines = 20000\n"),
            "c.toml:2: max_lines must be 1 to 10000"
        );
        assert_eq!(
            error("[limits]\nmax_jobs = -1\n"),
            "c.toml:2: found -1; expected a number that is not negative"
        );
        assert_eq!(
            error("[hosts.a]\nport = \"22\"\n"),
            "c.toml:2: found string \"22\", expected a whole number"
        );
        assert!(
            error("\n[limits]\nring_buffer_bytes = 1000\n")
                .starts_with("c.toml:3: ring_buffer_bytes must be")
        );
        assert!(error("[hosts.a]\nport = 70000\n").starts_with("c.toml:2: "));
    }

    #[test]
    fn a_secret_written_into_the_configuration_is_not_repeated() {
        for value in [
            "\"hunter2\"",
            "{ hunter2 = true }",
            "{ hunter2 = \"x\" }",
            "[\"hunter2\"]",
            "{ env = \"A\", file = \"hunter2\" }",
        ] {
            let error = error(&format!("[hosts.a]\npassword = {value}\n"));
            assert!(
                error.starts_with("c.toml:2: a secret comes from") && !error.contains("hunter2"),
                "{error}"
            );
        }
        let config = parse_config(
            Path::new("c.toml"),
            "[hosts.a]\npassword = { command = \"pass hunter2\" }\n",
        )
        .unwrap();
        assert!(config.hosts["a"].password.is_some() && !format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn a_named_secret_has_one_source_and_is_never_repeated() {
        for (value, expected) in [
            ("\"hunter2\"", "a secret is a table"),
            ("{ value = \"hunter2\" }", "unknown key \"value\""),
            ("{ file = \"hunter2\", env = \"A\" }", "a secret is a table"),
            ("{ file = [\"hunter2\"] }", "a secret is a table"),
            (
                "{ env = \"A\", scrub = \"hunter2\" }",
                "hosts and callers of a secret are lists",
            ),
            ("{ env = \"A\", hosts = [\",\"] }", "hosts has \",\""),
            ("{ env = \"A\", hosts = [] }", "hosts is empty"),
            (
                "{ env = \"A\", callers = [\"role:nobody\"] }",
                "unknown role \"nobody\"",
            ),
        ] {
            let error = error(&format!("\n[secrets]\ndb = {value}\n"));
            assert!(
                error.starts_with("c.toml:3: ") && error.contains(expected),
                "{error}"
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(error("[secrets.'a b']\nenv = \"A\"\n").contains("not a name for a secret"));

        let text = "[secrets.db]\nfile = \"db\"\nhosts = [\"prod-*\"]\ncallers = [\"role:admin\"]\nscrub = false\n";
        let config = parse_config(Path::new("/etc/c.toml"), text).unwrap();
        let secret = &config.secrets["db"];
        assert_eq!(secret.source, SecretSource::File("/etc/db".into()));
        assert!(secret.hosts.contain("prod-1", &[]) && !secret.hosts.contain("web1", &[]));
        assert!(!secret.scrub && secret.callers.len() == 1);
    }

    #[test]
    fn a_named_file_must_exist() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        assert!(matches!(
            load_config(Some(&missing)),
            Err(ConfigFileError::Unreadable { .. })
        ));
    }
}
