package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// testTerminal is a user at a terminal, with a separate machine.
type testTerminal struct {
	out, err     lockedBuffer
	env          Env
	signals      chan<- os.Signal
	clock        time.Time
	mu           sync.Mutex
	signalsReady chan struct{} // closed when signals can be sent
	stdin        io.Reader
	isUnattended bool // no user is at the terminal
}

type lockedBuffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	written chan struct{} // closed and replaced by each write
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.written != nil {
		close(b.written)
		b.written = nil
	}
	return b.b.Write(p)
}

// waitFor waits until text was written.
func (b *lockedBuffer) waitFor(t *testing.T, text string) {
	t.Helper()
	for {
		b.mu.Lock()
		if b.written == nil {
			b.written = make(chan struct{})
		}
		more, done := b.written, strings.Contains(b.b.String(), text)
		b.mu.Unlock()
		if done {
			return
		}
		select {
		case <-more:
		case <-t.Context().Done():
			t.Fatalf("%q was never written", text)
		}
	}
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newTestTerminal(t *testing.T, stdin string) *testTerminal {
	s := &testTerminal{clock: epoch, signalsReady: make(chan struct{}), stdin: strings.NewReader(stdin)}
	home := t.TempDir()
	vars := map[string]string{
		"HOME": home, "SLIPWAY_HOME": filepath.Join(home, "s"),
		"SLIPWAY_CACHE": filepath.Join(home, "c"), "TERM": "dumb",
	}
	s.env = Env{
		Getenv: func(k string) string { return vars[k] }, Environ: func() []string { return nil },
		Hostname: func() (string, error) { return "box", nil }, IsCgroupV1: func() bool { return true }, UID: 1000,
		LookupUser: func(uid string) (*user.User, error) { return nil, user.UnknownUserError(uid) },
		Exec:       func(string, []string, []string) error { return errors.New("no programs here") },
		Notify: func(c chan<- os.Signal, sig ...os.Signal) {
			if slices.Contains(sig, os.Interrupt) {
				s.signals = c
				close(s.signalsReady)
			}
		},
		StopNotify: func(chan<- os.Signal) {},
		Now: func() time.Time {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.clock
		},
	}
	return s
}

func (s *testTerminal) advanceClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
}

func (s *testTerminal) run(t *testing.T, f *fake, args ...string) int {
	return Main(t.Context(), args, Streams{In: s.stdin, Out: &s.out, Err: &s.err, CanAsk: !s.isUnattended}, s.env,
		func(context.Context, Settings) (Service, error) { return service{f}, nil })
}

const prodFile = `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: prod}
spec:
  hosts:
  - {name: cp1, address: 10.0.0.11, roles: [control-plane]}
`

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prod.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfirm_AppliesOnlyAfterTheRightAnswer(t *testing.T) {
	file := write(t, prodFile)
	for _, tc := range []struct {
		name, prepare, typed string
		args                 []string
		want                 int
		says                 string
	}{
		{"yes", "create", "y\n", []string{"apply", "-f", file}, exitDone, "Continue? [y/N] "},
		{"YES", "create", "YES\n", []string{"apply", "-f", file}, exitDone, "Continue? [y/N] "},
		{"no", "create", "n\n", []string{"apply", "-f", file}, exitRefused, "nothing was changed [not-confirmed]"},
		{"empty answer", "create", "\n", []string{"apply", "-f", file}, exitRefused, "not-confirmed"},
		{"end of input", "create", "", []string{"apply", "-f", file}, exitRefused, "not-confirmed"},
		{"cluster name", "removal", "prod\n", []string{"delete", "cluster", "prod"}, exitDone, "Type the cluster's name (prod)"},
		{"yes instead of the cluster name", "removal", "y\n", []string{"delete", "cluster", "prod"}, exitRefused, "not-confirmed"},
		{
			"--yes alone does not allow a removal", "removal", "nope\n",
			[]string{"apply", "-f", file, "--yes"},
			exitRefused, "Type the cluster's name (prod)",
		},
		{
			"--allow-removal does not replace the confirmation", "removal", "y\n",
			[]string{"apply", "-f", file, "--allow-removal"},
			exitDone, "Continue? [y/N] ",
		},
		{
			"the plan is shown before the question in every format", "create", "y\n",
			[]string{"apply", "-f", file, "-o", "json"},
			exitDone, "join node",
		},
		{"a resume needs no confirmation", "removal", "", []string{"resume", "prod"}, exitDone, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newTestTerminal(t, tc.typed)
			f := &fake{Prepare: tc.prepare, Apply: "succeeded", Clusters: []string{"prod"}}
			if got := s.run(t, f, tc.args...); got != tc.want || !strings.Contains(s.err.String(), tc.says) {
				t.Errorf("exit code %d, want %d and %q in:\n%s", got, tc.want, tc.says, s.err.String())
			}
		})
	}
}

