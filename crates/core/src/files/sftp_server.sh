# sshjobs: an SFTP server (protocol version 3, draft-ietf-secsh-filexfer-02) in POSIX sh, for hosts that have none.
# Serves one request after the other. A handle is the number of a path, not of a descriptor.
LC_ALL=C
export LC_ALL
umask 022
# Sizes have 64 bits, and so must the shell's numbers.
[ $((1 << 40)) = 1099511627776 ] 2>/dev/null || exit 1
full=
[ "$(printf abc | dd bs=3 count=1 iflag=fullblock 2>/dev/null)" = abc ] && full=y
stat -c %s . >/dev/null 2>&1 && gnu=y || gnu=
handles=0

# Input. Results: $v a number, $s a text, $p a path, $h a handle, $m a message, $d described attributes, $left the rest of the request.
take() { # The next $1 bytes.
  if [ "$full" ] && [ "$1" -gt 0 ]; then
    dd bs="$1" count=1 iflag=fullblock 2>/dev/null
  else
    dd bs=1 count="$1" 2>/dev/null
  fi
}
octal() { od -An -v -to1 | tr -d '\n' | sed 's/  */\\0/g'; } # Its stdin, escaped for printf's %b.
number() { # Sets $v to the next 4 bytes.
  set -- $(take 4 | od -An -v -tu1)
  [ $# = 4 ] || exit 0
  v=$((($1 << 24) + ($2 << 16) + ($3 << 8) + $4))
  left=$((left - 4))
}
long() { # Sets $v to the next 8 bytes.
  number
  high=$v
  number
  v=$(((high << 32) + v))
}
text() { # Sets $s to the next string. A NUL ends every path.
  number
  left=$((left - v))
  [ "$v" -gt 0 ] && [ "$v" -le 65536 ] || { skip "$v"; s=; return; }
  s=$(printf '%b.' "$(take "$v" | octal)")
  s=${s%.}
}
path() { # Sets $p to the next string as a path that no command takes for an option.
  text
  case $s in
  /*) p=$s ;;
  '') p=. ;;
  *) p=./$s ;;
  esac
}
skip() { [ "$1" -le 0 ] || take "$1" >/dev/null; }
attributes() { # Reads attributes: $size, $owner, $mode, $atime, $mtime; empty if absent.
  size= owner= mode= atime= mtime=
  number
  flags=$v
  [ $((flags & 1)) = 0 ] || { long; size=$v; }
  [ $((flags & 2)) = 0 ] || { number; owner=$v; number; owner=$owner:$v; }
  [ $((flags & 4)) = 0 ] || { number; mode=$((v & 4095)); }
  [ $((flags & 8)) = 0 ] || { number; atime=$v; number; mtime=$v; }
}

# Output: packets are built escaped for printf's %b.
n4() { printf '\\0%03o\\0%03o\\0%03o\\0%03o' $(($1 >> 24 & 255)) $(($1 >> 16 & 255)) $(($1 >> 8 & 255)) $(($1 & 255)); }
n8() { n4 $(($1 >> 32)); n4 $(($1 & 4294967295)); }
string() { # An escaped string with its length.
  n4 $((${#1} / 5))
  printf '%s' "$1"
}
send() { # TYPE BODY: a packet for the request.
  body="$(n4 "$id")$2"
  printf '%b' "$(n4 $((${#body} / 5 + 1)))\\0$(printf %03o "$1")$body" || exit 0
}
status() { send 101 "$(n4 "$1")$(n4 0)$(n4 0)"; }
answer() { # STATUS MESSAGE: the end of a command that printed MESSAGE.
  [ "$1" != 0 ] || { status 0; return; }
  case $2 in
  *[Pp]ermission*|*'not permitted'*|*'Read-only'*) status 3 ;;
  *'No such file'*|*'nonexistent'*|*'not found'*) status 2 ;;
  *) status 4 ;;
  esac
}
try() { # Runs a command and answers with its end.
  m=$("$@" 2>&1)
  answer $? "$m"
}
describe() { # -L or nothing, PATH: sets $d to its attributes, escaped. Fails with the reason in $m.
  if [ "$gnu" ]; then
    m=$(stat ${1:+"$1"} -c '%s %u %g %f %X %Y' "$2" 2>&1) || return
  else
    m=$(stat ${1:+"$1"} -f '%z %u %g %Xp %a %m' "$2" 2>&1) || return
  fi
  set -- $m
  d="$(n4 15)$(n8 "$1")$(n4 "$2")$(n4 "$3")$(n4 $((0x$4)))$(n4 "$5")$(n4 "$6")"
}
look() { if describe "$1" "$2"; then send 105 "$d"; else answer 1 "$m"; fi; }
set_attributes() { # PATH
  [ -z "$size" ] || m=$(dd if=/dev/null of="$1" bs=1 seek="$size" count=0 2>&1) || return
  [ -z "$owner" ] || m=$(chown "$owner" "$1" 2>&1) || return
  [ -z "$mode" ] || m=$(chmod "$(printf %o "$mode")" "$1" 2>&1) || return
  [ -z "$mtime" ] || m=$(touch -m -d "@$mtime" "$1" 2>&1 && touch -a -d "@$atime" "$1" 2>&1) ||
    m=$(touch -m -t "$(date -r "$mtime" +%Y%m%d%H%M.%S)" "$1" 2>&1) || return
}
handle() { # PATH: answers with a new handle.
  handles=$((handles + 1))
  eval "path_$handles=\$1 seen_$handles=0"
  send 102 "$(string "$(printf %s "$handles" | octal)")"
}
of_handle() { # Sets $p to the path of the next handle, and $h to its number.
  text
  h=$s
  case $h in ''|*[!0-9]*) h=0 ;; esac
  eval "p=\${path_$h-}"
}
open() { # FLAGS PATH: 1 read, 2 write, 8 create, 16 truncate, 32 new.
  f=$1 file=$2
  if [ -d "$file" ]; then status 4; return; fi
  if [ $((f & 40)) = 40 ]; then
    # Private first: others must not open it before its mode is set.
    m=$( (set -C; [ -z "$mode" ] || umask 077; : >"$file") 2>&1 ) || { answer 1 "$m"; return; }
    [ -z "$mode" ] || chmod "$(printf %o $((mode & ~18)))" "$file"
  elif [ ! -e "$file" ] && [ $((f & 8)) = 0 ]; then
    status 2
    return
  elif [ $((f & 2)) != 0 ]; then
    if [ $((f & 16)) != 0 ]; then m=$( (: >"$file") 2>&1 ); else m=$( (: >>"$file") 2>&1 ); fi || { answer 1 "$m"; return; }
  fi
  [ $((f & 1)) = 0 ] || [ -r "$file" ] || { status 3; return; }
  handle "$file"
}
read_file() { # PATH OFFSET LENGTH
  if [ "$gnu" ]; then total=$(stat -L -c %s "$1" 2>/dev/null); else total=$(stat -L -f %z "$1" 2>/dev/null); fi || { status 4; return; }
  n=$((total - $2))
  [ "$n" -gt 0 ] || { status 1; return; }
  [ "$n" -le "$3" ] || n=$3
  rest=$(($2 % 32768))
  printf '%b' "$(n4 $((n + 9)))\\0147$(n4 "$id")$(n4 "$n")"
  # Zeros, if the file has become shorter meanwhile: the length was sent.
  { dd if="$1" bs=32768 skip=$(($2 / 32768)) count=$(((n + rest + 32767) / 32768)) 2>/dev/null |
    if [ "$rest" = 0 ]; then cat; else tail -c "+$((rest + 1))"; fi; head -c "$n" /dev/zero; } | head -c "$n" || exit 0
}
write_file() { # PATH OFFSET LENGTH
  block=32768
  while [ $(($2 % block)) != 0 ]; do block=$((block / 2)); done
  # All is read even if the disk is full: the next request follows.
  m=$(take "$3" | { dd obs="$block" seek=$(($2 / block)) conv=notrunc of="$1" 2>&1; r=$?; cat >/dev/null; exit $r; })
  answer $? "$m"
}
list() { # HANDLE DIRECTORY: the next entries.
  dir=$2
  eval "seen=\$seen_$1"
  set -- "$dir"/* "$dir"/.[!.]* "$dir"/..?*
  [ "$seen" -le $# ] || seen=$#
  shift "$seen"
  count=0 names=
  while [ $# -gt 0 ] && [ $count -lt 50 ]; do
    seen=$((seen + 1))
    # A pattern that matches nothing stands for itself.
    if describe '' "$1"; then
      e=$(printf %s "${1##*/}" | octal)
      names="$names$(string "$e")$(n4 0)$d" count=$((count + 1))
    fi
    shift
  done
  eval "seen_$h=$seen"
  if [ $count = 0 ]; then status 1; else send 104 "$(n4 $count)$names"; fi
}
name() { send 104 "$(n4 1)$(string "$(printf %s "$1" | octal)")$(n4 0)$(n4 0)"; }
real() { # PATH
  if [ -d "$1" ]; then
    m=$(cd "$1" 2>&1 && pwd -P && echo .) || { answer 1 "$m"; return; }
  else
    [ -d "${1%/*}/" ] || { status 2; return; }
    m=$(readlink -f "$1" && echo .) || m=$(cd "${1%/*}/" && pwd -P)/${1##*/}$nl.
  fi
  m=${m%.}
  name "${m%"$nl"}"
}
nl='
'
rename() { # FROM TO: fails if TO exists.
  if [ -e "$2" ] || [ -L "$2" ]; then status 4
  elif [ -d "$1" ] && [ ! -L "$1" ]; then try mv "$1" "$2"
  else
    # A link fails if the name is taken meanwhile; not all file systems have them.
    m=$(ln "$1" "$2" 2>&1) && rm -f "$1" && { status 0; return; }
    if [ -e "$2" ]; then status 4; else try mv "$1" "$2"; fi
  fi
}
replace() { # FROM TO
  if [ -d "$2" ] && [ ! -L "$2" ]; then status 4; return; fi
  # mv would move it into the directory behind a link.
  [ ! -L "$2" ] || [ ! -d "$2" ] || rm -f "$2"
  try mv -f "$1" "$2"
}
extended() {
  text
  case $s in
  posix-rename@openssh.com) path; from=$p; path; replace "$from" "$p" ;;
  hardlink@openssh.com) path; from=$p; path; try ln "$from" "$p" ;;
  fsync@openssh.com) of_handle; sync "$p" 2>/dev/null || sync; status 0 ;;
  *) status 8 ;;
  esac
}

