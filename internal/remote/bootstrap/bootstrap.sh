# Runs as root on a host, in sh: finds or takes the node helper and becomes it.
# The manager joins these lines into one, so each ends where a blank may follow,
# and drops those that begin with "#". Standard input: a token and a random word;
# later name, SHA-256 and size of the helper for this machine; later, if it is
# asked for, a number of bytes and that many bytes. Each answer is a line that
# begins with the token.
umask 077;
PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin;
trap "" PIPE;
say() { echo "$p" "$@"; };
read -r p r || exit 1;
u=$(id -u);
[ "$u" = 0 ] || { say user "$u"; exit 1; };
say host "$(uname -s)" "$(uname -m)";
read -r f d n || exit 1;

# owned PATH TYPE [SIZE]: no link, root's, and nobody else can write to it.
owned() {
[ -O "$1" ] && case $(ls -ldn "$1") in "$2"????-??-*" $3"*) true;; *) false;; esac;
};

# good FILE: the helper, whole; s is what it says its digest is, "" if it does
# not start. It may be started to say so, a fifth of the work of sha256sum: only
# root can have written it. What is damaged cannot say what it was not told, and
# is ended should it run in circles. Nothing hashes the file again.
good() {
s=short;
owned "$1" - "$n " && s=$(ulimit -t 5; "$1" digest </dev/null) && [ "$s" = "$d" ];
} 2>/dev/null;

# usable DIR: programs run there, and there is room.
usable() {
printf "#!/bin/sh\nexit 0\n" >"$1/.probe-$r" && chmod 700 "$1/.probe-$r" && "$1/.probe-$r" &&
head -c "$n" /dev/zero >"$1/.probe-$r";
e=$?;
rm -f "$1/.probe-$r";
return $e;
} 2>/dev/null;

t=;
b=;
w=;
trap "exit 1" 1 2 15;
trap 'rm -rf "$t" "$w"' 0;
h=/var/lib/slipway/bin;
if owned /var/lib/slipway d && owned $h d; then
if good "$h/$f"; then say run; exec "$h/$f" serve; fi;
if usable $h; then b=$h/$f; w=$h/.new-$r; fi;
fi;
if [ -z "$b" ]; then
for c in /run /var/tmp /tmp /root; do
t=$c/.slipway-$r;
if mkdir -m 700 "$t" 2>/dev/null; then
if usable "$t"; then b=$t/$f; w=$t/.new; break; fi;
rm -rf "$t";
fi;
t=;
done;
fi;
[ -n "$b" ] || { say noexec; exit 1; };

z=raw;
command -v gzip >/dev/null 2>&1 && z=gzip;
say need $z;
read -r k || exit 1;
case $z in gzip) head -c "$k" | gzip -dc >"$w";; *) head -c "$k" >"$w";; esac;
chmod 700 "$w";
if good "$w" && mv -f "$w" "$b"; then say run; exec "$b" serve $t; fi;
if [ -n "$s" ]; then say corrupt; else say broken; fi;
exit 1;
