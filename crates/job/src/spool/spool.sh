# sshjobs: durable jobs, in POSIX sh. Installed once, under its hash. $1 is the state directory, $2 a verb. Variables that a job
# could inherit begin with sj_. The file is executed, or sourced by a shell that has set sj_F to its path, which saves a process.
# `job` and `start` come first, each after the functions that it calls, so that the shell need not parse the rest for them.
# Jobs run with the mask of the login shell.
sj_M=${sj_M:-$(umask)}
export sj_M
umask 077
# bash and ksh end a `read` after TMOUT seconds; ksh93 forgets it only once it was 0. The job gets it back.
sj_tmout=${sj_tmout:-${TMOUT:-}}
export sj_tmout
TMOUT=0
unset TMOUT
case $0 in */spool/*) sj_F=$0 ;; esac
sj_D=$1 sj_V=$2
shift 2
{ read -r sj_H </proc/sys/kernel/hostname; } 2>/dev/null || sj_H=$(uname -n)
sj_S=$sj_D/spool/$sj_H
sj_nl='
'
say() { printf 'sshjobs-spool %s\n' "$*"; }

# For a caller of a cluster: $sj_T is its fencing token for the name $sj_K of this host. A token is noted before others are looked
# at, so that of two callers at once the one with the older token sees the newer one, or has come before it.
if [ -n "${sj_T:-}" ]; then
  : 2>/dev/null >"$sj_S/lease.$sj_K.$sj_T"
  for sj_l in "$sj_S/lease.$sj_K".*; do
    sj_l=${sj_l##*.}
    case $sj_l in *[!0-9]*|'') continue ;; esac
    if [ "$sj_l" -gt "$sj_T" ]; then
      rm -f "$sj_S/lease.$sj_K.$sj_T"
      say fenced
      exit 1
    fi
    [ "$sj_l" -eq "$sj_T" ] || rm -f "$sj_S/lease.$sj_K.$sj_l"
  done
fi

start_time() { # Sets $sj_t to the start time of process $1, and $sj_g to its group. Fails for a zombie, and if it does not exist.
  sj_t=
  if { read -r sj_t </proc/"$1"/stat; } 2>/dev/null; then
    sj_t=${sj_t##*') '}
    case $sj_t in Z*|X*) return 1 ;; esac
    set -- $sj_t
    sj_t=${20} sj_g=$3
  else
    # With hidepid, /proc hides other processes. It works here, so this one is hidden or gone.
    [ ! -r /proc/self/stat ] || return 1
    sj_t=$(LC_ALL=C TZ=UTC0 ps -o stat= -o lstart= -p "$1" 2>/dev/null | tr -s ' ' _)
    case $sj_t in ''|Z*|_Z*) return 1 ;; esac
    sj_t=${sj_t#*_}
  fi
}
decode() { # Sets $sj_d to the text that $1 encodes, including newlines at its end.
  sj_d=$(printf '%b.' "$1")
  sj_d=${sj_d%.}
}

# Verb job: JOB PTY BECOME MARK. The order is on file descriptor 6. With BECOME its script comes on stdin, once the user is changed.
if [ "$sj_V" = job ]; then
  sj_J=$sj_S/$1
  [ -z "$sj_tmout" ] || { TMOUT=$sj_tmout; export TMOUT; }
  unset sj_tmout
  start_time $$
  printf '%s %s\n' $$ "$sj_t" >"$sj_J/pid"
  if [ "$3" != - ]; then
    exec 6<&- 5<&-
    gate=${3#*:} user=${3##*:}
    length=${gate#*:}
    length=${length%%:*} gate=${gate%%:*}
    # The mark shows in the command line that these processes belong to the job.
    script="umask $sj_M; SSHJOBS_JOB=$4; export SSHJOBS_JOB; echo $gate-passed >&2; echo $gate-passed; eval \"\$(dd bs=1 count=$length 2>/dev/null)\""
    case $3 in
    sudo:*) exec sudo -S -H -p "$gate-password:" -u "$user" -- /bin/sh -c "$script" ;;
    doas:*) exec doas -u "$user" -- /bin/sh -c "$script" ;;
    su:*) exec su -s /bin/sh -c "$script" -- "$user" ;;
    esac
  fi
  IFS= read -r SSHJOBS_JOB <&6
  export SSHJOBS_JOB
  IFS= read -r sj_cwd <&6
  IFS= read -r sj_cmd <&6
  while IFS= read -r sj_line <&6 && [ -n "$sj_line" ]; do
    decode "${sj_line#*=}"
    case $sj_line in
    SSHJOBS_SCRIPT=*)
      # A script that was sent with the job: its file, and not its text, which is too long for a variable.
      printf %s "$sj_d" >"$sj_J/script" || exit 125
      sj_d=$sj_J/script
      ;;
    esac
    export "${sj_line%%=*}=$sj_d"
  done
  exec 6<&- 5<&-
  if [ -n "$sj_cwd" ]; then
    decode "$sj_cwd"
    CDPATH= cd -- "$sj_d" 2>/dev/null || { printf "sshjobs: can't enter %s\n" "$sj_d" >&2; exit 125; }
  fi
  decode "$sj_cmd"
  # Made here, with the mask of the spool: the shell on the terminal has that of the login shell.
  [ "$2" = none ] || { : >"$sj_J/tty"; : >"$sj_J/rc"; }
  umask "$sj_M"
  unset sj_M
  case $2 in
  none) exec "${SHELL:-/bin/sh}" -c "$sj_d" ;;
  esac
  IFS=: read -r TERM cols rows <<X
$2
X
  export TERM
  # The name of the terminal is for the verb resize. A signal also ends script(1), whose own exit status then says nothing: the
  # shell between both notes that of the command, and ignores signals until then.
  SSHJOBS_COMMAND=$sj_d SSHJOBS_FILES=$sj_J exec script -qefc "stty cols $cols rows $rows; tty >\"\$SSHJOBS_FILES/tty\"; trap : HUP INT QUIT TERM; \"\${SHELL:-/bin/sh}\" -c \"\$SSHJOBS_COMMAND\"; r=\$?; echo \$r >\"\$SSHJOBS_FILES/rc\"; exit \$r" /dev/null
fi

tried() { # Succeeds if the command "$@" has succeeded on this host before, or does now. A program in PATH may be a shim with nothing
  # behind it. A success is noted in works.$1.
  command -v "$1" >/dev/null 2>&1 || return
  [ ! -f "$sj_S/works.$1" ] || return 0
  "$@" >/dev/null 2>&1 || return
  # If the note can't be written, the next start tries again.
  { printf '' >"$sj_S/works.$1"; } 2>/dev/null || :
}
# session: runs a command in a session of its own that nothing waits for. A shell starts background commands with INT and QUIT
# ignored, which no shell can undo and the job would inherit. env(1) resets them if it is new enough (coreutils 8.31), which is
# tried each time: with a note from another version of it, no job would start.
case $sj_V in start|supervise|guard|follow|verdict|claim) # Other verbs start no session.
  if tried setsid true; then
    session() {
      sj_r=
      ! env --default-signal=INT,QUIT true 2>/dev/null || sj_r='env --default-signal=INT,QUIT'
      setsid -f $sj_r "$@" 2>/dev/null && exit 0
      # This setsid has no -f, or no longer runs.
      setsid true 2>/dev/null || rm -f "$sj_S/works.setsid"
      # A background command has no stdin, unless its descriptor was kept.
      exec 9<&0
      setsid $sj_r "$@" <&9 9<&- &
      exit 0
    }
    led() { measured setsid "$@"; }
  elif perl -MPOSIX -e 1 2>/dev/null; then
    session() { exec perl -MPOSIX -e 'fork and exit; POSIX::setsid(); exec @ARGV' "$@"; }
    led() { measured perl -MPOSIX -e 'POSIX::setsid(); exec @ARGV' "$@"; }
  elif python3 -c 'import os; os.setsid' 2>/dev/null; then
    session() { exec python3 -c 'import os,sys; os.fork() and os._exit(0); os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])' "$@"; }
    led() { measured python3 -c 'import os,sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])' "$@"; }
  else
    session() { say error this host has neither setsid nor perl nor python3; exit 1; }
  fi
esac

gate_seconds=30 # Time to change the user.
decide_gate() { # Notes the result, unless there is one.
  (set -C; printf '%s\n' "$1" >"$sj_J/gate") 2>/dev/null
}
tell_gate() { # Waits until the user is changed, and answers if it is not.
  end=$(($(date +%s) + gate_seconds))
  # The file exists a moment before it has its line.
  while [ ! -s "$sj_J/gate" ]; do
    [ -d "$sj_J" ] || { say become ended; return 1; }
    sleep 0.03 2>/dev/null || sleep 1
    now=$(date +%s)
    # After this no command is started, however late the host's PAM answers.
    [ "$now" -lt "$end" ] || decide_gate timeout
    # The shell that made the file was killed before it wrote the line.
    [ "$now" -lt $((end + 5)) ] || break
  done
  g=
  read -r g <"$sj_J/gate"
  [ "$g" != passed ] || return 0
  say become "${g:-timeout}"
  rm -rf "$sj_J"
  return 1
}
lay_down() { # Writes the first files of a job, exit.r last. Arguments: those of start.
  { [ "$9" = - ] || printf '%s\n' "${9%%:*} ${9##*:}" >"$sj_J/as"; } &&
  printf '%s\n' "$mark" "$sj_cwd" "$sj_cmd" "$env" >"$sj_J/order" && printf '%s\n' "$mark" >"$sj_J/mark" &&
    printf '' >"$sj_J/out" && printf '' >"$sj_J/err" && { [ "$3" != text ] || printf '%b' "$text" >"$sj_J/in.text"; } &&
    printf '%-200s\n' pending >"$sj_J/exit.r"
}

# Verb start. Lines: JOB FOLLOWER STDIN TIMEOUT GRACE QUOTA PTY DRAIN BECOME RESTART WARN; mark; cwd; command; NAME=VALUE ...; nothing; stdin;
# password; ".". BECOME is "-", or PROGRAM:GATE:LENGTH:USER; the command is then a script of this length, with directory and variables.
if [ "$sj_V" = start ]; then
  # The order may arrive later than this shell starts, or never.
  read -r sj_line || exit 0
  set -- $sj_line
  sj_J=$sj_S/$1
  IFS= read -r mark && IFS= read -r sj_cwd && IFS= read -r sj_cmd
  env=
  while IFS= read -r sj_line && [ -n "$sj_line" ]; do env=$env$sj_line$sj_nl; done
  IFS= read -r text
  IFS= read -r sj_pw
  IFS= read -r dot
  [ "$dot" = . ] || exit 1
  # The directory may have been removed in the meantime.
  [ -f "$sj_F" ] || { say missing; exit 1; }
  if [ "$9" != - ] && case $(command -v printf) in /*) ;; *) false ;; esac; then
    # The password would be an argument of another program.
    say unsupported "its /bin/sh has no printf of its own, by which passwords are passed on"
    exit 1
  fi
  case $7 in
  none) ;;
  *) command -v script >/dev/null 2>&1 || { say unsupported "script(1) is not installed there, which a terminal needs"; exit 1; } ;;
  esac
  # The connection may be lost at any moment; the start is completed all the same. (Traps, because ignored signals would be
  # inherited by the job.)
  trap : HUP INT TERM PIPE
  if mkdir "$sj_J" 2>/dev/null; then
    # The second attempt captures the error message.
    lay_down "$@" 2>/dev/null || why=$(lay_down "$@" 2>&1) || { rm -rf "$sj_J"; say error "${why##*: }"; exit 1; }
    new=y
  elif [ -d "$sj_J" ]; then
    # A repeated start: completes an earlier one that was killed before its supervisor ran.
    new=
    [ -f "$sj_J/claim" ] || [ ! -f "$sj_J/exit.r" ] || new=y
  else
    why=$(mkdir "$sj_J" 2>&1)
    say error "${why##*: }"
    exit 1
  fi
  # A follower that has ended, perhaps because its spool was removed, can't be notified.
  started=
  if [ "$9" != - ]; then
    # The password is in no file and in no command line.
    [ -z "$new" ] || printf '%s\n' "$sj_pw" | (exec >/dev/null 2>&1; session /bin/sh "$sj_F" "$sj_D" supervise "$@")
    started=y
    tell_gate || exit 0
  fi
  told=
  [ ! -f "$sj_S/f/$2" ] || { echo "$1 0 0" >>"$sj_S/f/$2" && told=' told'; }
  say "ok$told"
  [ -n "$new" ] && [ -z "$started" ] || exit 0
  exec </dev/null >/dev/null 2>&1
  session /bin/sh "$sj_F" "$sj_D" supervise "$@"
fi

boot() { # Sets $b to an id of this boot of this machine or container.
  if { read -r b </proc/sys/kernel/random/boot_id; } 2>/dev/null; then
    start_time 1
    b=$b.$sj_t
  else
    b=$(sysctl -n kern.bootsessionuuid 2>/dev/null || LC_ALL=C TZ=UTC0 who -b | tr -s ' ' _)
  fi
}
same_boot() { # Whether $1 is the boot $b. Where either could not see process 1, its start time says nothing.
  [ "$1" != "$b" ] || return 0
  [ "${1%%.*}" = "${b%%.*}" ] || return 1
  case ${1#*.}:${b#*.} in :*|*:) ;; *) return 1 ;; esac
}
is_alive() { # Whether process $1, started at $2, is alive.
  [ -n "$1" ] && start_time "$1" && [ "$sj_t" = "$2" ]
}
group_lives() { # Whether group $p has a process, perhaps of another user.
  m=$(LC_ALL=C; kill -0 "-$p" 2>&1) && return
  case $m in *ermitted*) ;; *) return 1 ;; esac
}
find_cgroup() { # Sets $sj_events to the file with the events of the memory control group (version 2 or 1) of this shell, if any.
  sj_events=
  {
    while IFS=: read -r _ sj_name sj_path; do
      case $sj_name in
      '') sj_file=/sys/fs/cgroup$sj_path/memory.events ;;
      memory) sj_file=/sys/fs/cgroup/memory$sj_path/memory.oom_control ;;
      *) continue ;;
      esac
      [ ! -r "$sj_file" ] || sj_events=$sj_file
    done </proc/self/cgroup
  } 2>/dev/null
}
kills_in() { # Sets $sj_kills to the number of processes that the kernel has killed because memory ran out, from file $1, or to "-".
  sj_kills=-
  { while read -r sj_name sj_n; do [ "$sj_name" != oom_kill ] || sj_kills=$sj_n; done <"$1"; } 2>/dev/null
}
new_kills() { # Prints how many more than $1 there are in $2.
  case $1$2 in *-*|'') echo - ;; *) echo $(($2 - $1)) ;; esac
}
# measured: runs a command below a small perl process, which writes the peak memory of the command's largest process, in KiB, to the
# file peak. A shell can't ask for it (getrusage). The number of that system call depends on the machine for which perl was built
# (e_machine of its ELF header). The supervisor reads in that file how far perl came: "pending" until perl is about to fork,
# then "forked". It is padded, so that later writes need no space on the disk.
# Perl takes another name, so that a command such as `pkill perl` does not end it.
sj_perl='
  my ($file, @command) = @ARGV;
  delete $ENV{PERL_BADLANG} if $ENV{PERL_BADLANG} eq "";
  open(my $out, "+<:raw", $file) or exit 126;
  sub note { sysseek($out, 0, 0); syswrite($out, sprintf("%-20s\n", $_[0])) }
  my %getrusage = (62 => 98, 183 => 165, 243 => 165, 258 => 165);
  my ($header, $call) = ("");
  if (open(my $perl, "<:raw", "/proc/self/exe")) { read($perl, $header, 20) }
  $call = $getrusage{unpack("v", substr($header, 18))} if $header =~ /^\x7fELF\x02\x01/ && length $header == 20;
  unless ($call) { note("-"); exec @command; exit 127 }
  my @ignored = qw(HUP INT QUIT TERM PIPE USR1 USR2 ALRM);
  my %before = map { $_ => $SIG{$_} } @ignored;
  $SIG{$_} = "IGNORE" for @ignored;
  note("forked");
  my $pid = fork;
  unless ($pid) {
    note("-") unless defined $pid;
    $SIG{$_} = $before{$_} || "DEFAULT" for @ignored;
    exec @command;
    exit 127;
  }
  $0 = "sshjobs-measure";
  waitpid $pid, 0;
  my $status = $?;
  my $usage = "\0" x 144;
  my $peak = syscall($call, -1, $usage) == 0 ? (unpack "q5", $usage)[4] : "-";
  note($peak . ($status & 127 ? " signal" : " exit"));
  exit($status & 127 ? 128 + ($status & 127) : $status >> 8);
'
measured() {
  # Options in PERL5OPT may change what perl does.
  if [ -z "${PERL5OPT:-}$sj_unmeasured" ] && tried perl -e 1 && printf '%-20s\n' pending 2>/dev/null >"$sj_J/peak"; then
    # Perl must not warn of an unknown locale on the job's stderr. It removes the variable again.
    [ -n "${PERL_BADLANG:-}" ] || { PERL_BADLANG=; export PERL_BADLANG; }
    exec perl -e "$sj_perl" "$sj_J/peak" "$@" 6<&6
  fi
  exec "$@" 6<&6
}
run_job() { # Runs the job, measured unless $sj_unmeasured is set. Arguments: those of the verb job.
  # In a subshell, so that this shell's message about its end is discarded. A Korn shell passes on only named descriptors.
  (led /bin/sh "$sj_F" "$sj_D" job "$@") <&5 6<&6 >>"$sj_J/out" 2>>"$sj_J/err"
}
pause() { sleep 0.1 2>/dev/null || sleep 1; }
add_usage_below() { # Adds clock ticks and pages of process $1 and all below it to $ticks and $pages.
  todo="$1 "
  while [ -n "$todo" ]; do
    x=${todo%% *} todo=${todo#* }
    { read -r stat <"/proc/$x/stat"; } 2>/dev/null || continue
    set -- ${stat##*') '}
    # A name with a line end cuts the line.
    [ $# -ge 22 ] || continue
    ticks=$((ticks + ${12} + ${13} + ${14} + ${15})) pages=$((pages + ${22}))
    for x in "/proc/$x/task/"*/children; do
      n=
      # The file has no line end.
      { read -r n <"$x"; } 2>/dev/null || :
      [ -z "$n" ] || todo="$n $todo"
    done
  done
}
sample_usage() { # Notes use of resources in the file series while the supervisor lives, for a job with the GPUs $1: lines with the time,
  # percent of a processor, KiB, and percent, MiB and °C of each GPU. A long job keeps fewer and fewer of them.
  every=5 count=0 before=- limited=
  ! command -v timeout >/dev/null 2>&1 || limited='timeout 10'
  hz=$(getconf CLK_TCK 2>/dev/null) || hz=100
  page=$(getconf PAGESIZE 2>/dev/null) || page=4096
  clock
  last=$now
  while :; do
    clock
    while [ $((now - last)) -lt $every ]; do
      sleep 1
      kill -0 $$ 2>/dev/null || exit 0
      clock
    done
    ticks=0 pages=0 p=
    { read -r p _ <"$sj_J/pid"; } 2>/dev/null
    [ -z "$p" ] || add_usage_below "$p"
    [ "$before" != - ] && [ "$ticks" -ge "$before" ] || before=$ticks
    cpu=$(((ticks - before) * 100 / hz / (now - last)))
    before=$ticks last=$now
    n=$($limited nvidia-smi --query-gpu=utilization.gpu,memory.used,temperature.gpu --format=csv,noheader,nounits -i "$1" 2>/dev/null | tr -d ' ' | tr '\n' ' ')
    echo "$(date +%s) $cpu $((pages * (page / 1024))) $n" 2>/dev/null >>"$sj_J/series"
    count=$((count + 1))
    if [ $count -ge 480 ]; then
      sed -n 'p;n' "$sj_J/series" 2>/dev/null >"$sj_J/series.new" && mv -f "$sj_J/series.new" "$sj_J/series"
      count=240 every=$((every * 2))
    fi
  done
}

