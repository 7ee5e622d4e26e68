use super::exit::{Exit, print};

/// Prints the version if that is the only argument. This avoids building the description of the
/// command line, which takes some milliseconds.
pub fn answer_version() -> Option<Exit> {
    let mut words = std::env::args_os().skip(1);
    let is_asked = words.next().is_some_and(|word| word == "--version" || word == "-V");
    (is_asked && words.next().is_none())
        .then(|| print(concat!("sshjobs ", env!("CARGO_PKG_VERSION"))))
}
