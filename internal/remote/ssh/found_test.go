package ssh_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/embedded"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/remotetest"
	"slipway.dev/slipway/internal/remote/ssh"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// managed is a host that keeps its helper, at path: real shells and helpers, in
// mount namespaces whose /var/lib is a directory of the test.
type managed struct {
	path    string
	program []byte // the helper
	connect func() (remote.Host, error)
}

func newManaged(t testing.TB) managed {
	t.Helper()
	requireroot.Need(t, "mounting a directory")
	lib := t.TempDir()
	bin := filepath.Join(lib, "slipway", "bin")
	login := filepath.Join(t.TempDir(), "login")
	script := fmt.Sprintf("#!/bin/sh\nexec unshare --mount sh -c 'mount --bind %s /var/lib && exec sh \"$@\"' sh \"$@\"\n", lib)
	if err := errors.Join(os.MkdirAll(bin, 0o700), os.WriteFile(login, []byte(script), 0o700)); err != nil {
		t.Fatal(err)
	}
	find := remotetest.BuildHelper(t)
	helper, err := find(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	key, pub := keyFile(t, t.TempDir(), "")
	s := remotetest.StartServer(t, remotetest.Config{
		Shell: &remotetest.Shell{Path: login}, Users: []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}},
	})
	d, opts := ssh.Dialer{Helper: find}, testOptions(t)
	opts.Timeout = 2 * time.Minute // for an answer that takes five seconds of CPU time
	return managed{
		path: filepath.Join(bin, helper.FileName()), program: unpackHelper(t, helper),
		connect: func() (remote.Host, error) {
			return d.Connect(t.Context(), s.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: key}), opts)
		},
	}
}

func unpackHelper(t testing.TB, h embedded.Helper) []byte {
	t.Helper()
	zr, err := gzip.NewReader(h.PackedReader())
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(zr)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestHelper_IsReusedIfUnchanged: a helper on the host is used if it is complete and only root
// can have written it. Otherwise it is sent again, without an error.
func TestHelper_IsReusedIfUnchanged(t *testing.T) {
	m := newManaged(t)
	flipped := func(at int) []byte {
		b := bytes.Clone(m.program)
		b[at] ^= 1
		return b
	}
	script := func(text string) []byte { // as long as the helper
		b := bytes.Repeat([]byte("\n"), len(m.program))
		copy(b, "#!/bin/sh\n"+text)
		return b
	}
	mark := filepath.Join(t.TempDir(), "ran")
	foreign := script(">" + mark)
	tests := map[string]struct {
		reason string
		there  []byte
		mode   os.FileMode
		uid    int
		kept   bool
	}{
		"whole":                  {"it is not sent again", m.program, 0o700, 0, true},
		"a bit in the middle":    {"damage that it can say itself", flipped(len(m.program) / 2), 0o700, 0, false},
		"a bit at the beginning": {"damage that it does not start with", flipped(0), 0o700, 0, false},
		"in circles":             {"damage that it does not end with", script("while :; do :; done"), 0o700, 0, false},
		"zeros":                  {"what a power loss leaves", make([]byte, len(m.program)), 0o700, 0, false},
		"truncated":              {"a full disk, say", m.program[:len(m.program)/2], 0o700, 0, false},
		"longer":                 {"whoever did it", append(bytes.Clone(m.program), 0), 0o700, 0, false},
		"empty":                  {"a power loss again", nil, 0o700, 0, false},
		"not executable":         {"somebody was careful", m.program, 0o600, 0, false},
		"another's":              {"it is not run, whatever it is", foreign, 0o700, 65534, false},
		"writable by the group":  {"it is not run, whatever it is", foreign, 0o770, 0, false},
		"writable by all":        {"it is not run, whatever it is", foreign, 0o707, 0, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(m.path), os.WriteFile(m.path, tt.there, 0o700),
				os.Chmod(m.path, tt.mode), os.Chown(m.path, tt.uid, -1)); err != nil {
				t.Fatal(err)
			}
			before, err := os.Stat(m.path)
			if err != nil {
				t.Fatal(err)
			}
			h, err := m.connect()
			if err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			defer h.Close()
			if got, err := h.Check(t.Context(), op.List{op.ReadFile{Path: "/etc/passwd"}}); err != nil || len(got) != 1 || got[0].Error != nil {
				t.Errorf("the helper answers %v, %v", got, err)
			}
			after, err := os.Stat(m.path)
			if err != nil || os.SameFile(before, after) != tt.kept || after.Mode() != 0o700 || after.Sys().(*syscall.Stat_t).Uid != 0 {
				t.Errorf("%s: there is %v, %v", tt.reason, after, err)
			}
			if now, err := os.ReadFile(m.path); err != nil || !bytes.Equal(now, m.program) {
				t.Errorf("%d bytes are there now, %v", len(now), err)
			}
			if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: it was run (%v)", tt.reason, err)
			}
		})
	}
	t.Run("in a directory of others", func(t *testing.T) {
		if err := errors.Join(os.WriteFile(m.path, foreign, 0o700), os.Chmod(filepath.Dir(m.path), 0o777)); err != nil {
			t.Fatal(err)
		}
		h, err := m.connect()
		if err != nil {
			t.Fatal(err)
		}
		_ = h.Close()
		if now, err := os.ReadFile(m.path); err != nil || !bytes.Equal(now, foreign) {
			t.Errorf("a helper was put where others write: %v", err)
		}
		if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what is where others write was run (%v)", err)
		}
	})
}

// BenchmarkFoundHelper measures one session on a host that keeps its helper: the CPU time
// of its shells, of the helper and of their child processes.
func BenchmarkFoundHelper(b *testing.B) {
	m := newManaged(b)
	if err := os.WriteFile(m.path, m.program, 0o700); err != nil {
		b.Fatal(err)
	}
	used := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
			b.Fatal(err)
		}
		return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
	}
	before := used()
	for b.Loop() {
		h, err := m.connect()
		if err != nil {
			b.Fatal(err)
		}
		_ = h.Close()
	}
	b.ReportMetric((used()-before)/float64(b.N), "cpu-ms/op")
}
