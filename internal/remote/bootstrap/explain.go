package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"slipway.dev/slipway/internal/remote"
)

func (b Boot) newError(reason remote.Reason, cause, remedy string, err error) *remote.Error {
	return &remote.Error{Host: b.Host, Reason: reason, Cause: cause, Remedy: remedy, Err: err}
}

// explainRefusal explains an error that the bootstrap on the host reported.
func (b Boot) explainRefusal(word, rest string) *remote.Error {
	switch word {
	case "user":
		if b.Sudo {
			return b.newError(remote.SudoFailed, "sudo does not give "+b.User+" root privileges",
				"allow sudo to run any command as root for "+b.User, nil)
		}
		return b.newError(remote.SudoFailed, b.User+" is not root", "set ssh.sudo: true, or log in as root", nil)
	case "noexec":
		return b.newError(remote.NoExec,
			"no directory for root's programs is usable: /var/lib/slipway/bin, /run, /var/tmp, /tmp and /root are full, read-only or mounted noexec",
			"free 20 MB in one of them, or remount it with the option exec", nil)
	case "corrupt":
		return b.newError(remote.HelperFailed, "the node helper did not arrive completely",
			"check the free disk space on the host, and try again", nil)
	case "broken":
		return b.newError(remote.NoExec, "the host refuses to run the node helper",
			"check the host for denials by SELinux, AppArmor or fapolicyd", nil)
	}
	return b.newError(remote.HelperFailed, fmt.Sprintf("the host sent an unexpected answer: %q", strings.TrimSpace(word+" "+rest)),
		"try again", nil)
}

// explainError returns a *remote.Error for an interrupted bootstrap.
func (b Boot) explainError(ctx context.Context, d *dialog, err error) error {
	var done *remote.Error
	if errors.As(err, &done) {
		return done
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if cause := d.finishWatching(); cause != nil {
		err = cause
	}
	said := d.tail.String()
	if said == "" {
		said = d.noise.String()
	}
	switch {
	case errors.Is(err, errNoise):
		return b.newError(remote.HelperFailed, "the login shell of "+b.User+" prints too much output",
			"change its start-up files so that they print nothing without a terminal", err)
	case !d.greeted:
		return b.newError(remote.HelperFailed, b.describeEnd("the login shell of "+b.User, err)+quoteLastLine(said),
			"check the shell and its start-up files: "+b.tryShell()+" must print works", err)
	case !d.isRoot() && b.Sudo:
		return b.explainSudo(said, err)
	}
	return b.newError(remote.HelperFailed, b.describeEnd("the bootstrap of the node helper", err)+quoteLastLine(said), "try again", err)
}

// tryShell returns the command that shows whether a login shell runs commands.
func (b Boot) tryShell() string {
	if b.Login == "" {
		return "`sh -c 'echo works'`"
	}
	return "`ssh " + b.Login + " echo works`"
}

func (b Boot) describeEnd(what string, err error) string {
	if errors.Is(err, errSilentHost) {
		return fmt.Sprintf("%s did not answer within %s", what, b.Timeout)
	}
	return what + " ended early"
}

// quoteLastLine returns the last line of the host's output.
func quoteLastLine(said string) string {
	if said == "" {
		return ""
	}
	lines := strings.Split(said, "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if len(last) > 200 {
		last = last[:200] + "…"
	}
	return ": " + last
}

// explainSudo explains why sudo did not give root privileges.
func (b Boot) explainSudo(said string, err error) error {
	has := func(s string) bool { return strings.Contains(said, s) }
	switch {
	case has("must have a tty"), has("a terminal is required to run"):
		return errNeedsTTY
	case errors.Is(err, errWrongPassword), has("incorrect password"), has("Sorry, try again"):
		return b.newError(remote.SudoFailed, "sudo rejects the password of "+b.User,
			"correct the password in the file or variable that is set in ssh.sudoPasswordFrom", err)
	case has("password is required"), has("terminal is required to read the password"):
		return b.newError(remote.SudoFailed, "sudo needs a password from "+b.User,
			"set ssh.sudoPasswordFrom, or allow NOPASSWD in sudoers", err)
	case has("not in the sudoers"), has("not allowed to"), has("may not run sudo"):
		return b.newError(remote.SudoFailed, b.User+" is not allowed to use sudo", "add the user to sudoers, or log in as root", err)
	case has("sudo: not found"), has("sudo: command not found"), has("sudo: No such file"), has("sudo: inaccessible or not found"):
		return b.newError(remote.SudoFailed, "sudo is not installed on the host", "install sudo, or log in as root", err)
	}
	return b.newError(remote.SudoFailed, b.describeEnd("sudo", err)+quoteLastLine(said), "check that `sudo true` works for "+b.User, err)
}