// TestUpgrade_ConfirmsEachMinor: each minor version of an upgrade is confirmed
// separately, and can be declined separately.
func TestUpgrade_ConfirmsEachMinor(t *testing.T) {
	s := newTestTerminal(t, "y\n")
	f := &fake{Prepare: "create", Apply: "succeeded", Onward: []string{"v1.37.1"}, Between: "create"}
	got := s.run(t, f, "upgrade", "prod", "--to", "v1.37.1")
	if said := s.err.String(); got != exitFailed || !strings.Contains(said, "[not-confirmed]") ||
		!strings.Contains(said, "continue with: slipway upgrade prod --to v1.37.1\n") {
		t.Errorf("exit code %d, want %d, and the command that continues in:\n%s", got, exitFailed, said)
	}
}

func TestMain_StopsCleanlyAtFirstSignal(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			s := newTestTerminal(t, "")
			applying := make(chan struct{})
			code := make(chan int)
			go func() {
				code <- s.run(t, &fake{Prepare: "create", Apply: "until-cancelled", applying: applying}, "create",
					"cluster", "-y", "-f", write(t, prodFile))
			}()
			<-applying
			s.signals <- sig
			s.err.waitFor(t, "to continue later")
			<-applying
			if got := <-code; got != exitInterrupted {
				t.Errorf("exit code %d, want %d", got, exitInterrupted)
			}
			for _, want := range []string{
				"Stopping: waiting until running steps reach a safe point: join node on w1.\n",
				"Run 'slipway resume prod' to continue later.\n", "STOPPED after 1m23s", "Next: slipway resume prod\n",
			} {
				if !strings.Contains(s.err.String(), want) {
					t.Errorf("%q is missing in:\n%s", want, s.err.String())
				}
			}
		})
	}
}

func TestMain_ReturnsAtOnceAtSecondSignal(t *testing.T) {
	s := newTestTerminal(t, "")
	applying := make(chan struct{})
	code := make(chan int)
	go func() {
		code <- s.run(t, &fake{Prepare: "create", Apply: "forever", applying: applying}, "create", "cluster", "-y", "-f", write(t, prodFile))
	}()
	<-applying
	s.signals <- os.Interrupt
	<-applying // the first has arrived
	s.signals <- os.Interrupt
	s.signals <- os.Interrupt
	// Echoes of the first signal, at the same time, do not count.
	for len(s.signals) > 0 {
		select {
		case c := <-code:
			t.Fatalf("Main ended with %d at an echo of the first signal", c)
		default:
		}
	}
	s.advanceClock(time.Second)
	s.signals <- os.Interrupt
	if got := <-code; got != exitInterrupted {
		t.Errorf("exit code %d, want %d", got, exitInterrupted)
	}
	if want := "No longer waiting."; !strings.Contains(s.err.String(), want) ||
		!strings.Contains(s.err.String(), "Next: slipway resume prod") {
		t.Errorf("%q is missing in:\n%s", want, s.err.String())
	}
}