as_user() { # Runs the script $2 as the user of job $1, if the host asks for no password.
  { read -r m u <"$sj_S/$1/as"; } 2>/dev/null || return
  case $m in
  sudo|doas) "$m" -n -u "$u" -- /bin/sh -c "$2" </dev/null >/dev/null 2>&1 ;;
  *) return 1 ;;
  esac
}
signal_marked() { # A script that sends signal $1 to all processes that carry $mark.
  echo "unset GREP_OPTIONS; for e in \$(grep -slF SSHJOBS_JOB=$mark /proc/[0-9]*/environ 2>/dev/null); do e=\${e#/proc/}; kill -$1 \"\${e%/environ}\" 2>/dev/null; done; :"
}
end_tree_of_user() { # Like end_tree, for job $1 of another user. The account must not end the program that changed the user:
  # its death would orphan that user's processes.
  as_user "$1" "$(signal_marked TERM)" || {
    rm -f "$sj_S/$1/why"
    echo "sshjobs: this job should end now, but its processes belong to ${u:-another user}, and $m asks for a password: end it with \`sshjobs signal\`" >>"$sj_S/$1/err"
    return
  }
  i=0
  while [ $i -lt "$2" ] && is_alive "$p" "$t0"; do pause; i=$((i + 1)); done
  as_user "$1" "$(signal_marked KILL)"
}
end_tree() { # Ends the processes of job $1: TERM, then KILL after $2 tenths of a second, also to those that left its group.
  { read -r p t0 <"$sj_S/$1/pid"; } 2>/dev/null || return
  { read -r mark <"$sj_S/$1/mark"; } 2>/dev/null
  [ -n "$mark" ] || return
  [ ! -f "$sj_S/$1/as" ] || { end_tree_of_user "$@"; return; }
  # Without its leader the group's number may have been reused; the job's processes are found by their mark.
  is_alive "$p" "$t0" || { end_marked; return; }
  kill -s TERM -- "-$p" 2>/dev/null || kill -TERM "-$p" 2>/dev/null
  i=0
  while [ $i -lt "$2" ] && kill -0 "-$p" 2>/dev/null && is_alive "$p" "$t0"; do pause; i=$((i + 1)); done
  kill -s KILL -- "-$p" 2>/dev/null || kill -KILL "-$p" 2>/dev/null
  end_marked
}
end_marked() { # Kills all processes of this account that carry $mark.
  eval "$(signal_marked KILL)"
}

