//go:build linux

package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/executor/etcd"
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/op"
)

// fakeEtcdctl plays etcdctl. In these tests, the verb "join" adds a member and takes its
// URL and name.
func fakeEtcdctl(w *world, args []string) (string, error) {
	endpoint, peerURL := "", ""
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		if at, ok := strings.CutPrefix(a, "--endpoints="); ok {
			endpoint = at
		}
		if at, ok := strings.CutPrefix(a, "--peer-urls="); ok {
			peerURL = at
		}
		return strings.HasPrefix(a, "--")
	})
	if socket, ok := strings.CutPrefix(endpoint, "unix://"); ok {
		return askScratch(filepath.Dir(socket), args)
	}
	if out, known, err := fakeMaintenance(w, endpoint, args); known {
		return out, err
	}
	verb := strings.Join(args[:min(2, len(args))], " ")
	switch {
	case args[0] == "join":
		i := slices.IndexFunc(w.Etcd, func(m etcd.Member) bool { return m.PeerURLs[0] == args[1] })
		if i < 0 {
			w.Etcd = append(w.Etcd, etcd.Member{ID: 1 << 63, PeerURLs: []string{args[1]}})
			i = len(w.Etcd) - 1
		}
		w.Etcd[i].Name, w.Etcd[i].Learner = args[2], false
		return "", nil
	case verb == "endpoint status" && strings.HasPrefix(endpoint, "https://up-"):
		return endpoint, nil
	case endpoint != "https://votes:2379":
		return "", errors.New("context deadline exceeded")
	case args[0] == "get":
		return getValues(w, args)
	case verb == "member list":
		raw, err := json.Marshal(map[string]any{"header": map[string]any{"revision": 1}, "members": w.Etcd})
		return string(raw), err
	case (verb == "member add" || verb == "member remove") && w.Unwell > 0:
		w.Unwell--
		return "", errors.New("etcdserver: unhealthy cluster")
	case verb == "member add":
		w.Etcd = append(w.Etcd, etcd.Member{ID: 1 << 63, PeerURLs: []string{peerURL}, Learner: true})
		return "", nil
	case verb == "member promote" && w.Behind > 0:
		w.Behind--
		return "", errors.New("can only promote a learner member which is in sync with leader")
	case verb == "member promote":
		i := slices.IndexFunc(w.Etcd, func(m etcd.Member) bool { return strconv.FormatUint(m.ID, 16) == args[2] })
		w.Etcd[i].Learner = false
		return "", nil
	case verb == "member remove":
		id, err := strconv.ParseUint(args[2], 16, 64)
		if err != nil {
			return "", err
		}
		w.Etcd = slices.DeleteFunc(w.Etcd, func(m etcd.Member) bool { return m.ID == id })
		return "", nil
	}
	return "", fmt.Errorf("unexpected: etcdctl %q", args)
}

const (
	peer  = "https://192.0.2.2:2380"
	other = "https://192.0.2.3:2380"
)

// member returns the operation that makes host b a voting member. Its program records
// each run.
func (h *testHost) member() op.EtcdMember {
	join := h.shell("join-etcd",
		"echo x >> $0/runs; mkdir -p $0/var/lib/etcd/member $0/etc/kubernetes/manifests; echo x > $0/etc/kubernetes/manifests/etcd.yaml; "+
			filepath.Join(h.fakes, "etcdctl")+" join "+peer+" b")
	join.Creates, join.Inputs, join.Whole, join.Resumes = []string{"/etc/kubernetes/manifests/etcd.yaml"}, []string{"/etc/input"}, true, true
	for _, f := range []string{"etc/input", "pki/ca", "pki/cert", "pki/key"} {
		h.write(f, f)
	}
	return op.EtcdMember{
		Name: "b", PeerURL: peer, Data: "/var/lib/etcd", Join: join,
		EtcdClient: op.EtcdClient{
			Endpoints: []string{"https://down:2379", "https://votes:2379"},
			Program:   "etcdctl", CA: "/pki/ca", Cert: "/pki/cert", Key: "/pki/key",
		},
	}
}

func (h *testHost) runs() int {
	raw, err := os.ReadFile(h.path("runs"))
	if err != nil {
		return 0
	}
	return strings.Count(string(raw), "x")
}

