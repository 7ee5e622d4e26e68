# sshjobs: follows durable jobs. Arguments: spool directory, follower, and the command that starts a missing warden. Lines on stdin: JOB OUT ERR ..., "."
# Does what `follow` in spool.sh does, and sees growth within some milliseconds.
use strict;
my ($S, $F, @guard) = @ARGV;
my @verdict = (@guard[0 .. $#guard - 1], 'verdict');
binmode $_ for *STDIN, *STDOUT;
my (%job, %hot, @order);
$SIG{PIPE} = $SIG{HUP} = $SIG{TERM} = sub { unlink "f/$F"; exit 0 };

sub first_line { my ($file) = @_; open(my $in, '<', $file) or return ''; my $line = <$in>; defined $line ? $line : '' }
sub start_time {
  my ($pid) = @_;
  my $line = first_line("/proc/$pid/stat");
  if ($line =~ s/.*\) //) {
    my @field = split / /, $line;
    return $field[0] =~ /^[ZX]/ ? '' : $field[19];
  }
  # Of other processes /proc may show nothing (hidepid), of this one it does.
  return '' if -r '/proc/self/stat';
  $line = `LC_ALL=C TZ=UTC0 ps -o stat= -o lstart= -p $pid 2>/dev/null | tr -s ' ' _`;
  chomp $line;
  return '' if $line eq '' || $line =~ /^_?Z/;
  $line =~ s/^[^_]*_//;
  return $line;
}
my $boot = first_line('/proc/sys/kernel/random/boot_id');
chomp $boot;
$boot = $boot ne '' ? $boot . '.' . start_time(1) : `sysctl -n kern.bootsessionuuid 2>/dev/null || LC_ALL=C TZ=UTC0 who -b | tr -s ' ' _`;
chomp $boot;

# The last data read. The variable keeps its memory.
my ($out, $data) = ('', '');
sub put {
  my $sent = 0;
  while ($sent < length $_[0]) {
    my $n = syswrite(STDOUT, $_[0], length($_[0]) - $sent, $sent);
    unless (defined $n) { unlink "f/$F"; exit 0 }
    $sent += $n;
  }
}
sub flush_out { put($out); $out = '' }
sub add {
  my ($j, $o, $e) = @_;
  return if $job{$j} || $j !~ /^[A-Za-z0-9.-]+$/;
  $job{$j} = { 1 => $o, 2 => $e, looked => 0, moved => time, told => '',
    figures_looked => 0, figures_changed => 0, figures_told => 0 };
  $hot{$j} = 1;
  push @order, $j;
}
sub loss { # What the shell that wrote the files says to a loss that this follower sees: its words, or nothing.
  my ($j) = @_;
  open(my $in, '-|', @verdict, $j) or return '';
  my $words = <$in>;
  close $in;
  return defined $words && $words =~ /^(lost \w+)$/ ? $1 : '';
}
sub state_of { # Empty while it runs.
  my ($j, $now) = @_;
  my $d = $j;
  if (-e "$d/exit") {
    my @f = split ' ', first_line("$d/exit");
    # Other contents were not written by the supervisor.
    return @f >= 4 && $f[0] =~ /^[0-9]+$/ ? "exited @f" : 'lost supervisor_died';
  }
  return '' if $now - $job{$j}{looked} < 1 + @order / 50;
  $job{$j}{looked} = $now;
  return loss($j) unless -d $d;
  my ($p, $t, $b) = split ' ', first_line("$d/sup");
  if (defined $b) {
    my $why = ($b ne $boot || start_time($p) ne $t) && !-e "$d/exit" ? loss($j) : '';
    return $why if $why ne '';
  } else {
    my $made = (stat $d)[9];
    return loss($j) if defined $made && time - $made > 60 && !-e "$d/sup";
  }
  return $job{$j}{shortened} ? 'lost spool_gone' : '';
}
sub send_new { # Sends new output. Returns whether the stream was sent up to its size.
  my ($j, $stream, $file) = @_;
  my $size = -s $file || 0;
  my $from = $job{$j}{$stream};
  # Only the job's state is wanted.
  return 1 if $from eq '-';
  # Output that was sent is gone from the file, so the offset of later output is unknown. The job is reported as lost.
  $job{$j}{shortened} = 1 if $size < $from;
  return 1 if $size <= $from || $job{$j}{shortened};
  my $n = $size - $from;
  $n = 262144 if $n > 262144;
  open(my $in, '<', $file) or return 1;
  my $got = sysseek($in, $from, 0) && sysread($in, $data, $n);
  return 1 unless $got;
  $out .= "D $j $stream $from $got\n";
  # Large data is not copied again.
  if ($got > 65536) { flush_out(); put($data) } else { $out .= $data }
  flush_out() if length $out > 262144;
  $job{$j}{$stream} += $got;
  return $job{$j}{$stream} >= $size;
}

sub tell_usage { # Sends new figures of a job that has GPUs. They come every few seconds.
  my ($j, $now) = @_;
  return if $job{$j}{figures_looked} == $now;
  $job{$j}{figures_looked} = $now;
  my $changed = (stat "$j/series")[9];
  return unless defined $changed && $changed != $job{$j}{figures_changed};
  open(my $in, '<', "$j/series") or return;
  while (my $line = <$in>) {
    my ($at) = split ' ', $line;
    next unless $line =~ /^[0-9].*\n$/ && $at > $job{$j}{figures_told};
    $out .= "M $j $line";
    $job{$j}{figures_told} = $at;
  }
  $job{$j}{figures_changed} = $changed;
}

sub told_size { # Bytes of a file that were sent, or its size if it has become shorter.
  my ($from, $file) = @_;
  my $size = -s $file || 0;
  return $from eq '-' || $size < $from ? $size : $from;
}

chdir $S or exit 1;
mkdir "f";
open(my $made, '>', "f/$F") or exit 1;
close $made;
while (my $line = <STDIN>) {
  chomp $line;
  last if $line eq '.';
  add(split ' ', $line);
}
open(my $added, '<', "f/$F") or exit 1;
my ($beat, $caught, $next, $unmoved, $checked) = (time, 0, 0, 0, time);
$out = "H\n";
while (1) {
  my $now = time;
  if ($now != $checked) {
    # The spool was removed, and our directory with it: a new follower will be started in the new one.
    exit 0 unless -e "$S/f/$F";
    $checked = $now;
  }
  seek($added, 0, 1);
  while (my $line = <$added>) { chomp $line; add(split ' ', $line) }
  # Jobs that have just printed, and a few of the others in turn, so that the cost does not grow with idle jobs.
  for (keys %hot) { delete $hot{$_} unless $job{$_} && $now - $job{$_}{moved} < 2 }
  my %look = %hot;
  my $turn = @order < 12 ? @order : 12;
  $look{$order[$next++ % @order]} = 1 for 1 .. $turn;
  my ($moved, $ended) = (0, 0);
  for my $j (keys %look) {
    # Each attempt of a job has a group of its own. The file of a job that can't be started again never changes.
    if (!$job{$j}{told} || -e "$j/attempt") {
      my ($p, $t) = split ' ', first_line("$j/pid");
      if (defined $t && $job{$j}{told} ne $p) {
        my ($attempt) = split ' ', first_line("$j/attempt");
        $out .= "P $j $p " . (defined $attempt ? $attempt : '-') . "\n";
        $job{$j}{told} = $p;
      }
    }
    tell_usage($j, $now);
    # The state first and the sizes second, so that no output is missed in between.
    my $state = state_of($j, $now);
    my ($o, $e) = ($job{$j}{1}, $job{$j}{2});
    my $all = send_new($j, 1, "$j/out");
    $all &= send_new($j, 2, "$j/err");
    if ($job{$j}{1} != $o || $job{$j}{2} != $e) { $moved = $hot{$j} = 1; $job{$j}{moved} = $now }
    # They have no reader any more, and may contain secrets.
    unlink "$j/order", "$j/order.kept", "$j/in.text" if $state =~ /^lost/;
    if ($state ne '' && $all) {
      my $out_size = told_size($job{$j}{1}, "$j/out");
      my $err_size = told_size($job{$j}{2}, "$j/err");
      $out .= "X $j $out_size $err_size $state\n";
      delete $job{$j};
      $ended = 1;
    }
  }
  @order = grep { $job{$_} } @order if $ended;
  $unmoved = $moved ? 0 : $unmoved + $turn;
  if (!$caught && $unmoved >= @order) { $out .= "C\n"; $caught = 1 }
  if ($now - $beat >= 5) {
    $out .= "H\n";
    $beat = $now;
    # So that a sweep sees that it is in use.
    utime undef, undef, "f/$F";
    my ($p, $t) = split ' ', first_line('warden');
    my $guarded = defined $t && start_time($p) eq $t;
    my @bounded = glob('q/*');
    system(@guard) if @guard && @bounded && !$guarded;
  }
  flush_out();
  next if $moved;
  my $in = '';
  vec($in, fileno(STDIN), 1) = 1;
  # No more jobs are added: the follower ends when its stdin does.
  if (select($in, undef, undef, @order > $turn ? 0.016 : 0.004 + 0.0005 * $turn) > 0) { unlink "f/$F"; exit 0 }
}