serves() { # Notes that process $1 serves this job, and ends with it, as $sj_who: its number and its start time.
  sj_who=
  start_time "$1" || return
  sj_who=$1:$sj_t sj_serving="$sj_serving $1:$sj_t"
  echo "$sj_serving" 2>/dev/null >"$sj_J/serving"
}
clock() { # Seconds of a clock that nobody sets, if there is one, in $now.
  { read -r now _ </proc/uptime; } 2>/dev/null || now=$(date +%s)
  now=${now%.*}
}
end_these() { # Kills these processes, if alive. KILL, because some inherit TERM as ignored; they hold nothing that needs cleaning up.
  for sj_who in $1; do is_alive "${sj_who%%:*}" "${sj_who#*:}" && kill -s KILL "${sj_who%%:*}" 2>/dev/null; done
}
end_serving() { # Ends all that serve job $1. The file is for other processes: on a full disk it is empty.
  end_these "${sj_serving:-$(cat "$sj_S/$1/serving" 2>/dev/null)}"
}
end_writer() { # Ends a writer that waits for job $1 to read.
  { read -r w t0 c <"$sj_S/$1/in.lock/pid"; } 2>/dev/null && is_alive "$w" "$t0" && kill -s KILL "$w" "$c" 2>/dev/null
  rm -rf "$sj_S/$1/in.lock"
}
# Another user, by sudo, doas or su. The file gate.why has the last step: "answered" (the password was sent), "wrong" or "password" (one
# is needed); the file gate has the result: "passed", "timeout", or the reason, the exit status and the last words of the program.
is_prompt() { # Whether the program asks for a password: its last line is unfinished and has a colon at its end.
  last=$(tail -c 300 "$sj_J/err"; printf .)
  last=${last%.}
  case ${last##*"$sj_nl"} in
  *"$gate-password:") ;;
  *:|*': '|*：|*'： ')
    # It may be the start of a message.
    [ "$method" = su ] || return 1
    sleep 0.2 2>/dev/null || sleep 1
    now=$(tail -c 300 "$sj_J/err"; printf .)
    [ "$now" = "$last." ]
    ;;
  *) false ;;
  esac
}
pass_gate() { # Watches the program that changes the user: answers its prompt once and, when the user is changed, sends the script and
  # the text for stdin to descriptor 3. Output until then is not the command's. Argument: the kind of stdin.
  end=$(($(date +%s) + gate_seconds + 10))
  answered=
  while [ ! -f "$sj_J/gate" ]; do
    if grep -qs "$gate-passed" "$sj_J/err" && grep -qs "$gate-passed" "$sj_J/out"; then
      # The other user's shell waits for the script, so that nothing is printed between these lines.
      : >"$sj_J/out"
      : >"$sj_J/err"
      # Before the command, which may end at once: without this line it would count as not started.
      decide_gate passed || break
      printf '%b' "$sj_cmd" >&3
      # From here on others may write to stdin.
      [ "$1" != open ] || echo 0 >"$sj_J/in.n"
      [ "$1" = text ] || return
      exec 4<"$sj_J/in.text"
      rm -f "$sj_J/in.text"
      exec cat <&4 >&3
    fi
    if is_prompt; then
      why=wrong
      [ -n "$sj_pw" ] || why=password
      if [ -n "$answered" ] || [ -z "$sj_pw" ]; then
        echo "$why" >"$sj_J/gate.why"
        break
      fi
      : >"$sj_J/err"
      answered=y
      echo answered >"$sj_J/gate.why"
      printf '%s\n' "$sj_pw" >&3
    fi
    [ "$(date +%s)" -lt "$end" ] || { decide_gate timeout; break; }
    sleep 0.03 2>/dev/null || sleep 1
  done
  # The program, or the other user's shell, reads the end of its stdin, and ends.
  end_these "$keeper"
}
wants_end() { # Whether a person, the time limit or the quota has ended the job.
  k=
  { read -r k _ <"$sj_J/killreq"; } 2>/dev/null
  case $k in INT|QUIT|KILL|TERM) return 0 ;; esac
  [ -s "$sj_J/why" ]
}
is_retryable() { # Whether an attempt that has ended with status $1 meets a condition for restarts.
  [ -n "$statuses$pattern" ] || return 0
  case ,$statuses, in *,$1,*) return 0 ;; esac
  [ -n "$pattern" ] || return
  decode "$pattern"
  { tail -c "+$((out_size + 1))" "$sj_J/out"; tail -c "+$((err_size + 1))" "$sj_J/err"; } 2>/dev/null | grep -Eq -e "$sj_d" 2>/dev/null
}
restarts() { # Whether another attempt comes after exit status $1. Waits for its time.
  [ -n "$mode" ] && ! wants_end || return
  [ "$mode" = always ] || [ "$1" != 0 ] || return
  [ "$most" = - ] || [ "$attempt" -le "$most" ] || return
  [ "$1" = 0 ] || is_retryable "$1" || return
  # Processes that the attempt has left would hold what the next one needs.
  end_tree "$sj_job" "$sj_grace"
  clock
  [ $((now - began)) -lt 300 ] || delay=1
  of=
  [ "$most" = - ] || of=" of $((most + 1))"
  attempt=$((attempt + 1))
  echo "$attempt" 2>/dev/null >"$sj_J/attempt"
  [ -z "$(tail -c 1 "$sj_J/$log" 2>/dev/null)" ] || echo >>"$sj_J/$log"
  echo "sshjobs: attempt $((attempt - 1))$of has ended with exit status $1; attempt $attempt begins in $delay s" 2>/dev/null >>"$sj_J/$log"
  i=0
  while [ $i -lt $delay ]; do
    sleep 1
    ! wants_end || { attempt=$((attempt - 1)); return 1; }
    i=$((i + 1))
  done
  delay=$((delay < 32 ? delay * 2 : 60))
}
catches() { # Whether process $1 has a handler for the signal with the number $sj_n (Linux).
  while read -r sj_name sj_mask; do
    [ "$sj_name" != SigCgt: ] || { sj_mask=${sj_mask#????????}; [ $(((0x$sj_mask >> (sj_n - 1)) & 1)) = 1 ]; return; }
  done 2>/dev/null <"/proc/$1/status"
  return 1
}
warn_job() { # Sends signal $2 to the processes of job $1 that have a handler for it or, if none has one, to its process group. A shell
  # that only waits for its program has none, and would be killed.
  { read -r p t0 <"$sj_S/$1/pid" && read -r mark <"$sj_S/$1/mark"; } 2>/dev/null && [ -n "$mark" ] || return
  case $2 in HUP) sj_n=1 ;; INT) sj_n=2 ;; QUIT) sj_n=3 ;; USR1) sj_n=10 ;; USR2) sj_n=12 ;; ALRM) sj_n=14 ;; TERM) sj_n=15 ;; *) sj_n= ;; esac
  unset GREP_OPTIONS
  willing=
  for e in $(grep -slF "SSHJOBS_JOB=$mark" /proc/[0-9]*/environ 2>/dev/null); do
    e=${e#/proc/}
    e=${e%/environ}
    [ -z "$sj_n" ] || ! catches "$e" || willing="$willing $e"
  done
  if [ -n "$willing" ]; then
    kill -s "$2" $willing 2>/dev/null
  elif is_alive "$p" "$t0"; then
    kill -s "$2" -- "-$p" 2>/dev/null || kill "-$2" "-$p" 2>/dev/null
  fi
}
resume() { # Starts the job in directory $1 again after a reboot, if that is wanted. Of several callers one does it: who moves the file
  # sup. If its supervisor does not come within a minute, another caller moves it back.
  [ -f "$1/order.kept" ] && read -r sj_line <"$1/args" || return
  sj_J=$1
  ! wants_end || return
  sj_n=1
  { read -r sj_n <"$1/attempt"; } 2>/dev/null
  # The restarts are the tenth of the arguments of supervise.
  sj_most=$(set -- $sj_line; sj_most=${10#*:}; echo "${sj_most%%:*}")
  [ "$sj_most" = - ] || [ "${sj_n:-1}" -le "$sj_most" ] || return
  touch "$1/sup" 2>/dev/null
  mv "$1/sup" "$1/sup.old" 2>/dev/null || return 0
  rm -f "$1/claim"
  (exec </dev/null >/dev/null 2>&1; session /bin/sh "$sj_F" "$sj_D" supervise $sj_line)
}
look() { # The state of a job, in $x; empty while it runs.
  x= dir=$1
  if [ -f "$dir/exit" ]; then
    rc=
    { read -r rc k why at measures <"$dir/exit"; } 2>/dev/null
    x="exited $rc $k $why $at${measures:+ $measures}"
    # Other contents were not written by the supervisor.
    case $rc in ''|*[!0-9]*) x="lost supervisor_died" ;; esac
  elif [ ! -d "$dir" ]; then
    x="lost spool_gone"
  elif { read -r p t0 b0 _ <"$dir/sup"; } 2>/dev/null && [ -n "$b0" ]; then
    if ! same_boot "$b0"; then
      resume "$dir" || x="lost host_rebooted"
    elif ! is_alive "$p" "$t0" && [ ! -f "$dir/exit" ]; then
      x="lost supervisor_died"
    fi
  elif [ -f "$dir/sup.old" ] && [ ! -f "$dir/sup" ]; then
    [ -z "$(find "./$dir/sup.old" -prune -mmin +1 2>/dev/null)" ] || mv "$dir/sup.old" "$dir/sup" 2>/dev/null
  elif [ -n "$(find "./$dir" -prune -mmin +1 2>/dev/null)" ] && [ ! -f "$dir/sup" ]; then
    x="lost supervisor_died"
  fi
  # They have no reader any more, and may contain secrets.
  case $x in lost*) rm -f -- "$dir/order" "$dir/order.kept" "$dir/in.text" "$dir/script" ;; esac
}
guard() { # Ensures that one warden enforces the quotas of all jobs of the host.
  { read -r p t0 <"$sj_S/warden"; } 2>/dev/null && is_alive "$p" "$t0" && return
  (
    exec </dev/null >/dev/null 2>&1 3>&- 4>&- 5>&- 6>&- 7>&- 8>&-
    session /bin/sh "$sj_F" "$sj_D" warden
  ) &
}