// TestOutput_EscapesControlsFromHosts: text from hosts never controls the terminal.
func TestOutput_EscapesControlsFromHosts(t *testing.T) {
	for _, args := range [][]string{
		{"operations", "show", operationID},
		{"operations", "list"},
		{"get", "clusters"},
		{"get", "cluster", "prod"},
		{"operations", "watch", operationID},
		{"exec", "w1", "--cluster", "prod", "--", "true"},
		{"exec", "all", "--cluster", "prod", "--", "true"},
	} {
		for _, format := range []string{"text", "json", "yaml"} {
			s := newTestTerminal(t, "")
			s.run(t, &fake{Clusters: []string{"prod"}, Phase: "Ready", History: "hostile", Lost: "w1"}, append([]string{"-o", format}, args...)...)
			for _, steers := range []string{"\x1b", "\x07", "\u009b"} {
				if out := s.out.String() + s.err.String(); strings.Contains(out, steers) || out == "" {
					t.Errorf("%v as %s: %q is in %q", args, format, steers, out)
				}
			}
		}
	}
}

// TestApply_DoesNotWaitForReaderOfOutput: an operation does not wait for the reader of
// its output, and the reader gets all events.
func TestApply_DoesNotWaitForReaderOfOutput(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		interrupted  bool
	}{
		{"reads later", "apply waits for the reader at the end", false},
		{"never reads", "after Ctrl-C the program stops waiting for the reader, but completes the work", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := write(t, prodFile)
			synctest.Test(t, func(t *testing.T) {
				s := newTestTerminal(t, "")
				r, w := io.Pipe()
				defer w.Close()
				applied, code := make(chan struct{}), make(chan int, 1)
				go func() {
					code <- Main(t.Context(), []string{"create", "cluster", "-y", "-o", "json", "-f", file},
						Streams{In: s.stdin, Out: w, Err: &s.err}, s.env,
						func(context.Context, Settings) (Service, error) {
							return service{&fake{Prepare: "create", Apply: "succeeded", applied: applied}}, nil
						})
				}()
				got := make(chan string, 1)
				read := func() {
					all, _ := io.ReadAll(r) // ends with the test
					got <- string(all)
				}
				// Before the operation, the program waits for the reader.
				if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				<-applied
				if tc.interrupted {
					s.signals <- os.Interrupt
				} else {
					go read()
				}
				if c := <-code; c != exitDone {
					t.Errorf("exit code %d: %s", c, tc.reason)
				}
				w.Close()
				if tc.interrupted {
					r.Close()
					return
				}
				var types []string
				for l := range strings.Lines(<-got) {
					_, typ, _ := strings.Cut(l, `"type":"`)
					typ, _, _ = strings.Cut(typ, `"`)
					types = append(types, typ)
				}
				if d := cmp.Diff([]string{"operation.started", "step.started", "step.finished", "result"}, types); d != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, d)
				}
			})
		})
	}
}

func TestKubectl_StopsAtSignal(t *testing.T) {
	s := newTestTerminal(t, "")
	watching := make(chan struct{})
	code := make(chan int)
	go func() {
		code <- s.run(t, &fake{applying: watching}, "kubectl", "prod", "--", "get", "pods", "-w")
	}()
	<-watching
	s.signals <- os.Interrupt
	if got := <-code; got != exitInterrupted || s.err.String() != "" {
		t.Errorf("exit code %d, want %d: %s", got, exitInterrupted, s.err.String())
	}
}

func TestConfirm_StopsAtSignal(t *testing.T) {
	s := newTestTerminal(t, "")
	r, w := io.Pipe() // a person who does not answer
	defer w.Close()
	s.stdin = r
	code := make(chan int)
	go func() {
		code <- s.run(t, &fake{Prepare: "create"}, "create", "cluster", "-f", write(t, prodFile))
	}()
	<-s.signalsReady
	s.signals <- os.Interrupt
	if got := <-code; got != exitInterrupted {
		t.Errorf("exit code %d, want %d: %s", got, exitInterrupted, s.err.String())
	}
}

