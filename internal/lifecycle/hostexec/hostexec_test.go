package hostexec

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/dial"
	"slipway.dev/slipway/internal/remote/remotetest"
	"slipway.dev/slipway/internal/store"
)

// newTestExecutor returns an executor with two saved clusters. Their hosts are this machine,
// through real SSH and the real helper; host "dead" refuses connections.
func newTestExecutor(t *testing.T) *Executor {
	t.Helper()
	home := t.TempDir()
	st, err := store.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	for cluster, names := range map[string][]string{"prod": {"cp1", "w1", "w2", "dead"}, "lab": {"cp1"}} {
		c := &v1alpha1.Cluster{}
		c.Name = cluster
		for _, name := range names {
			s := remotetest.StartServer(t, remotetest.Config{
				Shell: &remotetest.Shell{Path: "/bin/sh"}, Users: []remotetest.User{{Name: "root", Password: "letmein"}},
			})
			s.SetDown(name == "dead")
			h := s.HostWith(name, v1alpha1.SSH{Password: "letmein"})
			h.Roles = []v1alpha1.Role{v1alpha1.RoleWorker}
			c.Spec.Hosts = append(c.Spec.Hosts, h)
		}
		if err := st.Clusters().Save(t.Context(), c, nil); err != nil {
			t.Fatal(err)
		}
	}
	d := dial.New(remotetest.BuildHelper(t))
	return New(Config{
		Clusters: st.Clusters(), Dialer: hostconn.Dialer{Connect: d.Connect, KnownHosts: filepath.Join(home, "known_hosts"), Home: home},
		Resolve: d.ResolveLogin, Shell: d.StartShell,
	})
}

func TestExecutor_WorksOverRealSSH(t *testing.T) {
	s := newTestExecutor(t)
	t.Run("targets", func(t *testing.T) { testTargets(t, s) })
	t.Run("exec", func(t *testing.T) { testExec(t, s) })
	t.Run("copy", func(t *testing.T) { testCopy(t, s) })
	t.Run("login", func(t *testing.T) { testLogin(t, s) })
}

func targets(t *testing.T, s *Executor, selector string) []Target {
	t.Helper()
	list, warnings, err := s.Targets(t.Context(), selector, "prod")
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	return list
}

func testTargets(t *testing.T, s *Executor) {
	for _, tc := range []struct{ selector, want, reason string }{
		{"w1,cp1", "prod@cp1 prod@w1", "in the order of the file"},
		{"w*", "prod@w1 prod@w2", "by pattern"},
		{"lab@all,prod@w1,w2", "lab@cp1 prod@w1 prod@w2", "a cluster holds for what follows"},
		{"*@cp1", "lab@cp1 prod@cp1", "all clusters"},
		{"w1,prod@w1", "prod@w1", "each once"},
	} {
		var got []string
		for _, x := range targets(t, s, tc.selector) {
			got = append(got, x.Cluster+"@"+x.Host.Name)
		}
		if d := cmp.Diff(tc.want, strings.Join(got, " ")); d != "" {
			t.Errorf("%s: %s (-want +got):\n%s", tc.selector, tc.reason, d)
		}
	}
	for _, tc := range []struct {
		selector, want string
		warnings       []string
		reason         string
	}{
		{"*@w1", "prod@w1", []string{`cluster lab: there is no host "w1"`}, "one of the clusters has it"},
		{"*@cp1,w*", "lab@cp1 prod@cp1 prod@w1 prod@w2", []string{`cluster lab: no host name matches "w*"`}, "each term by itself"},
		{"*@w[1:2]", "prod@w1 prod@w2", []string{`cluster lab: there is no host "w1"`, `cluster lab: there is no host "w2"`}, "ranges, too"},
		{"p*@w[2:3]", "prod@w2", []string{`cluster prod: there is no host "w3"`}, "what there is of a range"},
	} {
		list, warnings, err := s.Targets(t.Context(), tc.selector, "prod")
		var got, said []string
		for _, x := range list {
			got = append(got, x.Cluster+"@"+x.Host.Name)
		}
		for _, d := range warnings {
			if said = append(said, d.Message); d.Severity != diag.Warning || d.Hint != "" {
				t.Errorf("%s: %+v is no warning", tc.selector, d)
			}
		}
		if d := cmp.Diff(tc.want, strings.Join(got, " ")) + cmp.Diff(tc.warnings, said); d != "" || err != nil {
			t.Errorf("%s: %v: %s (-want +got):\n%s", tc.selector, err, tc.reason, d)
		}
	}
	for selector, want := range map[string]int{
		"w9,lab@role=wroker,x*@all": 3, // all reasons
		"*@role=etcd":               2, // in none of the clusters
		"*@cp1,w9":                  2, // a term that names nothing anywhere
		"*@w[2:1]":                  2, // no term at all
		"prod@w[2:3]":               1, // a cluster by its name
	} {
		_, _, err := s.Targets(t.Context(), selector, "prod")
		var list diag.List
		if !errors.As(err, &list) || len(list) != want {
			t.Errorf("%s: %v, want %d reasons", selector, err, want)
		}
	}
	_, _, err := s.Targets(t.Context(), "x*@all", "prod")
	wantRefusal(t, err, idNoSuchClusters)
	if _, _, err := s.Targets(t.Context(), "gone@all", "prod"); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("a cluster that is not recorded: %v", err)
	}
}