func (h *testHost) etcd(members ...etcd.Member) {
	w := h.see()
	w.Etcd = append([]etcd.Member{{ID: 1, Name: "a", PeerURLs: []string{"https://192.0.2.1:2380"}}}, members...)
	h.world(w)
}

// TestEtcdMember_JoinsWithProgramIfSafe checks that a host joins once, continues after an
// interruption, and refuses if a join could harm the cluster.
func TestEtcdMember_JoinsWithProgramIfSafe(t *testing.T) {
	self := func(id uint64, name string, learner bool) etcd.Member {
		return etcd.Member{ID: id, Name: name, PeerURLs: []string{peer}, Learner: learner}
	}
	for _, tc := range []struct {
		name, reason string
		members      []etcd.Member
		data         bool
		runs         int
		id           uint64 // of the member in the end; 1<<63 is a new one
		fails        string
	}{
		{"unknown", "it is added", nil, false, 1, 1 << 63, ""},
		{"never started", "an interruption between adding and starting: it continues", []etcd.Member{self(7, "", true)}, false, 1, 7, ""},
		{"not promoted", "an interruption before it had a vote: it continues", []etcd.Member{self(7, "b", true)}, true, 1, 7, ""},
		{"learner without its data", "etcd refuses it without its data", []etcd.Member{self(7, "b", true)}, false, 1, 1 << 63, ""},
		{"votes", "there is nothing to do", []etcd.Member{self(7, "b", false)}, true, 0, 7, ""},
		{
			"votes without its data", "its vote counts for the quorum, so that it is not removed on a guess",
			[]etcd.Member{self(7, "b", false)},
			false, 0, 7, "EtcdDataLost",
		},
		{"data of a member that was removed", "etcd would not start, and the learner keeps others out", nil, true, 0, 0, "EtcdRemoved"},
		{
			"another is being added", "etcd takes one at a time",
			[]etcd.Member{{ID: 8, PeerURLs: []string{other}, Learner: true}},
			false, 0, 0, "EtcdBusy",
		},
		{
			"both are being added", "it has been let in already",
			[]etcd.Member{self(7, "", true), {ID: 8, PeerURLs: []string{other}, Learner: true}},
			false, 1, 7, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.r.etcdTime = 1
			o := h.member()
			h.etcd(tc.members...)
			if tc.data {
				h.write("var/lib/etcd/member/wal", "")
				h.write("etc/kubernetes/manifests/etcd.yaml", "x")
			}
			r := h.r.Apply(t.Context(), h.batch(o), nil)[0]
			switch {
			case tc.fails == "" && r.Error != nil:
				t.Fatalf("%s: %v", tc.reason, r.Error)
			case tc.fails != "" && (r.Error == nil || r.Error.Reason != tc.fails):
				t.Errorf("%s: got %v, want %s", tc.reason, r.Error, tc.fails)
			case tc.fails == "":
				if r := h.check(o)[0]; r.Status != op.Unchanged {
					t.Errorf("afterwards: %s (%s) %v", r.Status, r.Summary, r.Error)
				}
			}
			if n := h.runs(); n != tc.runs {
				t.Errorf("%s: the program ran %d times, want %d", tc.reason, n, tc.runs)
			}
			var id uint64
			for _, m := range h.see().Etcd {
				if m.PeerURLs[0] == peer {
					id = m.ID
				}
			}
			if id != tc.id {
				t.Errorf("%s: the member is %x, want %x", tc.reason, id, tc.id)
			}
		})
	}
}

// startEtcd starts etcd on host b. It is as strict as etcd about the settings of a member
// without data.
func (w *world) startEtcd() error {
	i := slices.IndexFunc(w.Etcd, func(m etcd.Member) bool { return m.PeerURLs[0] == peer })
	if i < 0 {
		return errors.New("the member has been removed")
	}
	data := filepath.Join(w.Root, "var/lib/etcd/member")
	if _, err := os.Stat(data); err != nil {
		text, err := os.ReadFile(filepath.Join(w.Root, "etc/etcd.env"))
		if err != nil {
			return err
		}
		state := "existing"
		if !w.Etcd[i].Learner {
			state = "new"
		}
		if strings.Count(string(text), "https://") != len(w.Etcd) || !strings.Contains(string(text), "b="+peer) ||
			!strings.Contains(string(text), "ETCD_INITIAL_CLUSTER_STATE="+state+"\n") || !strings.Contains(string(text), "TOKEN=prod\n") {
			return fmt.Errorf("it is told %q", text)
		}
	}
	w.Etcd[i].Name, w.Etcd[i].ClientURLs = "b", []string{"https://192.0.2.2:2379"}
	return os.MkdirAll(data, 0o700)
}

