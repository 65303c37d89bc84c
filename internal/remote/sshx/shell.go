package sshx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/remote"
)

// Shell logs in to host as Connect does, and has its login shell talk to the
// caller; it answers the shell's exit code. It is our own SSH and not the
// system's program, so that what logs in for operations logs in here: the same
// keys, passwords and their sources, bastion, and list of host keys.
func (d *Dialer) Shell(ctx context.Context, host v1alpha1.Host, sh remote.Shell, opts remote.Options) (int, error) {
	opts = opts.WithDefaults()
	if opts.Home == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return 0, fmt.Errorf("finding the home directory: %w", err)
		}
		opts.Home = home
	}
	client, leave, err := d.open(ctx, host, opts)
	if err != nil {
		return 0, err
	}
	defer leave()
	defer func() { _ = client.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	code, err := talk(client, sh)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return code, err
}

// talk runs the shell to its end.
func talk(client *ssh.Client, sh remote.Shell) (int, error) {
	sess, err := client.NewSession()
	if err != nil {
		return 0, fmt.Errorf("opening a shell: %w", err)
	}
	defer func() { _ = sess.Close() }()
	sess.Stdout, sess.Stderr = sh.Out, sh.Err
	// Not sess.Stdin: its end would be waited for, and a terminal has none.
	in, err := sess.StdinPipe()
	if err != nil {
		return 0, fmt.Errorf("opening a shell: %w", err)
	}
	if t := sh.Terminal; t != nil {
		if err := sess.RequestPty(t.Name, t.Rows, t.Columns, ssh.TerminalModes{}); err != nil {
			return 0, fmt.Errorf("asking the host for a terminal: %w", err)
		}
		over := make(chan struct{})
		defer close(over)
		go follow(sess, t, over)
	}
	if len(sh.Argv) == 0 {
		err = sess.Shell()
	} else {
		err = sess.Start(quoted(sh.Argv))
	}
	if err != nil {
		return 0, fmt.Errorf("starting a shell: %w", err)
	}
	go feed(in, sh.In) // ends with its input, or at the first write after the end
	err = sess.Wait()
	var exit *ssh.ExitError
	var cut *ssh.ExitMissingError
	switch {
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil
	case errors.As(err, &cut):
		return 0, errors.New("the connection broke")
	}
	return 0, err
}

// feed hands input on. An input that is nil is at its end.
func feed(in io.WriteCloser, from io.Reader) {
	if from != nil {
		_, _ = io.Copy(in, from)
	}
	_ = in.Close()
}

// follow tells the host of new sizes of the terminal.
func follow(sess *ssh.Session, t *remote.Terminal, over <-chan struct{}) {
	for {
		select {
		case size := <-t.Resized:
			if sess.WindowChange(size[1], size[0]) != nil {
				return
			}
		case <-over:
			return
		}
	}
}

// quoted is a command for a login shell, which is all that SSH has: each
// argument reaches the program as it is.
func quoted(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}