case $sj_V in
supervise)
  sj_J=$sj_S/$1
  trap : HUP INT TERM PIPE
  mark=
  [ "$9" = - ] || { IFS= read -r sj_pw; exec </dev/null; }
  # At most one supervisor a job.
  set -C
  printf '' 2>/dev/null >"$sj_J/claim" || exit 0
  set +C
  boot
  start_time $$
  printf '%s %s %s\n' $$ "$sj_t" "$b" >"$sj_J/sup"
  keeper= gatekeeper= lost= sj_serving= mode= attempt=1 restart=${10:--} warn=${11:--}
  if [ "$restart" = - ]; then
    exec 6<"$sj_J/order"
  else
    # RESTART: MODE:MOST:REBOOT:STATUSES:PATTERN.
    IFS=: read -r mode most reboot statuses pattern <<X
$restart
X
    delay=1 log=err sj_job=$1 sj_grace=$5
    [ "$7" = none ] || log=out
    if [ -f "$sj_J/order.kept" ]; then
      # After a reboot. Files of the time before it would speak of another attempt.
      read -r attempt <"$sj_J/attempt"
      attempt=$((${attempt:-1} + 1))
      echo "sshjobs: the host was rebooted; attempt $attempt begins" >>"$sj_J/$log"
      (cd "$sj_J" && rm -rf sup.old in in.ctl in.eof in.lock in.w.* in.n limit warn serving why killreq peak rc)
    elif [ "$reboot" = y ]; then
      printf '%s\n' "$*" >"$sj_J/args"
      cp "$sj_J/order" "$sj_J/order.new" && mv "$sj_J/order.new" "$sj_J/order.kept"
    fi
    echo "$attempt" >"$sj_J/attempt"
    # Each attempt reads the order.
    order=$(cat "$sj_J/order.kept" 2>/dev/null || cat "$sj_J/order")
  fi
  rm -f "$sj_J/order"
  if [ "$3" = open ] || [ "$9" != - ]; then
    mkfifo "$sj_J/in"
    exec 3<>"$sj_J/in"
    if [ "$3" = open ]; then
      mkfifo "$sj_J/in.ctl"
      exec 8<>"$sj_J/in.ctl"
      # Holds stdin open until the end of input is requested. Both pipes are open before a writer can use them.
      (exec 6<&-; read -r _ <&8) &
      serves $!
      keeper=$sj_who
    fi
    if [ "$9" != - ]; then
      IFS= read -r mark <&6
      # The directory, which is in the script.
      IFS= read -r _ <&6
      IFS= read -r sj_cmd <&6
      gate=${9#*:} method=${9%%:*}
      gate=${gate%%:*}
      # Holds stdin open until the command has its text.
      (exec 6<&- 8<&-; pass_gate "$3") &
      serves $!
      gatekeeper=$sj_who
    else
      echo 0 >"$sj_J/in.n"
    fi
    exec 5<"$sj_J/in" 3>&- 8>&-
  elif [ "$3" = text ]; then
    exec 5<"$sj_J/in.text"
    [ -n "$mode" ] || rm -f "$sj_J/in.text"
  else
    exec 5</dev/null
  fi
  timer= limit=
  [ "$4" = 0 ] || {
    n=$4
    sleep 0.01 2>/dev/null || n=$((${4%.*} + 1))
    # The pipe ends with the sleep. Both are known here, so that nothing of them stays.
    mkfifo "$sj_J/limit" 2>/dev/null
    clock
    due=$((now + ${n%.*}))
    (
      exec 5<&- 6<&-
      if [ -p "$sj_J/limit" ]; then read -r _ <"$sj_J/limit"; else sleep "$n"; fi
      # The job may have killed the sleep.
      while clock && [ "$now" -lt "$due" ]; do sleep 1; done
      echo timeout >"$sj_J/why"
      end_tree "$1" "$5"
    ) &
    timer=$!
    serves $timer
    limit=$sj_who
    [ ! -p "$sj_J/limit" ] || { sleep "$n" 5<&- 6<&- >"$sj_J/limit" & serves $!; limit="$limit $sj_who"; }
    [ "$warn" = - ] || {
      n=${warn#*:}
      sleep 0.01 2>/dev/null || n=$((${n%.*} + 1))
      mkfifo "$sj_J/warn" 2>/dev/null
      due=$((now + ${n%.*}))
      (
        exec 5<&- 6<&-
        if [ -p "$sj_J/warn" ]; then read -r _ <"$sj_J/warn"; else sleep "$n"; fi
        while clock && [ "$now" -lt "$due" ]; do sleep 1; done
        warn_job "$1" "${warn%%:*}"
      ) &
      serves $!
      limit="$limit $sj_who"
      [ ! -p "$sj_J/warn" ] || { sleep "$n" 5<&- 6<&- >"$sj_J/warn" & serves $!; limit="$limit $sj_who"; }
    }
  }
  [ "$6" = 0 ] || {
    mkdir -p "$sj_S/q"
    # Some shells have 32-bit arithmetic.
    q=$6
    [ $((4294967296)) = 4294967296 ] || [ ${#q} -lt 10 ] || q=2000000000
    echo "$q $5" >"$sj_S/q/$1"
    guard
  }
  find_cgroup
  x=
  for n in "$sj_S"/gpu/*/"$1"; do
    [ ! -f "$n" ] || { n=${n%/*}; x="$x${x:+,}${n##*/}"; }
  done
  [ -z "$x" ] || { (exec 5<&- 6<&-; sample_usage "$x") & serves $!; }
  sj_unmeasured=
  while :; do
    kills_in "$sj_events"
    sj_kills_cgroup=$sj_kills
    kills_in /proc/vmstat
    sj_kills_host=$sj_kills
    if [ -n "$mode" ]; then
      exec 6<<X
$order
X
      [ "$3" != text ] || exec 5<"$sj_J/in.text"
      out_size=$(($(wc -c <"$sj_J/out"))) err_size=$(($(wc -c <"$sj_J/err")))
      clock
      began=$now
    fi
    run_job "$1" "$7" "$9" "$mark"
    rc=$?
    peak=- how=-
    { read -r peak how <"$sj_J/peak"; } 2>/dev/null
    case $peak in
    pending)
      peak=-
      if [ -z "$sj_unmeasured" ]; then
        # Perl did not start, and the job neither.
        rm -f "$sj_S/works.perl"
        sj_unmeasured=y
        continue
      fi
      ;;
    forked)
      # Perl was killed, or could not write the figure, which does not matter.
      peak=-
      [ "$rc" -le 128 ] || lost=y
      ;;
    esac
    [ ! -s "$sj_J/rc" ] || read -r rc <"$sj_J/rc"
    [ -z "$lost" ] && restarts "$rc" || break
  done
  kills_in "$sj_events"
  kills=$(new_kills "$sj_kills_cgroup" "$sj_kills")
  kills_in /proc/vmstat
  kills="$kills $(new_kills "$sj_kills_host" "$sj_kills")"
  # Not in a subshell: there, `times` would not count the job. In braces: a redirection of `times` that fails would end this shell.
  { times; } 2>/dev/null >"$sj_J/times"
  exec 5<&- 6<&-
  if [ -n "$lost" ]; then
    # Nothing can find out any more how the job ends. Without a noted end it counts as lost.
    while { read -r p t0 <"$sj_J/pid"; } 2>/dev/null && is_alive "$p" "$t0"; do pause; done
    end_serving "$1"
    end_writer "$1"
    rm -f "$sj_J/in" "$sj_J/in.ctl" "$sj_J/limit" "$sj_J/warn" "$sj_J/serving" "$sj_S/q/$1" "$sj_J/order.kept"
    exit 1
  fi
  if [ -n "$gatekeeper" ]; then
    why=ended
    { read -r why <"$sj_J/gate.why"; } 2>/dev/null
    decide_gate "$why $rc $(tail -n 3 "$sj_J/err" | tr '\n' ' ' | cut -c 1-400)"
    # It may still have text that the command has not read.
    end_these "$gatekeeper"
  fi
  fired=
  [ -z "$timer" ] || { read -r fired <"$sj_J/why"; } 2>/dev/null
  if [ "$fired" = timeout ]; then
    # The time limit has ended the command, and now ends its other processes.
    wait $timer
    timer=
  elif [ -n "$timer" ]; then
    # The command has exited in time. Its background processes have no limit, and may still print.
    end_these "$limit"
  fi
  { read -r p _ <"$sj_J/pid"; } 2>/dev/null
  i=0
  while [ $i -lt "$8" ] && group_lives; do pause; i=$((i + 1)); done
  end_serving "$1"
  # A write that the command has read is noted in a moment. A write without a reader would wait for ever.
  i=0
  while [ $i -lt 5 ] && [ -d "$sj_J/in.lock" ]; do pause; i=$((i + 1)); done
  end_writer "$1"
  k=- why=-
  { read -r k _ <"$sj_J/killreq"; } 2>/dev/null
  { read -r why _ <"$sj_J/why"; } 2>/dev/null
  user=- system=-
  { { read -r _; read -r user system; } <"$sj_J/times"; } 2>/dev/null
  for x in "$sj_S"/gpu/*/"$1"; do
    [ ! -f "$x" ] || { rm -f "$x" && rmdir "${x%/*}"; } 2>/dev/null
  done
  # First: a reader that sees the end finds no script.
  [ ! -f "$sj_J/script" ] || rm -f "$sj_J/script"
  [ -z "$mode" ] || rm -f "$sj_J/order.kept" "$sj_J/in.text"
  measures="$kills ${user:--} ${system:--} ${peak:--} ${how:--}"
  [ -z "$mode" ] || measures="$measures $attempt"
  printf '%s %s %s %s %s ' $rc "$k" "$why" "$(date +%s)" "$measures" 1<>"$sj_J/exit.r"
  mv -f "$sj_J/exit.r" "$sj_J/exit"
  rm -f "$sj_J/in" "$sj_J/in.ctl" "$sj_J/limit" "$sj_J/warn" "$sj_J/serving" "$sj_S/q/$1"
  ;;
guard) guard ;;
warden)
  trap '' HUP INT
  start_time $$
  sj_w=$sj_t
  printf '%s %s\n' $$ "$sj_w" >"$sj_S/warden"
  cd "$sj_S/q" || exit
  round=0 most=30000000000
  [ $((4294967296)) = 4294967296 ] || most=2000000000
  while :; do
    # Of several wardens the last one stays.
    { read -r p t0 <"$sj_S/warden"; } 2>/dev/null && [ "$p $t0" = "$$ $sj_w" ] || exit 0
    files=
    for j in *; do
      [ -f "$j" ] || continue
      # The quota of a job whose directory was removed is dropped.
      [ -d "../$j" ] || { rm -f "$j"; continue; }
      files="$files ../$j/out ../$j/err"
    done
    if [ -z "$files" ]; then
      rm -f "$sj_S/warden"
      # A job that began just now saw this warden and started none.
      [ -n "$(ls)" ] || exit 0
      printf '%s %s\n' $$ "$sj_w" >"$sj_S/warden"
      continue
    fi
    round=$((round + 1)) least=$most over= o=0 size=0
    for n in $(wc -c $files /dev/null 2>/dev/null); do
      case $n in
      */out) o=$size ;;
      */err)
        j=${n#../} j=${j%/err}
        { read -r quota grace <"$j"; } 2>/dev/null || continue
        left=$((quota - o - size)) o=0
        [ $left -gt 0 ] || over="$over $j:$grace:$quota"
        [ $left -gt $least ] || least=$left
        # The quota of a job whose supervisor is gone is dropped.
        [ $((round % 4)) != 0 ] || { { read -r p t0 _ <"../$j/sup"; } 2>/dev/null && is_alive "$p" "$t0"; } || rm -f "$j"
        ;;
      *) size=$n ;;
      esac
    done
    for x in $over; do
      j=${x%%:*} quota=${x##*:} grace=${x#*:}
      rm -f "$j"
      [ ! -f "../$j/exit" ] || continue
      echo quota >"../$j/why"
      echo "sshjobs: this job has printed more than $quota bytes, and is ended" >>"../$j/err"
      end_tree "$j" "${grace%:*}" &
    done
    # The time in which a job that writes 500 MB/s would reach its quota.
    n=$((least / 500000000))
    sleep $((n < 1 ? 1 : n))
  done
  ;;
write) # JOB OFFSET LENGTH WRITER; the bytes on stdin. A repeated write of the same writer writes nothing twice.
  sj_J=$sj_S/$1
  trap '' HUP PIPE
  if ! why=$(LC_ALL=C; { cat >"$sj_J/in.$$"; } 2>&1); then
    rm -f "$sj_J/in.$$"
    [ -d "$sj_J" ] && say error "${why##*: }" || say closed
    exit 0
  fi
  n=$(($(wc -c <"$sj_J/in.$$")))
  [ "$n" = "$3" ] || { rm -f "$sj_J/in.$$"; exit 1; }
  done_by() { # Whether writer $2 has written the piece at $1 already.
    { read -r w <"$sj_J/in.w.$2"; } 2>/dev/null && [ "$w" = "$1" ]
  }
  if [ -f "$sj_J/exit" ] || [ -f "$sj_J/in.eof" ]; then
    # The job may have read the piece and ended before the write was acknowledged.
    { read -r n <"$sj_J/in.n"; } 2>/dev/null
    done_by "$2" "$4" && say at "$n" || say closed
  elif [ ! -f "$sj_J/in.n" ]; then
    # The supervisor creates it first.
    say busy
  elif mkdir "$sj_J/in.lock" 2>/dev/null; then
    read -r n <"$sj_J/in.n"
    if done_by "$2" "$4"; then
      a=at
    elif [ "$n" = "$2" ]; then
      # Opened for both, so that it need not wait for a reader: the job may have closed its end.
      cat "$sj_J/in.$$" 1<>"$sj_J/in" &
      c=$!
      start_time $$
      echo "$$ $sj_t $c" >"$sj_J/in.lock/pid"
      wait $c && n=$(($2 + $3)) && echo "$2" >"$sj_J/in.w.$4" && echo $n >"$sj_J/in.n"
      a=at
    else
      a=moved
    fi
    rm -rf "$sj_J/in.lock"
    say $a "$n"
  else
    say busy
  fi
  rm -f "$sj_J/in.$$"
  ;;
