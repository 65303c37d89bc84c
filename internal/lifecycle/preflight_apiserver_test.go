package lifecycle

import (
	"strings"
	"testing"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/precheck"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// TestNotServing_IsReportedBeforeWaiting checks that an API server that does not answer is
// reported, with a hint, before any step waits for it. Nothing is refused.
func TestNotServing_IsReportedBeforeWaiting(t *testing.T) {
	t.Parallel()
	apply := func(w *world) Request { return applying(w.Manifest()) }
	for _, tc := range []struct {
		name, reason string
		silent       []string
		request      func(*world) Request
		want         map[string]string // host → part of its hint
	}{
		{"all serve", "there is nothing to report", nil, apply, nil},
		{
			"the first", "all API requests use it",
			[]string{"cp1"},
			apply,
			map[string]string{"cp1": "slipway delete node cp1 (cp2 and cp3 still serve the API)"},
		},
		{"a further one", "the operation waits for it as well", []string{"cp2"}, func(w *world) Request {
			return DeleteNodesRequest{Name: "prod", Nodes: []string{"w2"}}
		}, map[string]string{"cp2": "slipway delete node cp2 (cp1 and cp3 still serve the API)"}},
		{"all", "no control plane can be removed", []string{"cp1", "cp2", "cp3"}, func(w *world) Request {
			return AddNodesRequest{Subject: Subject{Name: "prod"}, Hosts: []spec.HostFlag{w.flag("w3")}}
		}, map[string]string{"cp1": "more than half", "cp2": "more than half", "cp3": "more than half"}},
		{"one that leaves", "no step waits for it", []string{"cp1"}, func(w *world) Request {
			return DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1"}}
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t, append(threeAndTwo[:5:5], "w3"), threeAndTwo)
			for _, name := range tc.silent {
				w.Hosts[name].APISilent = true
			}
			p := w.prepared(w.service().Prepare(t.Context(), tc.request(w), nil))
			told := 0
			for _, d := range p.Findings() {
				if d.ID != precheck.IDNotServing {
					continue
				}
				if told++; tc.want[d.Host] == "" || !strings.Contains(d.Hint, tc.want[d.Host]) {
					t.Errorf("%s: %+v", tc.reason, d)
				}
				if through := strings.Contains(d.Message, "which the operation uses"); through != (d.Host == "cp1") {
					t.Errorf("the operation uses the API server on cp1: %+v", d)
				}
			}
			if told != len(tc.want) {
				t.Errorf("%s: findings %v", tc.reason, p.Findings())
			}
		})
	}
}

// The hint works: corrected settings reach the control plane that has stopped serving, and
// a control plane that cannot be repaired can be removed.
func TestNotServing_CanBeRepairedOrRemoved(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo, threeAndTwo)
	cp1, bad := w.Hosts["cp1"], w.Manifest()
	bad.Spec.Kubernetes.APIServer.ExtraArgs = map[string]string{"authorization-mode": "no-such-mode"}
	cp1.Refuse = func(step string, _ op.Op) *op.Error {
		if step == "kubeadm.init.control-plane" {
			cp1.APISilent = strings.Contains(cp1.Files[lifecycletest.SettingsFile], "no-such-mode")
		}
		return nil
	}
	w.do(ApplyRequest{Subject: Subject{Cluster: bad}, ApplyOptions: ApplyOptions{KeepFailed: true}}, event.Failed)
	w.resume(event.Failed)
	for _, name := range []string{"cp2", "cp3"} {
		if strings.Contains(w.Hosts[name].Files[module.APIServerManifest], "no-such-mode") {
			t.Errorf("settings that keep API servers from starting reach %s", name)
		}
	}
	w.do(applying(w.Manifest()), event.Succeeded)
	w.wantHosts(threeAndTwo...)

	cp1.APISilent = true
	w.API.StopMember("cp1")
	res := w.do(applying(w.Manifest()), event.Failed)
	if f := res.Failures[0]; f.Reason != op.ReasonNotServing || !strings.Contains(f.Remedy, "slipway delete node") {
		t.Errorf("the apply ends with %+v", f)
	}
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp1"}}, event.Succeeded)
	w.wantHosts("cp2", "cp3", "w1", "w2")
	w.wantMembers("cp2", "cp3")
}
