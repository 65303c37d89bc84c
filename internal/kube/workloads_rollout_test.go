package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWorkloadsWaitRollout_WaitsUntilWorkloadIsRolledOut(t *testing.T) {
	const (
		deployment = "GET /apis/apps/v1/namespaces/n/deployments/d"
		daemonSet  = "GET /apis/apps/v1/namespaces/n/daemonsets/d"
		podList    = "GET /api/v1/namespaces/n/pods?labelSelector=app%3Dd"
		meta       = `"metadata":{"name":"d","generation":2},"spec":{"replicas":2,"selector":{"matchLabels":{"app":"d"}}}`
		noPods     = `{"kind":"PodList","apiVersion":"v1","items":[]}`
		badPod     = `{"kind":"PodList","apiVersion":"v1","items":[
{"apiVersion":"v1","kind":"Pod","metadata":{"name":"d-0"},"status":{"containerStatuses":[{"name":"c",` +
			`"state":{"waiting":{"reason":"ContainerCreating"}}}]}},
{"apiVersion":"v1","kind":"Pod","metadata":{"name":"d-1"},"status":{"containerStatuses":[{"name":"c",` +
			`"state":{"waiting":{"reason":"ErrImagePull","message":"no such image"}}}]}}]}`
	)
	of := func(ready ...string) string {
		var list []string
		for i, r := range ready {
			list = append(list, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"d-%d"%s}`, i, r))
		}
		return `{"kind":"PodList","apiVersion":"v1","items":[` + strings.Join(list, ",") + `]}`
	}
	const (
		ready   = `},"status":{"conditions":[{"type":"Ready","status":"True"}]}`
		unready = `},"status":{"conditions":[{"type":"Ready","status":"False"}]}`
		going   = `,"deletionTimestamp":"2026-01-01T00:00:00Z"` + ready
	)
	d := func(status string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment",` + meta + `,"status":` + status + `}`
	}
	tests := map[string]struct {
		reason string
		kind   string
		calls  []call
		said   []string
		err    string
	}{
		"deployment": {
			"old pods gone, new ones available, and the controller has seen it", "Deployment",
			[]call{
				{request: deployment, answer: d(`{"observedGeneration":1,"replicas":2,"updatedReplicas":2,"availableReplicas":2}`)},
				{request: deployment, answer: d(`{"observedGeneration":2,"replicas":3,"updatedReplicas":2,"availableReplicas":2}`)},
				{request: deployment, answer: d(`{"observedGeneration":2,"replicas":2,"updatedReplicas":2,"availableReplicas":1}`)},
				{request: podList, answer: badPod},
				{request: deployment, answer: d(`{"observedGeneration":2,"replicas":2,"updatedReplicas":2,"availableReplicas":2}`)},
				{request: podList, answer: of(ready, ready)},
			},
			[]string{
				"its controller has not processed it yet", "old pods still exist",
				"1 of 2 pods are available; pod d-1: ErrImagePull: no such image",
			},
			"",
		},
		"deployment past its deadline": {
			"what held it up may have been mended", "Deployment",
			[]call{
				{
					request: deployment,
					answer: d(`{"observedGeneration":2,"conditions":[{"type":"Progressing","status":"False","reason":"ProgressDeadlineExceeded",` +
						`"message":"timed out"}]}`),
				},
				{request: podList, answer: badPod},
				{request: deployment, answer: d(`{"observedGeneration":2,"replicas":2,"updatedReplicas":2,"availableReplicas":2}`)},
				{request: podList, answer: of(ready, ready)},
			},
			[]string{"0 of 2 pods are available; pod d-1: ErrImagePull: no such image"},
			"",
		},
		"counted by a controller that was away": {
			"what it says is as old as its last look", "Deployment",
			[]call{
				{request: deployment, answer: d(`{"observedGeneration":2,"replicas":2,"updatedReplicas":2,"availableReplicas":2}`)},
				{request: podList, answer: of()},
				{request: deployment, answer: d(`{"observedGeneration":2,"replicas":2,"updatedReplicas":2,"availableReplicas":2}`)},
				{request: podList, answer: of(going, ready, unready)},
				{request: deployment, answer: d(`{"observedGeneration":2,"replicas":2,"updatedReplicas":2,"availableReplicas":2}`)},
				{request: podList, answer: of(going, ready, ready)},
			},
			[]string{"0 of 2 pods are ready", "1 of 2 pods are ready"},
			"",
		},
		"daemon set": {
			"one pod for each node it is meant for", "DaemonSet",
			[]call{
				{request: daemonSet, answer: d(`{"observedGeneration":2,"desiredNumberScheduled":2,"updatedNumberScheduled":1,"numberAvailable":2}`)},
				{request: podList, answer: noPods},
				{request: daemonSet, answer: d(`{"observedGeneration":2,"desiredNumberScheduled":2,"updatedNumberScheduled":2,"numberAvailable":2}`)},
				{request: podList, answer: of(ready, ready)},
			},
			[]string{"1 of 2 pods are available"},
			"",
		},
		"missing": {
			"it will not appear", "DaemonSet",
			[]call{{request: daemonSet, status: 404, answer: statusAnswer(404, "daemonsets d not found")}},
			nil, "not found",
		},
		"other kind": {"only these kinds have a rollout", "Job", nil, nil, "only a Deployment, a DaemonSet or a StatefulSet"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t, tt.calls...)
			var said []string
			err := f.newClient().Workloads().WaitRollout(t.Context(), tt.kind, "n", "d", func(s string) { said = append(said, s) })
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("%s: error is %v, want %q", tt.reason, err, tt.err)
			}
			if diff := cmp.Diff(tt.said, said); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}
