package datadir

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/testutil/memdir"
)

// variable has the data directory in the process of startServer.
const variable = "SLIPWAY_TEST_DATA_DIR"

// TestMain runs as a server if its environment requests that.
func TestMain(m *testing.M) {
	if path := os.Getenv(variable); path != "" {
		d, err := Open(path)
		if err == nil {
			err = d.WriteHolder("127.0.0.1:1234")
		}
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(d.ServerID() + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed
		os.Exit(1)
	}
	dir, err := memdir.Use()
	if err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// startServer starts a process that holds the lock of a data directory, and returns it
// with the id of the server.
func startServer(t *testing.T, path string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+path)
	cmd.Stderr = os.Stderr
	_, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	id, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(id)
}

func TestOpen_RefusesDirectoryInUseUntilProcessIsKilled(t *testing.T) {
	path := filepath.Join(shortDir(t), "data")
	cmd, id := startServer(t, path)
	_, err := Open(path)
	wantID(t, err, idInUse)
	for _, part := range []string{"127.0.0.1:1234", Holder{PID: cmd.Process.Pid}.String()} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in: %v", part, err)
		}
	}
	for name, use := range map[string]func() error{
		"Create":          func() error { _, err := Create(path, newInfo()); return err },
		"Replace":         func() error { _, err := Replace(path); return err },
		"RestorePrevious": func() error { return RestorePrevious(path, "") },
	} {
		t.Run(name, func(t *testing.T) { wantID(t, use(), idInUse) })
	}
	h, err := ReadHolder(path)
	if err != nil || h.PID != cmd.Process.Pid || h.Start == 0 || h.Since.IsZero() || h.Address != "127.0.0.1:1234" {
		t.Errorf("%+v, %v", h, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if _, err := ReadHolder(path); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end of the process: %v", err)
	}
	if again := openClosed(t, path); again != id {
		t.Errorf("the id was %s and is %s", id, again)
	}
}

func TestReadHolder_ReportsStateOfLock(t *testing.T) {
	path := filepath.Join(shortDir(t), "data")
	_, err := ReadHolder(path)
	wantID(t, err, idMissing)
	openClosed(t, path)
	if _, err := ReadHolder(path); !errors.Is(err, ErrNotRunning) {
		t.Errorf("not running: %v", err)
	}
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := ReadHolder(path); err != nil || h.PID != os.Getpid() || h.Address != "" {
		t.Errorf("not listening: %+v, %v", h, err)
	}
	for _, address := range []string{"[2001:db8::1]:7443", strings.Repeat("x", 2*lockSize), "10.0.0.1:1"} {
		if err := d.WriteHolder(address); err != nil {
			t.Error(err)
		}
		if h, err := ReadHolder(path); err != nil || h.Address != address {
			t.Errorf("listening at %s: %+v, %v", address, h, err)
		}
	}
	if err := os.Truncate(d.Path(lockFile), 9); err != nil {
		t.Fatal(err)
	}
	if h, err := ReadHolder(path); err != nil || h != (Holder{}) {
		t.Errorf("with half a text: %+v, %v", h, err)
	}
	closeDir(t, d)
	if _, err := ReadHolder(path); !errors.Is(err, ErrNotRunning) {
		t.Errorf("closed: %v", err)
	}
	if err := d.WriteHolder("a"); err == nil {
		t.Error("a closed directory has a holder")
	}
	if err := os.Remove(filepath.Join(path, lockFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadHolder(path); !errors.Is(err, ErrNotRunning) {
		t.Errorf("without a file: %v", err)
	}
}

// TestOpen_WaitsForReaderOfHolder uses a descriptor that holds the lock as ReadHolder does.
func TestOpen_WaitsForReaderOfHolder(t *testing.T) {
	path := filepath.Join(shortDir(t), "data")
	openClosed(t, path)
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := ReadHolder(path); err != nil && !errors.Is(err, ErrNotRunning) {
				<-stop
				done <- err
				return
			}
		}
	}()
	for range 20 {
		openClosed(t, path)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
