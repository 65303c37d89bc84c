package upgrade

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/remote"
)

// A loneServer is the API server of the only control plane, which its kubelet starts. It
// answers after its readiness was checked once since that start.
type loneServer struct {
	remote.Host
	t testing.TB

	mu      sync.Mutex
	up      bool
	kubelet time.Time // when it was started; zero means never
}

func (l *loneServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.up {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	n := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "cp1"}}
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(l.kubelet.Add(time.Second)),
	}}
	if r.Method+" "+r.URL.Path != "GET /api/v1/nodes/cp1" {
		l.t.Errorf("unexpected request %s %s", r.Method, r.URL.Path)
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(n); err != nil {
		l.t.Error(err)
	}
}

// Check implements remote.Host.
func (l *loneServer) Check(_ context.Context, ops op.List) ([]op.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := op.Result{Status: op.Unchanged}
	switch o := ops[0].(type) {
	case op.Wait:
		if !l.up {
			r.Status = op.Changed
		}
		l.up = !l.kubelet.IsZero()
	case op.UnitStarted:
		r.Output = []byte(l.kubelet.Format(time.RFC3339Nano))
	default:
		l.t.Errorf("unexpected operation %T", o)
	}
	return []op.Result{r}, nil
}

// TestDrainAroundChange_WithoutAPI: a control plane that is down with the API is not
// drained before its kubelet starts, and is waited for afterwards; a worker without the
// API is an error.
func TestDrainAroundChange_WithoutAPI(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		role         v1alpha1.Role
		changed      []string
		failed       string
	}{
		{
			"control plane", "only its kubelet can start the API server", v1alpha1.RoleControlPlane,
			[]string{"kubelet.settings", "kubelet.ready"},
			"",
		},
		{"worker", "its pods run, and cannot be moved", v1alpha1.RoleWorker, nil, "settings.drain"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &loneServer{t: t}
			client := clientOf(t, l)
			env := module.Env{Cluster: &v1alpha1.Cluster{}}
			host := &engine.Host{
				Host:  v1alpha1.Host{Name: "cp1", Roles: []v1alpha1.Role{tc.role}},
				Facts: &op.HostFacts{Present: []string{module.ClientCert}}, Conn: l,
			}
			env.Cluster.Spec.Hosts = []v1alpha1.Host{host.Host}
			before, after := DrainAroundChange(env, func(context.Context, *engine.Scope) (bool, error) { return true, nil })
			p := engine.Pipeline{Kind: "test", Modules: []engine.Module{reaches(client), before, l.starts(), after}}
			var changed []string
			run := &engine.Run{Hosts: []*engine.Host{host}, Operation: "op", Emit: func(e event.Event) error {
				if e.Type == event.StepFinished && e.Outcome == event.Changed {
					changed = append(changed, e.Task)
				}
				return nil
			}}
			found, err := (&engine.Run{Hosts: run.Hosts}).Check(t.Context(), p)
			if err != nil || len(found.Failures) > 0 {
				t.Fatalf("planning: %v, failures %+v", err, found.Failures)
			}
			res, err := run.Apply(t.Context(), p, found.Steps)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.changed, changed); d != "" {
				t.Errorf("%s: steps (-want +got):\n%s", tc.reason, d)
			}
			if failed := len(res.Failures) > 0; failed != (tc.failed != "") || failed && res.Failures[0].Task != tc.failed {
				t.Errorf("%s: failures %+v, want %q", tc.reason, res.Failures, tc.failed)
			}
		})
	}
}

// reaches returns a module that provides a client of the API.
func reaches(client *kube.Client) engine.Module {
	return engine.Module{Name: "control-plane", Tasks: []engine.Task{{
		ID: "settings.api", Title: "connect to API", Manager: true, Provides: []engine.KeyRef{module.KeyKubeBefore.Ref()},
		Run: &engine.Action{
			Check: func(_ context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				if s.OperationID() != "" { // the API does not answer during planning
					engine.ProvideValue(s, module.KeyKubeBefore, client)
				}
				return nil, nil
			},
			Apply: func(context.Context, *engine.Scope) error { return nil },
		},
	}}}
}

// starts returns a module that starts the kubelet.
func (l *loneServer) starts() engine.Module {
	return engine.Module{Name: "kubelet", Tasks: []engine.Task{{
		ID: "kubelet.settings", Title: "apply kubelet settings", On: module.IsNode,
		Run: &engine.Action{
			Check: func(context.Context, *engine.Scope) ([]plan.OpChange, error) {
				return []plan.OpChange{{Kind: op.KindUnit, Target: "kubelet.service", Summary: "restart"}}, nil
			},
			Apply: func(context.Context, *engine.Scope) error {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.kubelet = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
				return nil
			},
		},
	}}}
}