// A pattern skips clusters with damaged state and warns about them. A damaged cluster that
// is named is refused.
func TestTargets_SkipsDamagedClustersOfPattern(t *testing.T) {
	home := t.TempDir()
	st, err := store.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"edge", "lab", "prod"} {
		c := &v1alpha1.Cluster{}
		c.Name = cluster
		c.Spec.Hosts = []v1alpha1.Host{{Name: "cp1", Address: "192.0.2.1"}}
		if err := st.Clusters().Save(t.Context(), c, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(home, "clusters", "edge", "cluster.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		selector, reason, want string
		refused                bool
		warnings               int
	}{
		{"*@cp1", "the others are asked", "lab@cp1 prod@cp1", false, 1},
		{"prod@cp1", "another cluster is not concerned", "prod@cp1", false, 0},
		{"edge@cp1", "what was asked for cannot be done", "", true, 0},
		{"e*@cp1", "nothing is left of the pattern", "", true, 0},
	} {
		var heard diag.List
		s := New(Config{Clusters: st.Clusters(), Warn: func(l diag.List) { heard = append(heard, l...) }})
		list, warnings, err := s.Targets(t.Context(), tc.selector, "prod")
		var got []string
		for _, x := range list {
			got = append(got, x.Cluster+"@"+x.Host.Name)
		}
		if d := cmp.Diff(tc.want, strings.Join(got, " ")); d != "" || (err != nil) != tc.refused || len(warnings) > 0 {
			t.Errorf("%s: %v, %v: %s (-want +got):\n%s", tc.selector, err, warnings, tc.reason, d)
		}
		if len(heard) != tc.warnings {
			t.Errorf("%s: told of %v, want %d: %s", tc.selector, heard, tc.warnings, tc.reason)
		}
		for _, d := range append(heard, errorsIn(err)...) {
			if d.ID != "record-damaged" || d.Severity != diag.Error || d.Hint == "" {
				t.Errorf("%s: %+v, want the damaged record and a remedy", tc.selector, d)
			}
		}
	}
}

// wantRefusal reports an error that is not a refusal with this id and a hint.
func wantRefusal(t *testing.T, err error, id string) {
	t.Helper()
	if list := errorsIn(err); len(list) != 1 || list[0].ID != id || list[0].Hint == "" {
		t.Errorf("got %v, want a refusal with id %s and a hint", err, id)
	}
}

func errorsIn(err error) (list diag.List) {
	errors.As(err, &list)
	return list
}

// printed keeps the output of hosts.
type printed struct {
	mu  sync.Mutex
	all map[string]*bytes.Buffer
}

func (o *printed) of(t Target) (io.Writer, io.Writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[string]*bytes.Buffer{}
	}
	b := &bytes.Buffer{}
	o.all[t.Cluster+"@"+t.Host.Name] = b
	return b, io.Discard
}

