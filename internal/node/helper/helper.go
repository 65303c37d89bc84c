//go:build linux

// Package helper is the node helper program: it prints its own digest, and serves one
// manager over standard input and output. Started by a timer, it renews the certificates
// of its host; called as runc by a container runtime, it executes runc.
package helper

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor"
	"slipway.dev/slipway/internal/node/wire"
)

// self is the running program, also if its file was removed.
const self = "/proc/self/exe"

// Main carries out a command line, without the program's name:
//
//	serve [DIR]    serve the manager at stdin and stdout; DIR is a directory
//	               made for the program's file alone and removed at once
//	digest         print the program's SHA-256, in hex
//	renew FILE     renew what is due of this host's certificates, as FILE says
//	snapshot FILE  take a snapshot of this host's etcd member, as FILE says
//	approve FILE   approve serving certificates of kubelets, as FILE says
//	runc ARG       become runc, with scores that this host permits
//
// The manager compares the digest of the file with the expected one before it starts
// serve. The name of the file contains the digest (embedded.Helper.FileName).
func Main(ctx context.Context, args []string, stdin, stdout *os.File) error {
	switch {
	case len(args) == 1 && args[0] == "digest":
		return printDigest(stdout)
	case len(args) == 1 && args[0] == "serve":
		return serveManager(ctx, "", stdin, stdout)
	case len(args) == 2 && args[0] == "serve":
		return serveManager(ctx, args[1], stdin, stdout)
	case len(args) == 2 && args[0] == "renew":
		return renewCertificates(ctx, args[1], stdout)
	case len(args) == 2 && args[0] == "snapshot":
		return takeSnapshot(ctx, args[1], stdout)
	case len(args) == 2 && args[0] == "approve":
		return approveRequests(ctx, args[1], stdout)
	case len(args) > 1 && args[0] == "runc":
		return executor.Runc(args[1:])
	}
	return errors.New("this program is a part of slipway, which runs it; usage: slipway-node serve [DIR] | digest | " +
		"renew FILE | snapshot FILE | approve FILE | runc ARG")
}

func printDigest(to io.Writer) error {
	f, err := os.Open(self)
	if err != nil {
		return fmt.Errorf("reading the program: %w", err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("reading the program: %w", err)
	}
	_, err = fmt.Fprintf(to, "%x\n", h.Sum(nil))
	return err
}

func serveManager(ctx context.Context, dir string, stdin, stdout *os.File) error {
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program: %w", err)
	}
	if dir != "" {
		if err := removeProgram(path, dir); err != nil {
			return err
		}
	}
	if err := resetProcess(); err != nil {
		return err
	}
	conn, err := newStdio(stdin, stdout)
	if err != nil {
		return err
	}
	server := wire.Server{Handler: func(f wire.Fetcher) wire.Handler {
		return newHandler(executor.Runner{}, filepath.Base(path), f)
	}}
	return server.Serve(ctx, conn)
}

// resetProcess resets settings that a login shell may have changed, for the programs of
// operations.
func resetProcess() error {
	unix.Umask(0o022)
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("leaving the working directory: %w", err)
	}
	return nil
}

// removeProgram removes the program's file and its directory; the running program needs
// neither.
func removeProgram(path, dir string) error {
	if filepath.Dir(path) != filepath.Clean(dir) {
		return fmt.Errorf("%s is not the directory of this program, which is %s", dir, path)
	}
	return errors.Join(os.Remove(path), os.Remove(dir))
}

// stdio is the connection to the manager.
type stdio struct {
	io.Reader
	io.Writer
	in, out *os.File
}

// newStdio makes stdin and stdout a connection whose Close ends a blocked Read and Write:
// the descriptors must be non-blocking for that. A terminal is set to raw mode, whatever
// sshd and sudo have set.
func newStdio(stdin, stdout *os.File) (*stdio, error) {
	var files [2]*os.File
	for i, f := range []*os.File{stdin, stdout} {
		if err := makeRaw(int(f.Fd())); err != nil {
			return nil, fmt.Errorf("making the terminal raw: %w", err)
		}
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, fmt.Errorf("taking over %s: %w", f.Name(), err)
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, fmt.Errorf("taking over %s: %w", f.Name(), err)
		}
		files[i] = os.NewFile(uintptr(fd), f.Name())
	}
	return &stdio{Reader: files[0], Writer: files[1], in: files[0], out: files[1]}, nil
}

func (s *stdio) Close() error { return errors.Join(s.in.Close(), s.out.Close()) }

// makeRaw makes a terminal pass all bytes unchanged; it does nothing for other files.
func makeRaw(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return err
	}
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON | unix.IXOFF
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB
	t.Cflag |= unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}
