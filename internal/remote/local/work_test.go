package local_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/local"
	"slipway.dev/slipway/internal/remote/remotetest"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// localWorker is this machine, with the real helper on it.
func localWorker(t *testing.T) remote.Worker {
	t.Helper()
	requireroot.Need(t, "the helper")
	d := &local.Dialer{Helper: remotetest.BuildHelper(t)}
	h, err := d.Connect(t.Context(), v1alpha1.Host{Name: "here"}, remote.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h.(remote.Worker)
}

func TestWork_RunsAndCopies(t *testing.T) {
	w := localWorker(t)
	t.Run("run", func(t *testing.T) { runProgram(t, w) })
	t.Run("stop", func(t *testing.T) { checkStop(t, w) })
	t.Run("copy", func(t *testing.T) { copyBothWays(t, w) })
}

func runProgram(t *testing.T, w remote.Worker) {
	big := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB: more than a window
	for _, tc := range []struct {
		name             string
		argv             []string
		user, in         string
		code             int
		out, err, reason string
	}{
		{"argv", []string{"printf", "%s|", "a b", "$HOME", "*"}, "", "", 0, "a b|$HOME|*|", "", "no shell sees it"},
		{"streams", []string{"sh", "-c", "echo out; echo err >&2; exit 7"}, "", "", 7, "out\n", "err\n", "each goes its own way"},
		{"input", []string{"cat"}, "", big, 0, big, "", "it is handed on whole"},
		{"input that nobody reads", []string{"true"}, "", big, 0, "", "", "a program need not read"},
		{"as root", []string{"sh", "-c", "id -u; pwd"}, "", "", 0, "0\n/root\n", "", "no user is root"},
		{
			"as a user",
			[]string{"sh", "-c", "id -u; id -g; id -G; echo $USER $HOME; pwd"},
			"nobody", "",
			0, "65534\n65534\n65534\nnobody /nonexistent\n/\n", "", "with the user's groups and home",
		},
		{"missing", []string{"no-such-program"}, "", "", 127, "", "program not found: no-such-program", "as a shell says it"},
		{"missing, by path", []string{"/no/such"}, "", "", 127, "", "program not found: /no/such", "as a shell says it"},
		{"not executable", []string{"/etc/passwd"}, "", "", 126, "", "permission denied", "as a shell says it"},
		{"killed", []string{"sh", "-c", "kill -9 $$"}, "", "", 137, "", "", "as a shell says it"},
		{
			"left behind",
			[]string{"sh", "-c", "echo done; sleep 60 & exit 0"},
			"", "", 0, "done\n",
			"", "what keeps the output open is not waited for",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errw bytes.Buffer
			var in io.Reader
			if tc.in != "" {
				in = strings.NewReader(tc.in)
			}
			code, err := w.Run(t.Context(), remote.Command{Argv: tc.argv, User: tc.user}, in, &out, &errw)
			if err != nil || code != tc.code || out.String() != tc.out || !strings.Contains(errw.String(), tc.err) {
				t.Errorf("%d, %v, %.80q, %q: %s", code, err, out.String(), errw.String(), tc.reason)
			}
		})
	}
	if _, err := w.Run(t.Context(), remote.Command{Argv: []string{"id"}, User: "no-such-user"}, nil, io.Discard, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "user no-such-user does not exist on this host") {
		t.Errorf("a user that is not there: %v", err)
	}
}

// checkStop: a program ends with the context, and not before its time.
func checkStop(t *testing.T, w remote.Worker) {
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	out := &hears{hear: func() { cancel(enough) }}
	_, err := w.Run(ctx, remote.Command{Argv: []string{"sh", "-c", "echo $$ > " + file + "; echo up; exec sleep 600"}}, nil, out, io.Discard)
	if !errors.Is(err, enough) {
		t.Errorf("%v, want why the context ended", err)
	}
	var pid int
	if b, err := os.ReadFile(file); err != nil || len(b) == 0 {
		t.Fatalf("%q, %v", b, err)
	} else {
		for _, c := range strings.TrimSpace(string(b)) {
			pid = 10*pid + int(c-'0')
		}
	}
	end := time.After(10 * time.Second)
	for tick := time.NewTicker(20 * time.Millisecond); syscall.Kill(pid, 0) == nil; {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("process %d still runs", pid)
		}
	}
}

type hears struct{ hear func() }

func (h *hears) Write(p []byte) (int, error) {
	h.hear()
	return len(p), nil
}

func copyBothWays(t *testing.T, w remote.Worker) {
	dir := t.TempDir()
	from := filepath.Join(dir, "file")
	content := strings.Repeat("0123456789abcdef", 1<<17)
	if err := os.WriteFile(from, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	send := func(user, to string) error {
		tree, err := transfer.ReadTree(t.Context(), from, nil)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := w.OpenCopy(t.Context(), remote.Copy{Path: to, User: user})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = tree.Send(conn, nil)
		return err
	}
	to := filepath.Join(dir, "to")
	if err := send("", to); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(to); err != nil || string(b) != content {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	// With the user's rights, and no more.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := send("nobody", filepath.Join(dir, "theirs")); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("nobody writes to root's directory: %v", err)
	}
	open := filepath.Join("/var/tmp", "slipway-test-"+filepath.Base(filepath.Dir(dir)))
	t.Cleanup(func() { _ = os.Remove(open) })
	if err := send("nobody", open); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(open); err != nil || info.Sys().(*syscall.Stat_t).Uid != 65534 || info.Mode() != 0o640 {
		t.Errorf("%v, %v: want nobody's, with its mode", info, err)
	}
	// Existing files keep their owner, or are not changed.
	if err := errors.Join(os.Truncate(open, 3), os.Chown(open, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if err := send("nobody", open); err == nil || !strings.Contains(err.Error(), "belongs to another user (0)") {
		t.Errorf("nobody replaces root's file: %v", err)
	}
	if err := os.Chown(open, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := send("", open); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(open); err != nil || info.Sys().(*syscall.Stat_t).Uid != 65534 || info.Mode() != 0o640 {
		t.Errorf("replaced by root: %v, %v: want nobody's", info, err)
	}
	fetch := func(user, path, to string) error {
		conn, err := w.OpenCopy(t.Context(), remote.Copy{Path: path, User: user, Send: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = transfer.FetchTree(t.Context(), conn, transfer.Place{Path: to}, filepath.Base(path), nil)
		return err
	}
	if err := fetch("nobody", open, filepath.Join(dir, "back")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "back")); err != nil || string(b) != content {
		t.Errorf("%d bytes back, %v", len(b), err)
	}
	for path, want := range map[string]string{"/etc/shadow": "permission denied", "/no/such": "no such file"} {
		if err := fetch("nobody", path, dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s as nobody: %v, want %s", path, err, want)
		}
	}
	if err := fetch("no-such-user", "x", dir); err == nil || !strings.Contains(err.Error(), "user no-such-user does not exist on this host") {
		t.Errorf("as a user that is not there: %v", err)
	}
}
