use std::io::IsTerminal;

/// Whether what is written to a stream is coloured: on terminals, unless `NO_COLOR` says no, and wherever `CLICOLOR_FORCE` says yes.
pub(super) fn are_wanted(stream: &impl IsTerminal) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_forced = is_set("CLICOLOR_FORCE") && std::env::var_os("CLICOLOR_FORCE").is_some_and(|v| v != "0");
    if is_set("NO_COLOR") { false } else { is_forced || stream.is_terminal() }
}

/// Text in a colour (SGR, ECMA-48), if colours are wanted.
pub(super) fn paint(text: &str, colour: u8, is_wanted: bool) -> String {
    if is_wanted { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}

pub(super) const RED: u8 = 31;
pub(super) const GREEN: u8 = 32;
pub(super) const YELLOW: u8 = 33;
/// Colours of hosts, which red is none of: that is for errors.
pub(super) const OF_HOSTS: [u8; 10] = [36, 33, 32, 35, 34, 96, 93, 92, 95, 94];