// TestReadInput_StopsAtSignal: standard input or a pipe without a writer does not block
// the program.
func TestReadInput_StopsAtSignal(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"-", pipe} {
		t.Run(file, func(t *testing.T) {
			s := newTestTerminal(t, "")
			r, w := io.Pipe()
			defer w.Close()
			s.stdin = r
			code := make(chan int)
			go func() { code <- s.run(t, &fake{}, "plan", "-f", file) }()
			<-s.signalsReady
			s.signals <- syscall.SIGTERM
			if got := <-code; got != exitInterrupted {
				t.Errorf("exit code %d, want %d: %s", got, exitInterrupted, s.err.String())
			}
			if file == pipe { // lets the reader of it go
				_ = os.WriteFile(pipe, nil, 0o600)
			}
		})
	}
}

// TestReadInput_RefusesEndlessFile: an endless device does not use up the memory.
func TestReadInput_RefusesEndlessFile(t *testing.T) {
	s := newTestTerminal(t, "")
	if got := s.run(t, &fake{}, "plan", "-f", "/dev/zero"); got != exitRefused || !strings.Contains(s.err.String(), "is larger than") {
		t.Errorf("exit code %d, want %d: %s", got, exitRefused, s.err.String())
	}
}

// TestNotify_LeavesIgnoredSignals: a signal that the program was started to ignore does
// not stop it.
func TestNotify_LeavesIgnoredSignals(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	c := make(chan os.Signal, 2)
	notifyUnlessIgnored(c, syscall.SIGHUP, syscall.SIGTERM)
	defer signal.Stop(c)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-c; got != syscall.SIGTERM {
		t.Errorf("got %v; nohup is of no use", got)
	}
}

