//! The script that looks for processes that the kernel killed because memory ran out.

/// Reports processes that the kernel of a host killed because memory ran out.
///
/// Between the lines `begin` and `end` each line is a word and perhaps a value: `now` (seconds since 1970),
/// `up` (seconds since the boot), `kills` (number of such processes since then), `log` if the account may
/// read the kernel's log, and then `killed` with a line of that log for each process, at most the last 20.
const POST_MORTEM: &str = r#"
if log=$(dmesg 2>/dev/null) || log=$(journalctl -q -k -b -o short-monotonic 2>/dev/null); then readable=y; else readable=; fi
echo sshjobs-postmortem:begin
echo "now $(date +%s)"
{ read -r up _ </proc/uptime; } 2>/dev/null && echo "up $up"
sed -n 's/^oom_kill /kills /p' /proc/vmstat 2>/dev/null
if [ -n "$readable" ]; then
  echo log
  printf '%s\n' "$log" | grep 'Killed process [0-9]' | tail -n 20 | cut -c 1-300 | sed 's/^/killed /'
fi
echo sshjobs-postmortem:end
"#;

/// A POSIX shell script that reports processes that the kernel killed because memory ran out. Works
/// only on Linux.
pub fn post_mortem_script() -> &'static str {
    POST_MORTEM
}
