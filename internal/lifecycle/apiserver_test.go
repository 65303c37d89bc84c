//go:build apiserver

package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/server/controlplane/testserver"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/store/kube"
)

// apiServer keeps records of the tests. It is linked with the build tag apiserver only, because its
// libraries would make each test binary of this package large.
var apiServer *testserver.Server

// faultsInAPI is the part of the writes that fail, because the next process waits for the end of a lock.
const faultsInAPI = 2

// runTests runs all tests, with an API server.
func runTests(m *testing.M) int { return testserver.Run(context.Background(), m, &apiServer) }

// fakeParts is the rate of the parts of a journal: fake hosts have many steps a second.
const fakeParts = 1000

// leaseTime is how long a lock outlasts its process. On a busy machine, many processes at the same time renew theirs late.
const leaseTime = 6 * time.Second

// inAPI shares records in a new namespace of the API server. A killed process cannot send requests.
func inAPI(t *testing.T) func() (records.Backend, func()) {
	return inAPIWith(t, func(*kube.Config) {})
}

// inAPIWith is inAPI with a changed configuration.
func inAPIWith(t *testing.T, change func(*kube.Config)) func() (records.Backend, func()) {
	dir, namespace := t.TempDir(), apiServer.NewNamespace(t)
	return func() (records.Backend, func()) {
		killed := new(atomic.Bool)
		client := rest.CopyConfig(apiServer.Admin)
		client.Wrap(func(next http.RoundTripper) http.RoundTripper { return &connection{next, killed} })
		s := openInAPI(t, kube.Config{
			Client: client, Namespace: namespace, BackupDir: filepath.Join(dir, "backups"), TempDir: dir, LeaseTime: leaseTime,
		}, change)
		return s, func() {
			if !killed.Swap(true) && t.Context().Err() == nil {
				<-time.After(2 * leaseTime) // until its lock counts as free
			}
		}
	}
}

// openInAPI opens records in the API server, as a new process does.
func openInAPI(t *testing.T, c kube.Config, changes ...func(*kube.Config)) records.Backend {
	t.Helper()
	c.Patience, c.PartsPerSecond = 10*time.Second, fakeParts
	for _, change := range changes {
		change(&c)
	}
	s, err := kube.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A connection sends requests until its process is killed.
type connection struct {
	http.RoundTripper
	killed *atomic.Bool
}

var errKilled = errors.New("the process was killed")

func (c *connection) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.killed.Load() {
		return nil, errKilled
	}
	return c.RoundTripper.RoundTrip(r)
}

// TestCreate_FinishesAfterFaultInAPI makes writes of a create fail, and ends its process. The next process
// resumes the operation when the lock of the first one has expired.
func TestCreate_FinishesAfterFaultInAPI(t *testing.T) {
	ft := faultsOfCreate()
	ft.share, ft.oneIn = inAPI, faultsInAPI
	ft.run(t)
}

// TestJournals_AreEqualInFilesAndAPI runs every pipeline with records in files and in an API. The
// events must be equal, apart from times and ids.
func TestJournals_AreEqualInFilesAndAPI(t *testing.T) {
	for _, tc := range []struct {
		name     string
		machines []string
		run      func(t *testing.T, w *world)
	}{
		{"life", []string{"cp1", "w1", "w2"}, func(t *testing.T, w *world) {
			w.do(creating(w.of("cp1", "w1")), event.Succeeded)
			w.do(AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w2")}}, event.Succeeded)
			changed := w.Manifest()
			changed.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(50)}
			w.do(applying(changed), event.Succeeded)
			w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"w1"}}, event.Succeeded)
			w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
		}},
		{"upgrade", []string{"cp1", "w1"}, func(t *testing.T, w *world) {
			w.age(t)
			w.do(UpgradeRequest{Subject: Subject{Name: "prod"}, Version: "v1.37.1"}, event.Succeeded)
		}},
		{"failure", []string{"cp1", "w1"}, func(t *testing.T, w *world) {
			w.Hosts["w1"].Down = errDown
			w.do(CreateRequest{Subject: Subject{Cluster: w.Manifest()}, Options: Options{IgnoreErrors: true}}, event.Partial)
			w.Hosts["w1"].Down = nil
			w.do(applying(w.Manifest()), event.Succeeded)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var journals [2][]event.Event
			for i, api := range []bool{false, true} {
				w := newWorld(t, tc.machines...)
				if api {
					open := inAPI(t)
					w.open = func() records.Backend {
						b, kill := open()
						t.Cleanup(kill)
						return b
					}
				}
				began := time.Now()
				tc.run(t, w)
				t.Logf("API %t: %s", api, time.Since(began).Round(time.Millisecond))
				journals[i] = w.allEvents(t)
			}
			if len(journals[0]) < 50 {
				t.Errorf("only %d events", len(journals[0]))
			}
			if d := diff.Diff(journals[0], journals[1]); d != "" {
				t.Errorf("events (-in files +in the API):\n%s", d)
			}
		})
	}
}

// setTime is the time in the name of a backup set.
var setTime = regexp.MustCompile(`\d{8}-\d{6}`)

// allEvents returns the events of all operations, without times and ids, in an order that does not
// depend on which host was faster.
func (w *world) allEvents(t *testing.T) (all []event.Event) {
	t.Helper()
	s := w.service()
	ops, err := s.Operations(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	backups, err := s.Records.Backups().Dir("prod")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range slices.Backward(ops) {
		var events []event.Event
		err := s.Events(t.Context(), o.Name, false, func(e event.Event) error {
			e = withoutTimes(e)
			e.Message = setTime.ReplaceAllString(strings.ReplaceAll(e.Message, backups, "BACKUPS"), "TIME")
			events = append(events, e)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.SortStableFunc(events, func(a, b event.Event) int {
			return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Task, b.Task))
		})
		all = append(all, events...)
	}
	return all
}