func TestFindDirectories_ForUserAndSudo(t *testing.T) {
	ada := func(uid string) (*user.User, error) {
		if uid == "1000" {
			return &user.User{HomeDir: "/home/ada"}, nil
		}
		return nil, user.UnknownUserError(uid)
	}
	for _, tc := range []struct {
		name string
		uid  int
		env  map[string]string
		want program.Directories
		err  bool
	}{
		{
			name: "a user", uid: 1000, env: map[string]string{"HOME": "/home/ada"},
			want: program.Directories{Home: "/home/ada/.local/share/slipway", Cache: "/home/ada/.cache/slipway", User: "/home/ada"},
		},
		{
			name: "XDG", uid: 1000, env: map[string]string{"HOME": "/home/ada", "XDG_DATA_HOME": "/d", "XDG_CACHE_HOME": "/c"},
			want: program.Directories{Home: "/d/slipway", Cache: "/c/slipway", User: "/home/ada"},
		},
		{
			name: "a relative XDG directory is ignored", uid: 1000, env: map[string]string{"HOME": "/home/ada", "XDG_DATA_HOME": "d"},
			want: program.Directories{Home: "/home/ada/.local/share/slipway", Cache: "/home/ada/.cache/slipway", User: "/home/ada"},
		},
		{
			name: "named", uid: 1000,
			env:  map[string]string{"HOME": "/home/ada", "SLIPWAY_HOME": "/s", "SLIPWAY_CACHE": "/k", "XDG_DATA_HOME": "/d"},
			want: program.Directories{Home: "/s", Cache: "/k", User: "/home/ada"},
		},
		{
			name: "sudo", env: map[string]string{"HOME": "/root", "SUDO_UID": "1000", "SUDO_GID": "1001"},
			want: program.Directories{
				Home: "/home/ada/.local/share/slipway", Cache: "/home/ada/.cache/slipway",
				User: "/home/ada", Owner: &fileowner.Owner{UID: 1000, GID: 1001},
			},
		},
		{
			name: "sudo from root", env: map[string]string{"HOME": "/root", "SUDO_UID": "0", "SUDO_GID": "0"},
			want: program.Directories{Home: "/root/.local/share/slipway", Cache: "/root/.cache/slipway", User: "/root"},
		},
		{
			name: "sudo variables in a user's shell", uid: 1000,
			env:  map[string]string{"HOME": "/home/ada", "SUDO_UID": "1002", "SUDO_GID": "1"},
			want: program.Directories{Home: "/home/ada/.local/share/slipway", Cache: "/home/ada/.cache/slipway", User: "/home/ada"},
		},
		{
			name: "no HOME", uid: 1000,
			want: program.Directories{Home: "/home/ada/.local/share/slipway", Cache: "/home/ada/.cache/slipway", User: "/home/ada"},
		},
		{name: "sudo by an unknown user", env: map[string]string{"SUDO_UID": "1005", "SUDO_GID": "1"}, err: true},
		{name: "sudo without a group", env: map[string]string{"SUDO_UID": "1000"}, err: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Env{Getenv: func(k string) string { return tc.env[k] }, UID: tc.uid, LookupUser: ada}.findDirectories()
			if (err != nil) != tc.err {
				t.Fatalf("error %v", err)
			}
			if d := cmp.Diff(tc.want, got); d != "" && !tc.err {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestToDNSLabel_ForEveryHostName(t *testing.T) {
	for host, want := range map[string]string{
		"box": "box", "Box_7.example.org": "box-7", "-x-": "x", "": "local", "...": "local", "Ünï": "n",
		strings.Repeat("a", 70): strings.Repeat("a", 63),
	} {
		if got := toDNSLabel(host); got != want {
			t.Errorf("label(%q) = %q, want %q", host, got, want)
		}
	}
}

// TestCacheHandover_GivesNewFilesToCaller: files that a program under sudo writes to the
// cache belong to the caller. The files of sandbox machines remain root's.
func TestCacheHandover_GivesNewFilesToCaller(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "new", "cache")
	caller := createUnderSudo(t, cache, filepath.Join(cache, "bundles", "b", "index.json"), filepath.Join(cache, "sandbox", "tree", "passwd"))
	for path, want := range map[string]int{
		"..": caller, "": caller, "bundles/b": caller, "bundles/b/index.json": caller, "sandbox": os.Geteuid(),
		"sandbox/tree/passwd": os.Geteuid(),
	} {
		if got := uidOf(t, filepath.Join(cache, path)); got != want {
			t.Errorf("%q belongs to %d, want %d", path, got, want)
		}
	}
}

// TestCacheHandover_KeepsOwnerOfSharedCache: a shared cache, or the target of a link,
// may contain other files.
func TestCacheHandover_KeepsOwnerOfSharedCache(t *testing.T) {
	shared := t.TempDir()
	link := filepath.Join(t.TempDir(), "cache")
	theirs := filepath.Join(shared, "theirs")
	if err := errors.Join(os.WriteFile(theirs, nil, 0o600), os.Symlink(shared, link)); err != nil {
		t.Fatal(err)
	}
	for _, cache := range []string{shared, link} {
		createUnderSudo(t, cache, filepath.Join(shared, "bundles", "index.json"))
		for _, path := range []string{shared, theirs} {
			if got := uidOf(t, path); got != os.Geteuid() {
				t.Errorf("with the cache %s, %s belongs to %d, and was root's", cache, path, got)
			}
		}
	}
}

// createUnderSudo creates a cluster under sudo, which writes files, and returns the user
// id of the caller.
func createUnderSudo(t *testing.T, cache string, writes ...string) (caller int) {
	t.Helper()
	requireroot.Need(t, "giving files to others")
	const gid = 12346
	caller = 12345
	s := newTestTerminal(t, "")
	vars := map[string]string{
		"SLIPWAY_HOME": t.TempDir(), "SLIPWAY_CACHE": cache, "SUDO_UID": strconv.Itoa(caller), "SUDO_GID": strconv.Itoa(gid),
	}
	s.env.Getenv, s.env.UID = func(k string) string { return vars[k] }, 0
	s.env.LookupUser = func(string) (*user.User, error) { return &user.User{HomeDir: t.TempDir()}, nil }
	f := &fake{Prepare: "create", Apply: "succeeded", Writes: writes}
	if code := s.run(t, f, "create", "cluster", "-y", "-f", write(t, prodFile)); code != exitDone {
		t.Fatalf("exit code %d: %s", code, s.err.String())
	}
	return caller
}

func uidOf(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}