// TestEtcdMember_JoinsWithoutProgramIfSafe repeats TestEtcdMember_JoinsWithProgramIfSafe
// without a program: the helper itself adds the member.
func TestEtcdMember_JoinsWithoutProgramIfSafe(t *testing.T) {
	t.Parallel()
	self := func(id uint64, name string, learner bool, started ...string) etcd.Member {
		return etcd.Member{ID: id, Name: name, PeerURLs: []string{peer}, Learner: learner, ClientURLs: started}
	}
	const started = "https://192.0.2.2:2379"
	for _, tc := range []struct {
		name, reason string
		members      []etcd.Member
		data         bool
		behind       int
		starts       int
		id           uint64 // of the member in the end; 1<<63 is a new one
		fails        string
	}{
		{"unknown", "it is added", nil, false, 0, 1, 1 << 63, ""},
		{"too soon", "etcd is asked again until it takes one, and until that has what the others have", nil, false, 3, 1, 1 << 63, ""},
		{"never started", "an interruption between adding and starting: it continues", []etcd.Member{self(7, "", true)}, false, 0, 1, 7, ""},
		{"not promoted", "an interruption before it had a vote: it continues", []etcd.Member{self(7, "b", true, started)}, true, 0, 1, 7, ""},
		{"learner without its data", "etcd refuses it without its data", []etcd.Member{self(7, "b", true, started)}, false, 0, 1, 1 << 63, ""},
		{"expected", "the others began with it, and it never did", []etcd.Member{self(7, "b", false)}, false, 0, 1, 7, ""},
		{"votes", "there is nothing to do", []etcd.Member{self(7, "b", false, started)}, true, 0, 0, 7, ""},
		{
			"votes without its data", "its vote counts for the quorum, so that it is not removed on a guess",
			[]etcd.Member{self(7, "b", false, started)},
			false, 0, 0, 7, "EtcdDataLost",
		},
		{"data of a member that was removed", "etcd would not start", nil, true, 0, 0, 0, "EtcdRemoved"},
		{
			"another is being added", "etcd takes one at a time",
			[]etcd.Member{{ID: 8, PeerURLs: []string{other}, Learner: true}},
			false, 0, 0, 0, "EtcdBusy",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.r.etcdTime = time.Minute // more than a busy machine needs
			if tc.fails != "" {
				h.r.etcdTime = 2 * health.RetryEvery
			}
			o := h.member()
			o.Join = op.Exec{}
			o.Service = &op.EtcdService{Unit: op.Unit{Name: "etcd.service", Running: op.Bool(true)}, Initial: "/etc/etcd.env", Token: "prod"}
			h.write("etc/systemd/system/etcd.service", "[Service]\n")
			h.etcd(tc.members...)
			w := h.see()
			w.Behind, w.Unwell = tc.behind, tc.behind
			h.world(w)
			if tc.data {
				h.write("var/lib/etcd/member/wal", "")
			}
			r := h.r.Apply(t.Context(), h.batch(o), nil)[0]
			switch {
			case tc.fails == "" && r.Error != nil:
				t.Fatalf("%s: %v", tc.reason, r.Error)
			case tc.fails != "" && (r.Error == nil || r.Error.Reason != tc.fails):
				t.Errorf("%s: got %v, want %s", tc.reason, r.Error, tc.fails)
			case tc.fails == "":
				if r := h.check(o)[0]; r.Status != op.Unchanged {
					t.Errorf("afterwards: %s (%s) %v", r.Status, r.Summary, r.Error)
				}
			}
			w = h.see()
			starts := 0
			if u := w.Units["etcd.service"]; u != nil {
				starts = u.Starts
			}
			if starts != tc.starts {
				t.Errorf("%s: etcd was started %d times, want %d", tc.reason, starts, tc.starts)
			}
			var id uint64
			for _, m := range w.Etcd {
				if m.PeerURLs[0] == peer {
					id = m.ID
				}
			}
			if id != tc.id {
				t.Errorf("%s: the member is %x, want %x", tc.reason, id, tc.id)
			}
		})
	}
}

