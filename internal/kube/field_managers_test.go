package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindFieldManagers_ReturnsManagersOfKey(t *testing.T) {
	const path = "GET /api/v1/namespaces/kube-system/configmaps/kubelet-config"
	object := func(data, managers string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kubelet-config","managedFields":[` + managers + `]},"data":{` +
			data + `}}`
	}
	wrote := func(by, field string) string {
		return `{"manager":"` + by + `","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:` + field +
			`":{}},"f:metadata":{"f:labels":{"f:kubelet":{}}}}}`
	}
	for _, tc := range []struct {
		name, reason string
		call         call
		by           []string
		found        bool
	}{
		{
			"unchanged", "the manager that created it",
			call{request: path, answer: object(`"kubelet":"x"`, wrote("kubeadm", "kubelet"))},
			[]string{"kubeadm"},
			true,
		},
		{
			"edited", "another manager set the key; other keys do not count",
			call{request: path, answer: object(`"kubelet":"x","more":"y"`, wrote("kubeadm", "more")+","+wrote("kubectl-edit", "kubelet"))},
			[]string{"kubectl-edit"},
			true,
		},
		{
			"two managers", "both have set the same value",
			call{request: path, answer: object(`"kubelet":"x"`, wrote("slipway", "kubelet")+","+wrote("kubeadm", "kubelet"))},
			[]string{"kubeadm", "slipway"},
			true,
		},
		{"no manager", "no entry has the key", call{request: path, answer: object(`"kubelet":"x"`, "")}, nil, true},
		{"no such key", "it was removed", call{request: path, answer: object(`"more":"y"`, wrote("kubeadm", "more"))}, nil, false},
		{"gone", "it was deleted", call{request: path, status: 404}, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			by, found, err := newFakeAPI(t, tc.call).newClient().FindFieldManagers(t.Context(), "kube-system", "kubelet-config", "kubelet")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.by, by); d != "" || found != tc.found {
				t.Errorf("%s: found %t (-want +got):\n%s", tc.reason, found, d)
			}
		})
	}
}

func TestGetReplicas_ReturnsWantedNumberOrZero(t *testing.T) {
	const path = "GET /apis/apps/v1/namespaces/kube-system/deployments/coredns"
	f := newFakeAPI(t,
		call{request: path, status: 404},
		call{request: path, answer: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"coredns"},"spec":{"replicas":5}}`},
		call{request: path, answer: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"coredns"},"spec":{"replicas":0}}`},
		call{request: path, answer: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"coredns"},"spec":{}}`},
	)
	c := f.newClient()
	for _, want := range []int64{0, 5, 0, 1} {
		if n, err := c.GetReplicas(t.Context(), "kube-system", "coredns"); n != want || err != nil {
			t.Errorf("got %d, %v, want %d", n, err, want)
		}
	}
}