func testExec(t *testing.T, s *Executor) {
	var o printed
	var heard []string
	w := Work{Targets: targets(t, s, "all,lab@all"), Parallel: 2, Done: func(r HostResult) { heard = append(heard, r.Host) }}
	results, err := s.Exec(t.Context(), w, Program{Argv: []string{"sh", "-c", "echo a b; exit 4"}, Output: o.of})
	if err != nil {
		t.Fatal(err)
	}
	if len(heard) != 5 {
		t.Errorf("%v were heard of, want all five", heard)
	}
	for i, r := range results {
		if r.Host != w.Targets[i].Host.Name || r.Cluster != w.Targets[i].Cluster {
			t.Errorf("result %d is of %s@%s", i, r.Cluster, r.Host)
		}
		if r.Host == "dead" {
			if r.ExitCode != -1 || r.Error == nil || r.Error.ID != string(remote.Unreachable) || r.Error.Hint == "" {
				t.Errorf("the host that is cut off: %+v", r)
			}
			continue
		}
		if r.ExitCode != 4 || r.Error != nil || o.all[r.Cluster+"@"+r.Host].String() != "a b\n" {
			t.Errorf("%+v, %q", r, o.all[r.Cluster+"@"+r.Host])
		}
	}
	_, err = s.Exec(t.Context(), w, Program{Argv: []string{"cat"}, In: strings.NewReader("x"), Output: o.of})
	wantRefusal(t, err, idInputForMany)
	w.Targets = targets(t, s, "w1")
	if results, err = s.Exec(t.Context(), w,
		Program{Argv: []string{"cat"}, In: strings.NewReader("given"), Output: o.of}); err != nil || results[0].Failed() ||
		o.all["prod@w1"].String() != "given" {
		t.Errorf("%+v, %v, %q", results, err, o.all["prod@w1"])
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if results, err = s.Exec(ctx, w, Program{Argv: []string{"true"}, Output: o.of}); err != nil || results[0].Error == nil {
		t.Errorf("called off: %+v, %v", results, err)
	}
}

func testCopy(t *testing.T, s *Executor) {
	dir := t.TempDir()
	from := filepath.Join(dir, "conf")
	for name, content := range map[string]string{"a": "one", "sub/big": strings.Repeat("x", 1<<20)} {
		path := filepath.Join(from, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	to := filepath.Join(dir, "to")
	w := Work{Targets: targets(t, s, "w1,dead")}
	results, err := s.Copy(t.Context(), w, Copy{Here: from, There: to})
	if err != nil || results[0].Failed() || results[0].Copied.To != to || results[0].Copied.Files != 2 || !results[1].Failed() {
		t.Fatalf("%+v, %v", results, err)
	}
	w.Targets = targets(t, s, "w1,w2")
	back := filepath.Join(dir, "back")
	if results, err = s.Copy(t.Context(), w, Copy{Here: back, There: to, Fetch: true}); err != nil || results[0].Failed() ||
		results[1].Failed() {
		t.Fatalf("%+v, %v", results, err)
	}
	for _, name := range []string{"back/w1/to/a", "back/w2/to/sub/big"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != 0o640 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if results, err = s.Copy(t.Context(), w, Copy{Here: back, There: "/no/such", Fetch: true}); err != nil || results[0].Error == nil ||
		results[0].Error.Message != "no such file or directory: /no" {
		t.Errorf("what is not there: %+v, %v", results, err)
	}
	_, err = s.Copy(t.Context(), w, Copy{Here: filepath.Join(dir, "gone"), There: to})
	wantRefusal(t, err, idNoCopy)
	if want := "no such file or directory: " + filepath.Join(dir, "gone"); !strings.Contains(err.Error(), want) {
		t.Errorf("%v: want %q", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	read := func(int64) { cancel() }
	if _, err = s.Copy(ctx, w, Copy{Here: from, There: to, Read: read}); !errors.Is(err, context.Canceled) {
		t.Errorf("called off while it is read: %v", err)
	}
}

// brittleHost is a host whose connections break after a number of bytes each. After the
// last one it is unreachable.
type brittleHost struct {
	remote.Host
	lives []int64
	ends  sync.WaitGroup
}

func (h *brittleHost) Run(context.Context, remote.Command, io.Reader, io.Writer, io.Writer) (int, error) {
	return 0, errors.ErrUnsupported
}

func (h *brittleHost) Close() error { return nil }

func (h *brittleHost) OpenCopy(ctx context.Context, c remote.Copy) (net.Conn, error) {
	if len(h.lives) == 0 {
		return nil, &remote.Error{Host: "w1", Reason: remote.Unreachable, Cause: "no answer"}
	}
	h.ends.Wait() // a part in use cannot be continued
	ours, theirs := net.Pipe()
	h.ends.Go(func() {
		defer theirs.Close()
		if !c.Send {
			_, _ = transfer.ReceiveTree(ctx, theirs, transfer.Place{Path: c.Path, Exact: c.Exact}, nil)
		} else if tree, err := transfer.ReadTree(ctx, c.Path, nil); err == nil {
			_, _ = tree.Send(theirs, nil)
		}
	})
	conn := &brittle{Conn: ours}
	conn.left.Store(h.lives[0])
	h.lives = h.lives[1:]
	return conn, nil
}

type brittle struct {
	net.Conn
	left atomic.Int64
}

func (c *brittle) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.uses(n)
	return n, err
}

func (c *brittle) Write(p []byte) (int, error) {
	c.uses(len(p))
	return c.Conn.Write(p)
}

func (c *brittle) uses(n int) {
	if c.left.Add(-int64(n)) <= 0 {
		_ = c.Close()
	}
}

// copyBrittle copies a directory with one large file over connections that break after
// these numbers of bytes.
func copyBrittle(t *testing.T, dir string, fetch bool, lives ...int64) HostResult {
	t.Helper()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := errors.Join(os.Mkdir(from, 0o700), os.WriteFile(filepath.Join(from, "big"), make([]byte, 1<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(filepath.Join(dir, "home"))
	if err != nil {
		t.Fatal(err)
	}
	host := &brittleHost{lives: lives}
	defer host.ends.Wait()
	s := New(Config{Clusters: st.Clusters(), Dialer: hostconn.Dialer{
		Connect: func(context.Context, v1alpha1.Host, remote.Options) (remote.Host, error) { return host, nil },
	}})
	c := Copy{Here: from, There: to}
	if fetch {
		c = Copy{Here: to, There: from, Fetch: true}
	}
	results, err := s.Copy(t.Context(), Work{Targets: []Target{{Cluster: "prod", Host: v1alpha1.Host{Name: "w1"}}}}, c)
	if err != nil {
		t.Fatal(err)
	}
	return results[0]
}

func TestCopy_NamesKeptPartAfterBrokenConnection(t *testing.T) {
	for _, fetch := range []bool{false, true} {
		dir := t.TempDir()
		d := copyBrittle(t, dir, fetch, 500<<10).Error
		want := "no answer; the received part is kept in " + filepath.Join(dir, "to", ".slipway-copy-")
		if d == nil || d.ID != string(remote.Unreachable) || !strings.HasPrefix(d.Message, want) {
			t.Errorf("fetch %v: %+v, want it to say what is kept", fetch, d)
		}
	}
}

// The directory of the first attempt is the destination of the next one, not a directory to
// copy into.
func TestCopy_ContinuesInDirectoryOfBrokenAttempt(t *testing.T) {
	for _, fetch := range []bool{false, true} {
		dir := t.TempDir()
		r := copyBrittle(t, dir, fetch, 500<<10, 500<<10, 1<<30)
		if r.Failed() || r.Copied.To != filepath.Join(dir, "to") {
			t.Fatalf("fetch %v: %+v", fetch, r)
		}
		all, err := os.ReadDir(filepath.Join(dir, "to"))
		if err != nil || len(all) != 1 || all[0].Name() != "big" {
			t.Errorf("fetch %v: %v, %v; want the one file", fetch, all, err)
		}
	}
}

func TestLocalName_UsesRequestedName(t *testing.T) {
	for _, tc := range []struct{ asked, want, reason string }{
		{"/etc/hosts", "hosts", "a file"},
		{"logs/", "logs", "written as a directory"},
		{"./logs/.", "logs", "the directory itself"},
		{"a/../b", "b", "the last of it"},
		{"*.log", "*.log", "no pattern: hosts take it as it is"},
		{".ssh", ".ssh", "asked for by that name"},
		{"", "w1", "a home"},
		{".", "w1", "a home, in other words"},
		{"..", "w1", "above it"},
		{"a/../..", "w1", "likewise"},
		{"/", "w1", "all of it"},
		{"//", "w1", "likewise"},
	} {
		if got := localName(tc.asked, "w1"); got != tc.want {
			t.Errorf("%q is called %q, want %q: %s", tc.asked, got, tc.want, tc.reason)
		}
	}
}

func testLogin(t *testing.T, s *Executor) {
	var out bytes.Buffer
	code, err := s.Login(t.Context(), targets(t, s, "w1")[0],
		remote.Shell{Argv: []string{"sh", "-c", "echo in; exit 3"}, Out: &out, Err: io.Discard})
	if code != 3 || err != nil || out.String() != "in\n" {
		t.Errorf("%d, %v, %q", code, err, out.String())
	}
	var e *remote.Error
	dead := targets(t, s, "all")
	i := slices.IndexFunc(dead, func(x Target) bool { return x.Host.Name == "dead" })
	if _, err := s.Login(t.Context(), dead[i], remote.Shell{}); !errors.As(err, &e) || e.Reason != remote.Unreachable {
		t.Errorf("a host that is cut off: %v", err)
	}
}
