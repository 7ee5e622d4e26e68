//! Scripts that a caller sends with a job: the host keeps one in a private file while the job runs.

use crate::Nonce;

/// The program that a script names in its first line (`#!`), and as the second word its options, if any,
/// as Linux passes them. Empty if it names none.
///
/// ```
/// use sshjobs_job::interpreter_of;
/// let words = interpreter_of("#!/usr/bin/env -S python3 -u\nprint(1)");
/// assert_eq!(words, ["/usr/bin/env", "-S python3 -u"]);
/// assert!(interpreter_of("echo hello").is_empty());
/// ```
pub fn interpreter_of(script: &str) -> Vec<&str> {
    let first = script.lines().next().and_then(|line| line.strip_prefix("#!"));
    let words = first.unwrap_or_default().trim().splitn(2, [' ', '\t']);
    words.map(str::trim).filter(|word| !word.is_empty()).collect()
}

/// The line behind the command of a script: it removes the file, and ends the shell as the command ended.
pub(crate) const END_OF_SCRIPT: &str = "sshjobs_end $?";

/// Shell text that writes a script to a file, sets [`SCRIPT`](crate::SCRIPT) to its path, and removes the file when the
/// shell ends. The shell must not turn into the command, or nothing would remove it.
///
/// Files that a killed job has left are removed by a script a week later: the job of a younger one may run.
pub(crate) fn lay_down(script: &str) -> String {
    let end = Nonce::new();
    let (length, end) = (script.len(), end.as_str());
    format!(
        r#"SSHJOBS_SCRIPT=$(umask 077
sshjobs_dir=${{XDG_CACHE_HOME:-$HOME/.cache}}/sshjobs/scripts
mkdir -p "$sshjobs_dir" 2>/dev/null
find "$sshjobs_dir" -type f -mtime +7 -exec rm -f {{}} + 2>/dev/null
mktemp "$sshjobs_dir/XXXXXXXXXX" 2>/dev/null || mktemp "${{TMPDIR:-/tmp}}/sshjobs.XXXXXXXXXX") || exit 125
export SSHJOBS_SCRIPT
trap 'rm -f "$SSHJOBS_SCRIPT"' EXIT
trap : HUP INT TERM
sshjobs_end() {{
trap - HUP INT TERM EXIT
rm -f "$SSHJOBS_SCRIPT"
case $1 in 129) kill -s HUP $$ ;; 130) kill -s INT $$ ;; 143) kill -s TERM $$ ;; esac
exit "$1"
}}
head -c {length} >"$SSHJOBS_SCRIPT" <<'{end}'
{script}
{end}
[ "$(wc -c <"$SSHJOBS_SCRIPT")" -eq {length} ] || exit 125
"#
    )
}