resize) # JOB COLS ROWS
  sj_J=$sj_S/$1
  if [ -f "$sj_J/exit" ]; then
    say closed
  elif [ ! -s "$sj_J/tty" ]; then
    # The terminal is there in a moment, unless an earlier version has started the job.
    say busy
  else
    read -r t <"$sj_J/tty"
    # Another program may have the terminal if the job was killed.
    { read -r p t0 <"$sj_J/pid"; } 2>/dev/null && is_alive "$p" "$t0" || { say closed; exit 0; }
    why=$(stty cols "$2" rows "$3" 2>&1 <"$t") && say ok || say error "${why##*: }"
  fi
  ;;
claim) # JOB ID...: gives devices to a job, all or none. Answers `ok`, or `taken`. A device is a directory with a file that has the
  # name of its job: making it, and renaming the file of a job that has ended, are single steps.
  job=$1
  shift
  boot
  mkdir -p "$sj_S/gpu"
  cd "$sj_S" || exit 1
  mine=
  for id in "$@"; do
    # A claim that was cut between its two steps.
    [ -z "$(find "gpu/$id" -prune -mmin +1 2>/dev/null)" ] || rmdir "gpu/$id" 2>/dev/null
    if mkdir "gpu/$id" 2>/dev/null; then
      { : >"gpu/$id/$job"; } 2>/dev/null && { mine="$mine $id"; continue; }
    fi
    owner=$(ls "gpu/$id" 2>/dev/null)
    [ "$owner" != "$job" ] || continue
    stale=
    if [ -d "$owner" ] && [ -n "$owner" ]; then
      look "$owner"
      stale=$x
    elif [ -n "$owner" ]; then
      # Its start has not come within a minute.
      stale=$(find "gpu/$id/$owner" -prune -mmin +1 2>/dev/null)
    fi
    [ -n "$stale" ] && mv "gpu/$id/$owner" "gpu/$id/$job" 2>/dev/null && { mine="$mine $id"; continue; }
    for id in $mine; do rm -f "gpu/$id/$job" && rmdir "gpu/$id" 2>/dev/null; done
    say taken
    exit 0
  done
  say ok
  ;;