while :; do
  set -- $(take 9 | od -An -v -tu1)
  [ $# = 9 ] || exit 0
  left=$((($1 << 24) + ($2 << 16) + ($3 << 8) + $4 - 5))
  type=$5 id=$((($6 << 24) + ($7 << 16) + ($8 << 8) + $9))
  case $type in
  1)
    id=3
    extension() { string "$(printf %s "$1" | octal)"; string '\0061'; }
    send 2 "$(extension posix-rename@openssh.com)$(extension hardlink@openssh.com)$(extension fsync@openssh.com)"
    ;;
  3) # OPEN
    path; file=$p; number; f=$v; attributes; open "$f" "$file"
    ;;
  4) # CLOSE
    of_handle; eval "unset path_$h seen_$h"; status 0
    ;;
  5) # READ
    of_handle; long; offset=$v; number; read_file "$p" "$offset" "$v"
    ;;
  6) # WRITE
    of_handle; long; offset=$v; number; left=$((left - v)); write_file "$p" "$offset" "$v"
    ;;
  7) # LSTAT
    path; look '' "$p"
    ;;
  8) # FSTAT
    of_handle; look -L "$p"
    ;;
  9) # SETSTAT
    path; file=$p; attributes; set_attributes "$file"; answer $? "$m"
    ;;
  10) # FSETSTAT
    of_handle; file=$p; attributes; set_attributes "$file"; answer $? "$m"
    ;;
  11) # OPENDIR
    path; if [ -d "$p" ] && [ -r "$p" ]; then handle "$p"; elif [ -e "$p" ]; then status 3; else status 2; fi
    ;;
  12) # READDIR
    of_handle; list "$h" "$p"
    ;;
  13) # REMOVE
    path; try rm "$p"
    ;;
  14) # MKDIR
    path; file=$p; attributes; try mkdir "$file"
    ;;
  15) # RMDIR
    path; try rmdir "$p"
    ;;
  16) # REALPATH
    path; real "$p"
    ;;
  17) # STAT
    path; look -L "$p"
    ;;
  18) # RENAME
    path; from=$p; path; rename "$from" "$p"
    ;;
  19) # READLINK
    path
    if m=$(readlink "$p" 2>&1 && echo .); then m=${m%.}; name "${m%"$nl"}"; else answer 1 "$m"; fi
    ;;
  # OpenSSH sends the target first.
  20) # SYMLINK
    text; target=$s; path; if [ -e "$p" ] || [ -L "$p" ]; then status 4; else try ln -s -- "$target" "$p"; fi
    ;;
  200) # EXTENDED
    extended
    ;;
  *) status 8 ;;
  esac
  skip $left
done
