//! `sshjobs config`: the effective configuration, and where each value comes from.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::reference::{ConfigKey, SetValue, keys, values_in};
use crate::ProgramExit;
use crate::args::ConfigArgs;
use crate::exit::print;
use crate::json::pretty_json;
use crate::terminal::padded;
use sshjobs_base::bounded_file::read_text;
use sshjobs_core::jobs::{Config, printable};

/// Values of the command line and of variables, which override those of the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The configuration file, and what named it.
    pub file: Option<Override>,
    /// The ssh_config file, and what named it.
    pub ssh_config: Option<Override>,
    /// The state directory, and what named it.
    pub state_dir: Option<Override>,
}

/// A value of the command line or of a variable.
#[derive(Clone, Debug)]
pub struct Override {
    /// The value.
    pub value: PathBuf,
    /// The option or the variable.
    pub source: &'static str,
}

/// An effective value and its source.
struct Effective {
    table: String,
    name: String,
    /// As TOML. `None` if there is none.
    value: Option<String>,
    source: String,
}

/// Column in which the sources begin.
const SOURCE_COLUMN: usize = 44;

/// Prints the effective configuration.
pub fn config(config: &Config, overrides: &Overrides, args: &ConfigArgs) -> ProgramExit {
    let file = file_of(overrides);
    let text = file.as_deref().and_then(|file| read_text(file).ok());
    let values = effective(config, overrides, file.as_deref(), text.as_deref());
    if args.json {
        let values: Vec<Value> = values.iter().map(as_json).collect();
        let file = file.as_deref().map(|file| file.display().to_string());
        return print(&pretty_json(
            &json!({"file": file, "exists": text.is_some(), "values": values}),
        ));
    }

    let mut shown = String::new();
    if let Some(file) = &file {
        let existence = if text.is_some() {
            ""
        } else {
            " does not exist; `sshjobs init` writes one"
        };
        shown.push_str(&format!(
            "# {}{existence}\n",
            printable(&file.display().to_string())
        ));
    }
    let mut table = "";
    for value in &values {
        if value.table != table {
            shown.push_str(&format!("\n[{}]\n", printable(&value.table)));
            table = &value.table;
        }
        let set = match &value.value {
            Some(text) => format!("{} = {text}", value.name),
            None => format!("# {}", value.name),
        };
        let set = printable(&set);
        shown.push_str(&format!(
            "{}  # {}\n",
            padded(&set, SOURCE_COLUMN),
            printable(&value.source)
        ));
    }
    print(shown.trim_end())
}

/// The configuration file, which need not exist.
fn file_of(overrides: &Overrides) -> Option<PathBuf> {
    match &overrides.file {
        Some(named) => Some(named.value.clone()),
        None => Config::file(),
    }
}

fn effective(
    config: &Config,
    overrides: &Overrides,
    file: Option<&Path>,
    text: Option<&str>,
) -> Vec<Effective> {
    let set = text.map(values_in).unwrap_or_default();
    let name = file.map(|file| file.display().to_string()).unwrap_or_default();
    let mut values: Vec<Effective> = keys()
        .into_iter()
        .map(|key| {
            let in_file =
                set.iter().find(|value| value.table == key.table && value.name == key.name);
            overridden(&key, overrides)
                .or_else(|| in_file.map(|value| set_in_file(value, &name)))
                .unwrap_or_else(|| default(key, config))
        })
        .collect();
    values.extend(
        set.iter()
            .filter(|value| value.table.starts_with("hosts."))
            .map(|value| set_in_file(value, &name)),
    );
    values
}

fn set_in_file(value: &SetValue, file: &str) -> Effective {
    Effective {
        table: value.table.clone(),
        name: value.name.clone(),
        value: Some(value.text.clone()),
        source: format!("{file}:{}", value.line),
    }
}

/// The value of the command line or of a variable, if it has one.
fn overridden(key: &ConfigKey, overrides: &Overrides) -> Option<Effective> {
    let named = match (key.table.as_str(), key.name.as_str()) {
        ("", "ssh_config") => overrides.ssh_config.as_ref()?,
        ("", "state_dir") => overrides.state_dir.as_ref()?,
        _ => return None,
    };
    Some(Effective {
        table: key.table.clone(),
        name: key.name.clone(),
        value: Some(as_toml(&named.value)),
        source: named.source.to_owned(),
    })
}

fn default(key: ConfigKey, config: &Config) -> Effective {
    let (value, source) = match key.name.as_str() {
        "state_dir" => (config.state_dir().map(|path| as_toml(&path)), "default"),
        "ssh_config" => (None, "default: the user's and the system's file"),
        _ => (key.default, "default"),
    };
    Effective {
        table: key.table,
        name: key.name,
        value,
        source: source.to_owned(),
    }
}

fn as_toml(path: &Path) -> String {
    toml::Value::from(path.display().to_string()).to_string()
}

fn as_json(value: &Effective) -> Value {
    json!({
        "table": value.table,
        "key": value.name,
        "value": value.value,
        "source": value.source,
    })
}