killreq) # JOB SIGNAL: notes that a signal is sent, to distinguish it from an exit status of 128 or more.
  # Without truncating it: the supervisor may read it at this moment, for an earlier signal.
  [ ! -d "$sj_S/$1" ] || echo "$2" 1<>"$sj_S/$1/killreq"
  say ok
  ;;
eof) # JOB
  sj_J=$sj_S/$1
  if [ -d "$sj_J/in.lock" ] || { [ ! -f "$sj_J/in.n" ] && [ ! -f "$sj_J/exit" ] && [ -d "$sj_J" ]; }; then
    say busy
  elif [ -p "$sj_J/in.ctl" ]; then
    : >"$sj_J/in.eof"
    echo 1<>"$sj_J/in.ctl"
    say closed
  else
    say closed
  fi
  ;;
forget) # JOB ...
  for j in "$@"; do
    if [ ! -f "$sj_S/$j/exit" ]; then
      { read -r p t0 _ <"$sj_S/$j/sup"; } 2>/dev/null && is_alive "$p" "$t0" && continue
      # Its supervisor was killed, so no other process would end it.
      { read -r mark <"$sj_S/$j/mark"; } 2>/dev/null && [ -n "$mark" ] && { end_marked; as_user "$j" "$(signal_marked KILL)"; }
    fi
    end_serving "$j"
    end_writer "$j"
    rm -rf "${sj_S:?}/$j" "$sj_S/q/$j"
  done
  say ok
  ;;
