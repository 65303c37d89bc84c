package remotetest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/ssh"
)

// A Shell runs real commands, as the user who runs the test.
type Shell struct {
	Path string // "/bin/sh"
	// Programs have precedence over all others: name → text of a shell script.
	Programs map[string]string
}

func (s *Shell) runCommand(ctx context.Context, t testing.TB, command string, ch ssh.Channel) uint32 {
	bin, err := os.MkdirTemp("", "remotetest")
	if err != nil {
		t.Error(err)
		return 1
	}
	defer os.RemoveAll(bin)
	for name, text := range s.Programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Error(err)
			return 1
		}
	}
	cmd := exec.CommandContext(ctx, s.Path, "-c", command)
	cmd.Env = []string{"PATH=" + bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + bin}
	cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Error(err)
		return 1
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return 1
	}
	go func() {
		_, _ = io.Copy(in, ch)
		_ = in.Close()
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return uint32(exit.ExitCode())
	}
	return 0
}
