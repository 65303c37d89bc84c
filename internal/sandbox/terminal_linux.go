package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"

	"golang.org/x/sys/unix"
)

// ExecTerminal is Exec on a terminal of the machine's own, shown on the
// terminal tty, which is in raw mode meanwhile.
func (m *Machine) ExecTerminal(ctx context.Context, argv []string, tty *os.File) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var master *os.File
	err := m.enterNamespaces(cmd, func() error {
		var slave *os.File
		var err error
		if master, slave, err = openTerminal(); err != nil {
			return err
		}
		defer slave.Close()
		copySize(tty, master)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &unix.SysProcAttr{}
		}
		cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
		if err := startIn(cmd, argv[0]); err != nil {
			return errors.Join(err, master.Close())
		}
		return nil
	})
	if err != nil {
		return err
	}
	restore, err := makeRaw(tty)
	if err != nil {
		return errors.Join(err, master.Close(), cmd.Process.Kill(), ignoreExit(cmd.Wait()))
	}
	defer restore()
	relayTerminal(master, tty)
	return cmd.Wait()
}

// relayTerminal copies both ways until the program and all that hold its terminal
// have ended.
func relayTerminal(master, tty *os.File) {
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, unix.SIGWINCH)
	go func() {
		for range sizes {
			copySize(tty, master)
		}
	}()
	// Reading a terminal cannot be ended; the copy ends with the next key,
	// or with this program.
	go func() { _, _ = io.Copy(master, tty) }()
	_, _ = io.Copy(tty, master) // ends with EIO when the other end is closed
	signal.Stop(sizes)
	close(sizes)
	master.Close()
}

// openTerminal makes a pair of pseudo-terminals; it runs in the machine.
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

func copySize(from, to *os.File) {
	size, err := unix.IoctlGetWinsize(int(from.Fd()), unix.TIOCGWINSZ)
	if err == nil {
		_ = unix.IoctlSetWinsize(int(to.Fd()), unix.TIOCSWINSZ, size) // a wrong size is not a reason to stop
	}
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// makeRaw hands every key through, see cfmakeraw(3).
func makeRaw(tty *os.File) (restore func(), err error) {
	fd := int(tty.Fd())
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	raw := *was
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag &^= unix.CSIZE | unix.PARENB
	raw.Cflag |= unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, was) }, nil
}
