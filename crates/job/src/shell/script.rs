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

/// Shell text that writes a script to a file, sets [`SCRIPT`](crate::SCRIPT) to its path, and removes the file when the
/// shell ends. The shell must not turn into the command, or nothing would remove it.
///
/// Files that a killed job has left are removed by the next script, a day later.
pub(crate) fn lay_down(script: &str) -> String {
    let end = Nonce::new();
    let (length, end) = (script.len(), end.as_str());
    format!(
        r#"SSHJOBS_SCRIPT=$(umask 077
sshjobs_dir=${{XDG_CACHE_HOME:-$HOME/.cache}}/sshjobs/scripts
mkdir -p "$sshjobs_dir" 2>/dev/null
find "$sshjobs_dir" -type f -mtime +0 -exec rm -f {{}} + 2>/dev/null
mktemp "$sshjobs_dir/XXXXXXXXXX" 2>/dev/null || mktemp "${{TMPDIR:-/tmp}}/sshjobs.XXXXXXXXXX") || exit 125
export SSHJOBS_SCRIPT
trap 'rm -f "$SSHJOBS_SCRIPT"' EXIT
for sshjobs_signal in HUP INT TERM; do
trap "rm -f \"\$SSHJOBS_SCRIPT\"; trap - EXIT $sshjobs_signal; kill -s $sshjobs_signal \$\$" $sshjobs_signal
done
unset sshjobs_signal
head -c {length} >"$SSHJOBS_SCRIPT" <<'{end}'
{script}
{end}
"#
    )
}