sweep) # DAYS
  # By line and not by word: the home directory may have a space in its name.
  find "$sj_S" -name exit -mtime "+$1" 2>/dev/null | while IFS= read -r x; do rm -rf "${x%/exit}"; done
  # Also jobs without a noted end.
  find "$sj_S" -name mark -mtime "+$1" 2>/dev/null | while IFS= read -r x; do
    x=${x%/mark}
    if [ ! -f "$x/exit" ] && ! { { read -r p t0 _ <"$x/sup"; } 2>/dev/null && is_alive "$p" "$t0"; }; then
      rm -rf "${x:?}"
    fi
  done
  find "$sj_S/f" -type f -mtime +1 -exec rm -f {} + 2>/dev/null
  say ok
  ;;
verdict) # JOB: prints why it is lost, if it is. The follower in perl asks before it reports a loss.
  cd "$sj_S" || exit 1
  boot
  look "$1"
  case $x in lost*) echo "$x" ;; esac
  ;;
follow) # FOLLOWER [sh]. Lines: JOB OUT ERR ..., ".". OUT and ERR are the offsets from which output is sent, or "-" to send none and
  # only report the job's state. Its output is described in frames.rs
  mkdir -p "$sj_S/f"
  # A warden that was killed is replaced here, and when a job starts. The subshell ends at once, so the warden becomes a
  # child of init: perl, which this shell turns into, would never reap it.
  [ -z "$(ls "$sj_S/q" 2>/dev/null)" ] || (guard)
  # Variables of the account that change perl. A shim without a program behind it, or a version that can't read the follower, fails here.
  unset PERL5OPT PERL5LIB PERLLIB PERL5DB PERLIO PERL_UNICODE
  [ "$SSHJOBS_NO_PERL$2" ] || ! perl -c "$sj_F.pl" >/dev/null 2>&1 || exec perl "$sj_F.pl" "$sj_S" "$1" /bin/sh "$sj_F" "$sj_D" guard
  LC_ALL=C
  export LC_ALL
  # Names without the directory, which may have a space in its name.
  cd "$sj_S" || exit 1
  F=f/$1
  : >"$F"
  trap 'rm -f "$F"' EXIT
  trap 'exit 0' HUP INT TERM PIPE
  boot
  list= told= caught=
  while read -r j o e && [ "$j" != . ]; do list="$list $j:$o:$e"; done
  exec 7<"$F"
  echo H
  wait_ms=50 beat=0
  send() { # JOB STREAM FILE OFFSET LENGTH
    printf 'D %s %s %s %s\n' "$1" "$2" "$4" "$5" || exit 0
    r=$(($4 % 65536))
    dd bs=65536 skip=$(($4 / 65536)) count=$((($5 + r + 65535) / 65536)) <"$3" 2>/dev/null | tail -c "+$((r + 1))" | head -c "$5"
  }
  while :; do
    # The spool was removed or renamed: a new follower will be started in the new one.
    [ -f "$sj_S/$F" ] || exit 0
    while read -r j o e <&7; do
      case " $list" in *" $j:"*) ;; *) list="$list $j:$o:$e" ;; esac
    done
    files= states=
    for entry in $list; do
      j=${entry%%:*}
      # The state first and the sizes second, so that no output is missed in between.
      look "$j"
      states="$states$x$sj_nl"
      files="$files $j/out $j/err"
    done
    moved= next=
    sizes=$(wc -c -- $files /dev/null 2>/dev/null)
    for entry in $list; do
      j=${entry%%:*} rest=${entry#*:}
      o=${rest%%:*} e=${rest#*:}
      x=${states%%"$sj_nl"*} states=${states#*"$sj_nl"}
      so=${sizes%%" $j/out"*} so=${so##*"$sj_nl"}
      case $sizes in *" $j/out"*) so=$((so)) ;; *) so=$o ;; esac
      se=${sizes%%" $j/err"*} se=${se##*"$sj_nl"}
      case $sizes in *" $j/err"*) se=$((se)) ;; *) se=$e ;; esac
      if [ "$rest" = -:- ]; then
        # Only the state is wanted. A missing file counts as empty.
        [ "$so" != - ] || so=0
        [ "$se" != - ] || se=0
        o=$so e=$se
      fi
      # Each attempt of a job has a group of its own.
      if { read -r p t0 <"$j/pid"; } 2>/dev/null && [ -n "$t0" ]; then
        case $told in *" $j:$p "*) ;; *)
          n=-
          { read -r n <"$j/attempt"; } 2>/dev/null
          printf 'P %s %s %s\n' "$j" "$p" "$n" || exit 0
          told="$told $j:$p " ;;
        esac
      fi
      if [ -f "$j/series" ]; then
        n=$(tail -n 1 "$j/series")
        case $told in *" $j@${n%% *} "*) ;; *)
          printf 'M %s %s\n' "$j" "$n" || exit 0
          told="$told $j@${n%% *} " ;;
        esac
      fi
      # Output that was sent is gone from the file, so the offset of later output is unknown. The job is reported as lost.
      if [ "$so" -lt "$o" ] || [ "$se" -lt "$e" ]; then
        printf 'X %s %s %s %s\n' "$j" "$so" "$se" "${x:-lost spool_gone}" || exit 0
        moved=y
        continue
      fi
      if [ "$so" -gt "$o" ]; then
        n=$((so - o)); [ $n -le 4194304 ] || n=4194304
        send "$j" 1 "$j/out" "$o" $n
        o=$((o + n)) moved=y
      fi
      if [ "$se" -gt "$e" ]; then
        n=$((se - e)); [ $n -le 4194304 ] || n=4194304
        send "$j" 2 "$j/err" "$e" $n
        e=$((e + n)) moved=y
      fi
      if [ -n "$x" ] && [ "$o" -ge "$so" ] && [ "$e" -ge "$se" ]; then
        printf 'X %s %s %s %s\n' "$j" "$so" "$se" "$x" || exit 0
        moved=y
      elif [ "$rest" = -:- ]; then
        next="$next $entry"
      else
        next="$next $j:$o:$e"
      fi
    done
    list=$next
    [ -z "$moved" ] || wait_ms=50
    beat=$((beat + wait_ms))
    [ $beat -lt 5000 ] || { echo H || exit 0; beat=0; [ -z "$(ls "$sj_S/q" 2>/dev/null)" ] || guard; }
    [ -n "$moved" ] || {
      [ -n "$caught" ] || { echo C || exit 0; caught=y; }
      sleep "0.$(printf '%03d' $wait_ms)" 2>/dev/null || sleep 1
      wait_ms=$((wait_ms < 400 ? wait_ms * 3 / 2 : 500))
    }
  done
  ;;
esac