// TestEtcdMember_ChangesNothingIfNoEndpointResponds checks that a host without a key plans to join. While no endpoint
// responds, the host does not change anything.
func TestEtcdMember_ChangesNothingIfNoEndpointResponds(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.r.etcdTime = 1
	o := h.member()
	o.Endpoints = o.Endpoints[:1]
	if r := h.check(o)[0]; r.Status != op.Changed || !strings.Contains(r.Summary, "check again") {
		t.Errorf("no endpoint responds: %s (%s)", r.Status, r.Summary)
	}
	if r := h.r.Apply(t.Context(), h.batch(o), nil)[0]; r.Status != op.Failed || h.runs() > 0 {
		t.Errorf("no endpoint responds: %s after %d runs", r.Status, h.runs())
	}
	if err := os.Remove(h.path("pki/key")); err != nil {
		t.Fatal(err)
	}
	if r := h.check(o)[0]; r.Status != op.Changed || r.Summary != "join" {
		t.Errorf("without a key to ask with: %s (%s)", r.Status, r.Summary)
	}
}

// TestEtcdMember_RunsProgramAgainOnlyForChangedInputs checks that a voting member is set up again only if the inputs of
// its program change.
func TestEtcdMember_RunsProgramAgainOnlyForChangedInputs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.member()
	h.etcd()
	h.apply(o)
	h.write("etc/input", "changed")
	if r := h.check(o)[0]; r.Status != op.Changed {
		t.Error("a changed input is ignored")
	}
	h.apply(o)
	if n := h.runs(); n != 2 {
		t.Errorf("it ran %d times, want 2", n)
	}
	// A completed run whose end no helper saw.
	record := "var/lib/slipway/exec/join-etcd.json"
	h.write(record, strings.Replace(h.read(record), `"done":true`, `"done":false`, 1))
	h.apply(o)
	if r := h.check(o)[0]; r.Status != op.Unchanged || h.runs() != 2 {
		t.Errorf("it votes: %s (%s) after %d runs", r.Status, r.Summary, h.runs())
	}
}

// TestExec_KeepsFilesOfInterruptedRunIfItResumes checks that an interruption keeps all files of a program that continues its
// earlier work.
func TestExec_KeepsFilesOfInterruptedRunIfItResumes(t *testing.T) {
	t.Parallel()
	for _, resumes := range []bool{false, true} {
		h := newHost(t)
		o := h.shell("step", "[ -e $0/etc/made ] && echo y > $0/seen; echo x > $0/etc/made")
		o.Whole, o.Creates, o.Resumes = true, []string{"/etc/made"}, resumes
		h.apply(o)
		h.write("var/lib/slipway/exec/step.json", `{"done":false,"existing":[]}`)
		h.apply(o)
		if _, err := os.Stat(h.path("seen")); (err == nil) != resumes {
			t.Errorf("resumes %v: its file was there for the next run: %v", resumes, err == nil)
		}
	}
}

// TestExec_HasAdditionalHostNamesOnlyInItsUnit checks that a unit has additional host names, and that no other program has
// them.
func TestExec_HasAdditionalHostNamesOnlyInItsUnit(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const before = "127.0.0.1 localhost api # mine\n::1 api\n192.0.2.7 api.example.com other\n"
	h.write("etc/hosts", before)
	o := h.shell("step", `cp "$HOSTS" $0/seen`)
	o.Whole, o.Creates, o.Hosts = true, []string{"/seen"}, map[string]string{"api": "192.0.2.9", "api.example.com": "2001:db8::9"}
	h.apply(o)
	if got, want := h.read("seen"), "127.0.0.1 localhost\n192.0.2.7 other\n192.0.2.9 api\n2001:db8::9 api.example.com\n"; got != want {
		t.Errorf("it saw\n%swant\n%s", got, want)
	}
	if got := h.read("etc/hosts"); got != before {
		t.Errorf("the hosts file of the host is\n%s", got)
	}
	o.Whole = false
	if r := h.check(o)[0]; r.Status != op.Failed {
		t.Error("a program without a unit cannot have host names")
	}
}
